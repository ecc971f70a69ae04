"""Scores along episodes that may tell of a change: ours, and what they are measured against."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.chunks import map_chunks
from recurrent_laplace.deploy.readings import Heads, Reading, read_sequence
from recurrent_laplace.evaluation.oracles import follow
from recurrent_laplace.evaluation.oracles.base import AbstractOracle
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.rollout import Experience, rollout
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractControlTask

NEAREST = 10
"""The distance to this nearest clean state is the kNN score."""
REFERENCES = 4000
"""Clean states that are kept for it."""
RECENT = 10
"""Inputs that the two-statistic detector looks back on."""
EPISODES_AT_ONCE = 32
SAMPLES = 8
"""Draws from a belief for the disagreement of policies."""

ACROSS_POSTERIORS = ("value_moved", "policy_moved", "value", "policy_entropy")
"""Readings that the mean alone makes: the same for every Laplace posterior on a network."""
BY_POSTERIOR = ("entropy", "kl", "mahalanobis", "value_stddev", "policy_disagreement")

Scores = dict[str, Float[np.ndarray, "E T"]]
"""By name: a number for each episode and step, larger where a change is more likely."""


class Watched(NamedTuple):
    """Episodes of an agent, and what its memory made of them. All have leading axes of episodes and time."""

    experience: Any
    """What was done, or the pairs that were seen."""
    inputs: Array
    seen: Any
    hidden: Array


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
) -> Watched:
    """An agent in problems of a task, those for test or for training, acting as in evaluation."""
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
) -> Watched:
    def one(key: Array, resets: Array | None) -> Watched:
        key_problem, key_rollout = jax.random.split(key)
        experience, _ = rollout(
            agent,
            task,
            task.sample(key_problem, test=test),
            steps=steps,
            samples=learning.acting_samples,
            policy=learning.acting_policy,
            greedy=greedy,
            resets=resets,
            key=key_rollout,
        )
        return _watch(agent, experience, resets)

    return jax.vmap(one)(jax.random.split(key, episodes), resets)


def _watch(agent: Agent, experience: Experience, resets: Array | None = None) -> Watched:
    inputs, embedded = agent.embed(
        experience.observation, experience.previous_action, experience.previous_reward
    )
    trace = agent.posterior.memory.unroll(inputs, resets)
    hidden = jax.vmap(agent.posterior.memory.cell.hidden)(trace.carries)
    return Watched(experience, inputs, agent.seen(embedded, hidden), hidden)


@eqx.filter_jit
def watched_by(agent: Agent, played: Watched) -> Watched:
    """The same episodes, as the memory of another agent follows them."""
    return jax.vmap(lambda experience: _watch(agent, experience))(played.experience)


@eqx.filter_jit
def read_episodes(model: Agent | Regressor, played: Watched) -> Reading:
    """The readings of a model's posterior along episodes, whoever played them."""
    posterior = model.posterior
    if isinstance(model, Agent):
        heads = Heads(model.policy_head, model.value_head)
    else:
        heads = Heads(value=model.prediction_head)
    noise = jax.random.normal(jax.random.key(0), (SAMPLES, posterior.memory.feature_size))

    def of_episode(now: tuple[Array, Any]) -> Reading:
        inputs, seen = now
        return read_sequence(posterior, heads, inputs, seen, noise)[0]

    return map_chunks(jax.vmap(of_episode), (played.inputs, played.seen), EPISODES_AT_ONCE)


def reading_scores(readings: dict[str, Reading]) -> Scores:
    """The readings of each posterior: what is the same for all of them once, the rest by name."""
    scores: Scores = {}
    for name, reading in readings.items():
        there = reading.scalars()
        scores |= {field: np.asarray(there[field], float) for field in ACROSS_POSTERIORS if field in there}
        scores |= {
            f"{field}, {name}": np.asarray(there[field], float) for field in BY_POSTERIOR if field in there
        }
    return scores


def belief_scores(name: str, reading: Reading) -> Scores:
    """What the belief of another network says, which was trained to have one."""
    there = reading.scalars()
    return {f"{name}: {field}": np.asarray(there[field], float) for field in BY_POSTERIOR if field in there}


def td_errors(reading: Reading, experience: Experience, discount: float) -> Float[np.ndarray, "E T"]:
    """Known with the input after the action; zero at first.

    The value looks as far as the end of an episode inside of the task, as in training.
    """
    value, reward = np.asarray(reading.value, float), np.asarray(experience.previous_reward, float)
    goes_on = discount * (1 - np.asarray(experience.episode_end, float)[:, :-1])
    error = reward[:, 1:] + goes_on * value[:, 1:] - value[:, :-1]
    return np.concatenate([np.zeros((len(value), 1)), error], axis=1)


def exact_surprise(oracle: AbstractOracle, experience: Experience) -> Float[np.ndarray, "E T"]:
    """How unlikely each input was to the exact belief: the ceiling."""
    return np.asarray(_follow_all(oracle, experience), float)


