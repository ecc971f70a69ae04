"""An agent in a world: experience."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.learning.beliefs import draw
from recurrent_laplace.learning.tables import with_tables
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.base import Problem


class Experience(eqx.Module):
    """One task, step by step: what was seen, what was done, and what came of it.

    `previous_action` (-1 at first) and `previous_reward` are what the memory gets beside the
    observation. `belief` is what the agent acted on, where it was asked to be kept. It and `value` have one
    entry more: that of the input after the last step.
    """

    observation: Float[Array, "T O"]
    previous_action: Int[Array, " T"]
    previous_reward: Float[Array, " T"]
    action: Int[Array, " T"]
    log_prob: Float[Array, " T"]
    value: Float[Array, " T1"]
    reward: Float[Array, " T"]
    regret: Float[Array, " T"]
    episode_end: Bool[Array, " T"]
    belief: AbstractBelief | None = None


class Readings(eqx.Module):
    """What the agent thought at each step, before it acted. None where a point belief has none."""

    policy_entropy: Float[Array, " T"]
    entropy: Float[Array, " T"] | None
    kl: Float[Array, " T"] | None


def rollout(
    agent: Agent,
    task: AbstractControlTask,
    problem: Problem,
    *,
    steps: int,
    samples: int,
    policy: Literal["average", "mixture"] = "average",
    greedy: bool = False,
    with_readings: bool = False,
    with_beliefs: bool = False,
    resets: Bool[Array, " T"] | None = None,
    key: Array,
) -> tuple[Experience, Readings | None]:
    """Act in one problem for `steps` steps, on the average of `samples` draws from each belief.

    Episodes that end inside the task reset neither the memory nor the previous action and reward; where
    `resets` says so, the belief forgets everything before it takes in the input of that step.
    """
    agent = with_tables(agent, task.alphabet())
    posterior = agent.posterior
    key_reset, key_steps = jax.random.split(key)
    world, observation = task.reset(problem, key_reset)
    mind = _init_with_room(agent, steps)
    previous = posterior.prior() if with_readings and _has_distribution(agent) else None
    zero = jnp.zeros((), observation.dtype)
    # Keys and the noise of actions are made for all steps together, which takes a fraction of the time.
    indices = jnp.arange(steps + 1)
    keys = jax.vmap(lambda index: jax.random.split(jax.random.fold_in(key_steps, index), 3))(indices)
    key_beliefs, key_actions, key_worlds = keys[:, 0], keys[:, 1], keys[:, 2]
    whims = jax.vmap(lambda key: jax.random.gumbel(key, (agent.actions,), posterior.memory.dtype))(
        key_actions
    )

    def step(now, random):
        world, mind, previous, observation, action, reward = now
        index, key_belief, whim, key_world = random
        x, seen = agent.embed(observation, action, reward)
        reset = False if resets is None else resets[jnp.minimum(index, steps - 1)]
        mind, belief = posterior.update(mind, x, reset)
        seen = agent.seen(seen, posterior.memory.hidden(posterior.carry(mind)))
        behaviour = agent.behave(draw(belief, samples, key=key_belief), seen, policy=policy)
        # With Gumbel's noise the largest is a draw from the policy.
        choice = jnp.argmax(behaviour.logits if greedy else behaviour.logits + whim)
        readings = _readings(belief, previous, behaviour.entropy()) if with_readings else None
        new_world, outcome = task.step(problem, world, choice, key_world)
        record = Experience(
            observation=observation,
            previous_action=action,
            previous_reward=reward,
            action=choice,
            log_prob=behaviour.log_prob(choice),
            value=behaviour.value,
            reward=outcome.reward,
            regret=outcome.regret,
            episode_end=outcome.terminated | outcome.truncated,
            belief=belief if with_beliefs else None,
        )
        previous = belief if previous is not None else None
        then = (new_world, mind, previous, outcome.observation, choice, outcome.reward)
        return then, (record, readings)

    start = (world, mind, previous, observation, jnp.array(-1), zero)
    # One step more than is kept: its value is that of the input after the last step.
    _, (record, readings) = jax.lax.scan(step, start, (indices, key_beliefs, whims, key_worlds))
    whole = lambda r: (r.value, r.belief)  # noqa: E731
    kept = whole(record)
    record, readings = jax.tree.map(lambda leaf: leaf[:-1], (record, readings))
    return eqx.tree_at(whole, record, kept, is_leaf=lambda leaf: leaf is None), readings


def _has_distribution(agent: Agent) -> bool:
    x = jnp.zeros(agent.posterior.memory.input_size or 0)
    _, belief = jax.eval_shape(lambda: agent.posterior.update(agent.posterior.init(), x))
    return isinstance(belief, AbstractGaussian)


def _init_with_room(agent: Agent, steps: int):
    """The first state of mind; one that keeps all history gets room for it."""
    posterior = agent.posterior
    if getattr(posterior, "window", 1) is None:
        return posterior.init(capacity=steps + 1)  # pyright: ignore[reportCallIssue]
    return posterior.init()


def _readings(belief: AbstractBelief, previous: AbstractBelief | None, policy_entropy: Array) -> Readings:
    if previous is None:
        return Readings(policy_entropy, None, None)
    return Readings(policy_entropy, belief.entropy(), belief.kl(previous))
