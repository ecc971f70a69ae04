"""Episodes of agents: rollouts, replays of them by other agents, and monitored rollouts."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.models import Agent
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.monitor import Monitor
from recurrent_laplace.monitoring.recording import Recording, query_of, target_of
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.experience import Experience


class RolloutTrace(NamedTuple):
    """Episodes and the memory's trace along them, with leading axes of episodes and time."""

    experience: Any
    """`Experience` of an agent, or the observed pairs of a regressor."""
    inputs: Array
    """Inputs of the memory."""
    context: Any
    """Second argument of the heads."""
    hidden: Array
    """Hidden states of the memory."""


def play_episodes(
    agent: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    *,
    episodes: int,
    steps: int,
    resets: Any = None,
    test: bool = False,
    greedy: bool = False,
    key: Array,
) -> RolloutTrace:
    """Run an agent in training or test problems of a task, acting as in evaluation."""
    resets = None if resets is None else jnp.asarray(resets)
    return _play(agent, task, learning, episodes, steps, resets, test, greedy, key)


@eqx.filter_jit
def _play(
    agent: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    episodes: int,
    steps: int,
    resets: Array | None,
    test: bool,
    greedy: bool,
    key: Array,
) -> RolloutTrace:
    def play_one(key: Array, resets: Array | None) -> RolloutTrace:
        key_problem, key_rollout = jax.random.split(key)
        experience, _ = rollout(
            with_lookup(agent, task, learning.lookup),
            task,
            task.sample(key_problem, test=test),
            steps=steps,
            samples=learning.acting_samples,
            policy=learning.acting_policy,
            greedy=greedy,
            resets=resets,
            key=key_rollout,
        )
        return replay_agent(agent, experience, resets)

    return jax.vmap(play_one)(jax.random.split(key, episodes), resets)


def memory_inputs(agent: Agent, experience: Experience) -> tuple[Array, Array]:
    """Inputs of an agent's memory along an experience, and the embedded observations."""
    return agent.embed(experience.observation, experience.previous_action, experience.previous_reward)


def replay_agent(agent: Agent, experience: Experience, resets: Array | None = None) -> RolloutTrace:
    """Replay one episode through the memory of an agent."""
    inputs, embedded = memory_inputs(agent, experience)
    trace = agent.posterior.memory.unroll(inputs, resets)
    return RolloutTrace(experience, inputs, agent.head_context(embedded, trace.hidden), trace.hidden)


@eqx.filter_jit
def replayed_by(agent: Agent, played: RolloutTrace) -> RolloutTrace:
    """Replay episodes through the memory of another agent."""
    return jax.vmap(lambda experience: replay_agent(agent, experience))(played.experience)


def record_task(
    agent: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    *,
    episodes: int,
    steps: int,
    key: Array,
) -> list[Recording]:
    """Recordings of an agent in training problems of its task, acting as in evaluation."""
    played = play_episodes(agent, task, learning, episodes=episodes, steps=steps, key=key)
    experience = played.experience
    arrays = (played.inputs, experience.action, experience.reward, experience.observation)
    inputs, actions, rewards, observations = map(np.asarray, arrays)
    return [Recording(inputs[i], actions[i], rewards[i], observations[i]) for i in range(episodes)]


def play_task(
    agent: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    *,
    episodes: int,
    steps: int,
    greedy: bool = False,
    posterior: AbstractPosterior | None = None,
    key: Array,
) -> tuple[Monitor, list[Episode]]:
    """Run an agent in test problems of its task, acting as in evaluation, with a monitor.

    `posterior` is the one to monitor, over the memory of the agent; by default that of the agent.
    """
    played = play_episodes(
        agent, task, learning, episodes=episodes, steps=steps, test=True, greedy=greedy, key=key
    )
    posterior = agent.posterior if posterior is None else posterior
    monitor = Monitor(posterior, policy=agent.policy_head, value=agent.value_head, streams=episodes)
    experience = played.experience
    answered = _answered(posterior, experience)
    readings = [
        monitor.step(
            played.inputs[:, t],
            context=jax.tree.map(lambda leaf, t=t: leaf[:, t], played.context),
            **{name: array[:, t] for name, array in answered.items()},
        )
        for t in range(steps)
    ]
    return monitor, [
        Episode.of(
            *(list(np.asarray(each[i])) for each in (played.inputs, experience.action, experience.reward)),
            *jax.tree.map(lambda leaf, i=i: leaf[i], (readings, played.context)),
            ended=np.asarray(experience.episode_end[i]),
            observations=list(np.asarray(experience.observation[i])),
        )
        for i in range(episodes)
    ]


def _answered(posterior: AbstractPosterior, experience: Experience) -> dict[str, np.ndarray]:
    """Queries that the inputs answer, and their targets, for a posterior that predicts."""
    if posterior.likelihood is None:
        return {}
    names = [name for name, _ in posterior.likelihood.named_parts]
    observation, action, reward = (
        np.asarray(array) for array in (experience.observation, experience.action, experience.reward)
    )
    query = query_of(observation, action, posterior.query_actions)
    target = target_of(names, reward[:, :-1], observation[:, 1:])
    first = ((0, 0), (1, 0), (0, 0))
    return {
        "query": np.pad(query[:, :-1], first, constant_values=np.nan),
        "target": np.pad(target, first, constant_values=np.nan),
    }