@eqx.filter_jit
def _follow_all(oracle: AbstractOracle, experience: Experience) -> Array:
    return jax.vmap(lambda one: follow(oracle, one, read=lambda _: None).surprise)(experience)


class Baselines:
    """Scores that need no posterior, some of them fitted on clean episodes."""

    def __init__(self, clean: Watched, *, seed: int = 0):
        hidden = np.asarray(clean.hidden, float)
        flat = hidden.reshape(-1, hidden.shape[-1])
        self.center = flat.mean(axis=0)
        covariance = np.cov(flat.T) + 1e-6 * np.eye(flat.shape[1])
        self.whitening = np.linalg.cholesky(np.linalg.inv(covariance))
        self.random = np.random.default_rng(seed)
        chosen = self.random.choice(len(flat), min(REFERENCES, len(flat)), replace=False)
        self.references = flat[chosen]
        self.mean_input = np.asarray(clean.inputs, float).mean(axis=0)

    def scores(self, played: Watched, reading: Reading) -> Scores:
        """Of other episodes."""
        hidden, mean = np.asarray(played.hidden, float), np.asarray(reading.mean, float)
        return {
            "random": self.random.normal(size=hidden.shape[:2]),
            "norm of the state": np.linalg.norm(hidden, axis=-1),
            "jump of the state": _jump(hidden),
            "jump of the mean": _jump(mean),
            "Mahalanobis of the state": np.linalg.norm((hidden - self.center) @ self.whitening, axis=-1),
            "kNN of the state": np.stack([_nearest(states, self.references) for states in hidden]),
            "two statistics of the inputs": self._two_statistics(np.asarray(played.inputs, float)),
        }

    def _two_statistics(self, inputs: Float[np.ndarray, "E T D"]) -> Float[np.ndarray, "E T"]:
        """How far the recent mean of the inputs is from the clean one, and how alike the inputs are."""
        steps = np.arange(1, inputs.shape[1] + 1)
        # Beyond the clean episodes, their last step serves.
        mean_input = self.mean_input[np.minimum(steps, len(self.mean_input)) - 1]
        total = np.cumsum(np.pad(inputs - mean_input, ((0, 0), (1, 0), (0, 0))), axis=1)
        begin = np.maximum(steps - RECENT, 0)
        count = (steps - begin)[:, None]
        drift = np.linalg.norm((total[:, steps] - total[:, begin]) / count, axis=-1)
        unit = inputs / np.maximum(np.linalg.norm(inputs, axis=-1, keepdims=True), 1e-9)
        total = np.cumsum(np.pad(unit, ((0, 0), (1, 0), (0, 0))), axis=1)
        alike = np.linalg.norm((total[:, steps] - total[:, begin]) / count, axis=-1)
        return drift + alike


def ensemble_scores(members: Sequence[Agent], played: Watched) -> Scores:
    """Disagreement of networks that were trained alike, on the same history."""
    values, policies = zip(*(_outputs(member, played.experience) for member in members), strict=True)
    log_probs = np.stack(policies)
    average = np.log(np.mean(np.exp(log_probs), axis=0))
    kls = np.sum(np.exp(log_probs) * (log_probs - average), axis=-1)
    return {
        "ensemble: stddev of the value": np.std(np.stack(values), axis=0),
        "ensemble: disagreement of the policy": kls.mean(axis=0),
    }


def _outputs(agent: Agent, experience: Experience) -> tuple[np.ndarray, np.ndarray]:
    """Value and log-policy of a network at its mean, along someone's history."""
    value, logits = _compiled_outputs(agent, experience)
    return np.asarray(value, float), np.asarray(jax.nn.log_softmax(logits), float)


@eqx.filter_jit
def _compiled_outputs(agent: Agent, experience: Experience) -> tuple[Array, Array]:
    def one(experience: Experience) -> tuple[Array, Array]:
        watched = _watch(agent, experience)
        features = agent.posterior.memory.features(watched.hidden)
        behaviour = agent.behave(features[None], watched.seen)
        return behaviour.value, behaviour.logits

    return jax.vmap(one)(experience)


def _nearest(states: Float[np.ndarray, "T H"], references: Float[np.ndarray, "R H"]) -> np.ndarray:
    """The distance of each state to its `NEAREST`-th reference; trees do not pay in so many dimensions."""
    squared = (states**2).sum(axis=1)[:, None] - 2 * states @ references.T + (references**2).sum(axis=1)
    return np.sqrt(np.maximum(np.partition(squared, NEAREST - 1, axis=1)[:, NEAREST - 1], 0.0))


def _jump(values: Float[np.ndarray, "E T N"]) -> Float[np.ndarray, "E T"]:
    before = np.concatenate([np.zeros_like(values[:, :1]), values[:, :-1]], axis=1)
    return np.linalg.norm(values - before, axis=-1)
