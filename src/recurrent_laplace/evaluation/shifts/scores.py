"""Shift scores along episodes: readings of posteriors, and baselines."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.chunks import map_chunks
from recurrent_laplace.evaluation.play import RolloutTrace, replay_agent
from recurrent_laplace.models import Agent, Categorical, GaussianPolicy, Regressor
from recurrent_laplace.monitoring.readings import Heads, Reading, read_sequence
from recurrent_laplace.monitoring.signals import SIGNALS, WITH_REWARDS, larger, td_errors
from recurrent_laplace.oracles import replay
from recurrent_laplace.oracles.base import AbstractOracle
from recurrent_laplace.tasks.experience import Experience

NEAREST = 10
"""Number of neighbours of the kNN score."""
REFERENCES = 4000
"""Clean states of the kNN score."""
RECENT = 10
"""Window of the two-statistic detector, in inputs."""
EPISODES_AT_ONCE = 32
"""Episodes per chunk."""
SAMPLES = 8
"""Samples from a belief for `policy_disagreement`."""

ACROSS_POSTERIORS = ("value_moved", "policy_moved", "policy_entropy")
"""Readings of the mean alone, which all Laplace posteriors on a network share."""
BY_POSTERIOR = ("entropy", "kl", "mahalanobis", "value_stddev", "policy_disagreement")
"""Readings that depend on the covariance."""

Scores = dict[str, Float[np.ndarray, "E T"]]
"""Scores by name, one number per episode and step; larger values indicate a shift."""


@eqx.filter_jit
def read_episodes(model: Agent | Regressor, played: RolloutTrace) -> Reading:
    """Readings of a model's posterior along replayed episodes."""
    posterior = model.posterior
    if isinstance(model, Agent):
        heads = Heads(model.policy_head, model.value_head)
    else:
        heads = Heads(value=model.prediction_head)
    noise = jax.random.normal(jax.random.key(0), (SAMPLES, posterior.memory.feature_size))

    def read_episode(episode: tuple[Array, Any]) -> Reading:
        return read_sequence(posterior, heads, *episode, noise)[0]

    return map_chunks(jax.vmap(read_episode), (played.inputs, played.context), EPISODES_AT_ONCE)


def reading_scores(readings: dict[str, Reading]) -> Scores:
    """Scores from the readings of several posteriors on one network; shared readings appear once."""
    scores: Scores = {}
    for name, reading in readings.items():
        scalars = reading.scalars()
        scores |= {field: larger(field, scalars) for field in ACROSS_POSTERIORS if field in scalars}
        scores |= {f"{field}, {name}": larger(field, scalars) for field in BY_POSTERIOR if field in scalars}
    return scores


def belief_scores(name: str, reading: Reading) -> Scores:
    """Scores from the belief of a network trained with a posterior."""
    scalars = reading.scalars()
    return {f"{name}: {field}": larger(field, scalars) for field in BY_POSTERIOR if field in scalars}


def alarm_scores(reading: Reading, experience: Experience, discount: float) -> Scores:
    """Signals of an agent's `ShiftAlarm`, by their labels."""
    reward = np.asarray(experience.previous_reward, float)[:, 1:]
    ended = np.asarray(experience.episode_end)[:, :-1]
    errors = td_errors(np.asarray(reading.value, float), reward, ended, discount)
    numbers = reading.scalars() | {"td_error": errors}
    return {SIGNALS[name].label: larger(name, numbers) for name in WITH_REWARDS}


def exact_surprise(oracle: AbstractOracle, experience: Experience) -> Float[np.ndarray, "E T"]:
    """Surprise of each input under the exact belief: an upper bound for detectors."""
    return np.asarray(_replay_all(oracle, experience), float)


@eqx.filter_jit
def _replay_all(oracle: AbstractOracle, experience: Experience) -> Array:
    return jax.vmap(lambda episode: replay(oracle, episode, read=lambda _: None).surprise)(experience)


