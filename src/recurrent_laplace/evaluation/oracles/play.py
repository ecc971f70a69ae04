"""Exact beliefs over time: of reference agents, and along what any agent has seen."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.oracles.base import AbstractExactBelief, AbstractOracle, AbstractReference
from recurrent_laplace.learning.rollout import Experience
from recurrent_laplace.tasks import AbstractTask, Step
from recurrent_laplace.tasks.base import Problem


class Played(eqx.Module):
    """Step by step: what was paid, what was missed, and the exact belief that was acted on.

    `entropy[t]` is that of the belief before action t, and `surprise[t]` that of the input which made
    it: the outcome of action t - 1. The first input surprises no one.
    """

    reward: Float[Array, " T"]
    regret: Float[Array, " T"]
    entropy: Float[Array, " T"]
    surprise: Float[Array, " T"]


class Followed(eqx.Module):
    """The exact belief at each input of an agent: what `read` gave of it, its entropy, the surprise."""

    belief: Any
    entropy: Float[Array, " T"]
    surprise: Float[Array, " T"]


def play(task: AbstractTask, agent: AbstractReference, problem: Problem, *, steps: int, key: Array) -> Played:
    """Let a reference agent act in one problem. With the same key the world is that of `rollout`.

    ```python
    agent = Walker(GridOracle(task))
    keys = jax.random.split(jax.random.key(0), (2, 128))
    one = lambda a, b: play(task, agent, task.sample(a), steps=100, key=b)
    played = jax.jit(jax.vmap(one))(*keys)  # played.reward: (128, 100)
    ```
    """
    check_size("steps", steps)
    oracle = agent.oracle
    oracle.check_steps(steps)
    key_reset, key_steps = jax.random.split(key)
    world, observation = task.reset(problem, key_reset)

    def step(now, index):
        world, belief, observation, surprise = now
        _, key_action, key_world = jax.random.split(jax.random.fold_in(key_steps, index), 3)
        action = agent.act(belief, observation, key_action)
        world, outcome = task.step(problem, world, action, key_world)
        played = Played(outcome.reward, outcome.regret, belief.entropy(), surprise)
        surprise = belief.surprise(observation, action, outcome)
        belief = oracle.update(belief, observation, action, outcome)
        return (world, belief, outcome.observation, surprise), played

    start = (world, oracle.init(observation), observation, jnp.zeros((), observation.dtype))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def follow(
    oracle: AbstractOracle,
    experience: Experience,
    *,
    read: Callable[[AbstractExactBelief], Any] = lambda belief: belief,
) -> Followed:
    """The exact belief along one task of any agent, from what the agent was given.

    Entry t has seen the inputs up to t, like the agent's own belief at step t. `read` picks what to
    keep of each belief, where the whole of it would be much.

    ```python
    experience, _ = rollout(agent, task, problem, steps=100, samples=1, key=key)
    followed = follow(GridOracle(task), experience)
    followed.belief.probabilities  # (100, 5, 5)
    ```
    """
    oracle.check_steps(len(experience.action))
    first = oracle.init(experience.observation[0])
    no, zero = jnp.zeros((), bool), jnp.zeros((), experience.observation.dtype)

    def step(belief, given):
        before, action, reward, end, after = given
        outcome = Step(after, reward, end, no, zero)
        surprise = belief.surprise(before, action, outcome)
        belief = oracle.update(belief, before, action, outcome)
        return belief, Followed(read(belief), belief.entropy(), surprise)

    given = (
        experience.observation[:-1],
        experience.previous_action[1:],
        experience.previous_reward[1:],
        experience.episode_end[:-1],
        experience.observation[1:],
    )
    _, rest = jax.lax.scan(step, first, given)
    begun = Followed(read(first), first.entropy(), zero)
    return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), begun, rest)
