"""Exact beliefs over time: of reference agents that act, and along the experience of any agent."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_size
from recurrent_laplace.oracles.base import AbstractExactBelief, AbstractOracle, AbstractReference
from recurrent_laplace.tasks import AbstractTask, Step
from recurrent_laplace.tasks.base import Problem
from recurrent_laplace.tasks.experience import Experience


class Played(eqx.Module):
    """Rewards and regrets of a reference agent, and the entropies and surprisals of its exact belief.

    `entropy[t]` is that of the belief before action t; `surprise[t]` is that of the outcome of action t - 1,
    zero for the first.
    """

    reward: Float[Array, "*lead"]
    regret: Float[Array, "*lead"] | None
    entropy: Float[Array, "*lead"]
    surprise: Float[Array, "*lead"]


class Replay(eqx.Module):
    """Exact beliefs along the experience of an agent, as selected by `read`; entropies and surprisals."""

    belief: Any
    entropy: Float[Array, "*lead"]
    surprise: Float[Array, "*lead"]


def play(task: AbstractTask, agent: AbstractReference, problem: Problem, *, steps: int, key: Array) -> Played:
    """Let a reference agent act in one problem; with the same key, the environment is that of `rollout`.

    ```python
    task = rl.Gridworld()
    agent = Walker(GridOracle(task))
    keys = jax.random.split(jax.random.key(0), (2, 128))
    play_task = lambda a, b: play(task, agent, task.sample(a), steps=100, key=b)
    played = jax.jit(jax.vmap(play_task))(*keys)  # played.reward: (128, 100)
    ```
    """
    check_size("steps", steps)
    oracle = agent.oracle
    oracle.check_steps(steps)
    key_reset, key_steps = jax.random.split(key)
    world, observation = task.reset(problem, key_reset)

    def step(carry, index):
        world, belief, observation, surprise = carry
        _, key_action, key_world = jax.random.split(jax.random.fold_in(key_steps, index), 3)
        action = agent.act(belief, observation, key_action)
        world, outcome = task.step(problem, world, action, key_world)
        played = Played(outcome.reward, outcome.regret, belief.entropy(), surprise)
        surprise = belief.surprise(observation, action, outcome)
        belief = oracle.update(belief, observation, action, outcome)
        return (world, belief, outcome.observation, surprise), played

    start = (world, oracle.init(observation), observation, jnp.zeros((), observation.dtype))
    return jax.lax.scan(step, start, jnp.arange(steps))[1]


def replay(
    oracle: AbstractOracle,
    experience: Experience,
    *,
    read: Callable[[AbstractExactBelief], Any] = lambda belief: belief,
) -> Replay:
    """Exact beliefs along the experience of any agent in one task.

    Entry t is based on the inputs up to t, like the agent's own belief at step t. `read` selects the arrays
    of each belief to keep.

    ```python
    experience, _ = rollout(agent, task, problem, steps=100, samples=1, key=key)
    replay(GridOracle(task), experience).belief.probabilities  # (100, 5, 5)
    ```
    """
    oracle.check_steps(len(experience.action))
    first = oracle.init(experience.observation[0])
    zero = jnp.zeros((), experience.observation.dtype)

    def step(belief, transition):
        observation, action, reward, episode_end, next_observation = transition
        outcome = Step(next_observation, reward, episode_end, jnp.array(False), zero)
        surprise = belief.surprise(observation, action, outcome)
        belief = oracle.update(belief, observation, action, outcome)
        return belief, Replay(read(belief), belief.entropy(), surprise)

    transitions = (
        experience.observation[:-1],
        experience.previous_action[1:],
        experience.previous_reward[1:],
        experience.episode_end[:-1],
        experience.observation[1:],
    )
    _, later = jax.lax.scan(step, first, transitions)
    initial = Replay(read(first), first.entropy(), zero)
    return jax.tree.map(lambda leaf, leaves: jnp.concatenate([leaf[None], leaves]), initial, later)