class Baselines:
    """Baseline scores without a posterior, fitted on clean episodes."""

    def __init__(self, clean: RolloutTrace, *, seed: int = 0):
        hidden = np.asarray(clean.hidden, float)
        flat = hidden.reshape(-1, hidden.shape[-1])
        self.center = flat.mean(axis=0)
        covariance = np.cov(flat.T) + 1e-6 * np.eye(flat.shape[1])
        self.whitening = np.linalg.cholesky(np.linalg.inv(covariance))
        self.random = np.random.default_rng(seed)
        chosen = self.random.choice(len(flat), min(REFERENCES, len(flat)), replace=False)
        self.references = flat[chosen]
        self.mean_input = np.asarray(clean.inputs, float).mean(axis=0)

    def scores(self, played: RolloutTrace, reading: Reading) -> Scores:
        """Compute the scores of episodes."""
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
        """Distance of the recent mean input from the clean one, plus the similarity of recent inputs."""
        steps = np.arange(1, inputs.shape[1] + 1)
        # Steps beyond the clean episodes use their last step.
        mean_input = self.mean_input[np.minimum(steps, len(self.mean_input)) - 1]
        unit = inputs / np.maximum(np.linalg.norm(inputs, axis=-1, keepdims=True), 1e-9)
        begin = np.maximum(steps - RECENT, 0)

        def norm_of_recent_mean(values: np.ndarray) -> np.ndarray:
            total = np.cumsum(np.pad(values, ((0, 0), (1, 0), (0, 0))), axis=1)
            return np.linalg.norm((total[:, steps] - total[:, begin]) / (steps - begin)[:, None], axis=-1)

        return norm_of_recent_mean(inputs - mean_input) + norm_of_recent_mean(unit)


def ensemble_scores(members: Sequence[Agent], played: RolloutTrace) -> Scores:
    """Disagreement of an ensemble of networks on the same history."""
    values, policies = zip(*(_outputs(member, played.experience) for member in members), strict=True)
    disagreement = _disagreement if members[0].actions else continuous_disagreement
    return {
        "ensemble: stddev of the value": np.std(np.asarray(values, float), axis=0),
        "ensemble: disagreement of the policy": disagreement(policies),
    }


def _disagreement(policies: Sequence[Categorical]) -> Float[np.ndarray, "E T"]:
    """Mean KL of policies from their mixture."""
    log_probs = np.stack([np.asarray(jax.nn.log_softmax(each.logits), float) for each in policies])
    average = np.log(np.mean(np.exp(log_probs), axis=0))
    return np.sum(np.exp(log_probs) * (log_probs - average), axis=-1).mean(axis=0)


def continuous_disagreement(policies: Sequence[GaussianPolicy]) -> Float[np.ndarray, "E T"]:
    """Mean KL of Gaussian policies from the Gaussian with the moments of their mixture."""
    means = np.stack([np.asarray(each.mean, float) for each in policies])
    log_stddevs = np.stack([np.asarray(each.log_stddev, float) for each in policies])
    variance = np.mean(np.exp(2 * log_stddevs), axis=0) + np.var(means, axis=0)
    # The expectation of the quadratic term is exactly that of a Gaussian with its own moments.
    return np.sum(0.5 * np.log(variance) - log_stddevs.mean(axis=0), axis=-1)


@eqx.filter_jit
def _outputs(agent: Agent, experience: Experience) -> tuple[Array, Any]:
    """Value and policy of a network at its mean, along a replayed history."""

    def act(experience: Experience) -> tuple[Array, Any]:
        trace = replay_agent(agent, experience)
        features = agent.posterior.memory.features(trace.hidden)
        behaviour = agent.behave(features[None], trace.context)
        return behaviour.value, behaviour.policy

    return jax.vmap(act)(experience)


def _nearest(states: Float[np.ndarray, "T H"], references: Float[np.ndarray, "R H"]) -> np.ndarray:
    """Distance of each state to its `NEAREST`-th neighbour, by brute force because of the dimension."""
    squared = (states**2).sum(axis=1)[:, None] - 2 * states @ references.T + (references**2).sum(axis=1)
    return np.sqrt(np.maximum(np.partition(squared, NEAREST - 1, axis=1)[:, NEAREST - 1], 0.0))


def _jump(values: Float[np.ndarray, "E T N"]) -> Float[np.ndarray, "E T"]:
    """Norm of the change from the previous step."""
    return np.linalg.norm(np.diff(values, axis=1, prepend=0.0), axis=-1)
