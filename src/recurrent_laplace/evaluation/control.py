"""Evaluation of an agent on fixed test tasks."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.held_out import LENGTHS, TASKS_AT_ONCE, at_lengths, test_keys

Table = dict[str, Float[Array, "N L"]]
"""One array per metric, with one row per task and one column per length; missing values are NaN."""


@eqx.filter_jit
def evaluate_control(
    agent: Agent,
    task: AbstractControlTask,
    *,
    tasks: int,
    samples: int,
    policy: Literal["average", "mixture"],
    greedy: bool,
    lookup: bool = True,
) -> Table:
    """Run the agent in `tasks` test problems for the longest of `LENGTHS`.

    Columns at length t: `return` and `cumulative_regret` of the first t steps; `regret`, `policy_entropy`,
    `entropy` and `kl` at step t, after t inputs. At length 0, only the prior's entropy is defined. A task
    without regret has no columns of it.
    """
    steps = max(LENGTHS)

    def evaluate_task(keys: tuple[Array, Array]) -> Table:
        key_problem, key_play = keys
        experience, readings = rollout(
            with_lookup(agent, task, lookup),
            task,
            task.sample(key_problem, test=True),
            steps=steps,
            samples=samples,
            policy=policy,
            greedy=greedy,
            with_readings=True,
            key=key_play,
        )
        assert readings is not None
        series = {
            "return": at_lengths(jnp.cumsum(experience.reward), first=0.0),
            "policy_entropy": at_lengths(readings.policy_entropy),
            "entropy": jnp.full(len(LENGTHS), jnp.nan),
            "kl": jnp.full(len(LENGTHS), jnp.nan),
        }
        if experience.regret is not None:
            series["cumulative_regret"] = at_lengths(jnp.cumsum(experience.regret), first=0.0)
            series["regret"] = at_lengths(experience.regret)
        if readings.entropy is not None and readings.kl is not None:
            prior = agent.posterior.prior()
            assert isinstance(prior, AbstractGaussian)
            series["entropy"] = at_lengths(readings.entropy, first=prior.entropy())
            series["kl"] = at_lengths(readings.kl)
        return series

    return jax.lax.map(evaluate_task, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))
