"""Faithfulness study: agents' beliefs against the exact one, with an untrained network as baseline."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.chunks import map_chunks
from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.faithfulness.measures import (
    coverage,
    divergence,
    drift,
    drift_in_errors,
    error_over_spread,
    late_over_early,
    projected_variance,
    r_squared,
    rank_agreement,
)
from recurrent_laplace.evaluation.play import RolloutTrace, memory_inputs, play_episodes
from recurrent_laplace.evaluation.shifts.scores import EPISODES_AT_ONCE
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, LaplaceConfig, with_posterior
from recurrent_laplace.oracles import AbstractOracle, Replay, make_oracle, replay
from recurrent_laplace.scoring.decoding import Kind, Split, fit_network, fit_ridge, split_tasks
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask, require_support
from recurrent_laplace.tasks.experience import Experience

LAPLACE = {
    f"{name}, {covariance}": LaplaceConfig(covariance=covariance, **options)
    for name, options in {
        "stationary": {"accumulate": "none"},
        "window 10": {"accumulate": "none", "window": 10},
        "precision": {"accumulate": "precision"},
        "mean and precision": {"accumulate": "mean_and_precision"},
    }.items()
    for covariance in ("diagonal", "dense")
} | {"precision, state space": LaplaceConfig(covariance="dense", space="state")}
"""Laplace posteriors for networks trained without a posterior."""

LEVELS = (0.5, 0.9)
"""Nominal levels of the intervals."""
FEWEST_TASKS = 16
"""Fewest tasks that can be split into fitting, validation and test tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FaithfulnessConfig:
    """Options of the faithfulness study."""

    tasks: int = 1024
    """Number of tasks: half for fitting decoders, a quarter each for validation and test."""
    steps: int = 100
    """Steps per task."""
    seed: int = 0
    """Seed of problems and samples."""

    def check(self) -> None:
        """Raise if an option is invalid."""
        for name in ("tasks", "steps"):
            check_size(name, getattr(self, name))
        if self.tasks < FEWEST_TASKS:
            raise ValueError(f"tasks must be at least {FEWEST_TASKS}; got {self.tasks}.")
        if self.steps < 4:
            raise ValueError(f"steps must be at least 4; got {self.steps}.")


class GroundTruth(NamedTuple):
    """Exact beliefs at each step of each task, and the true parameters.

    - `belief`, `kind`, `mean`, `variance`, `pays`: as in `recurrent_laplace.oracles.Targets`;
    - `entropy`: entropy of the exact belief;
    - `parameter`: parameters of the task, such as the goal's row and column, or the arms' probabilities.
    """

    belief: Float[np.ndarray, "E T K"]
    kind: Kind
    entropy: Float[np.ndarray, "E T"]
    parameter: Float[np.ndarray, "E P"]
    mean: Float[np.ndarray, "E T P"]
    variance: Float[np.ndarray, "E T P"]
    pays: Int[np.ndarray, "E T A"]


def posteriors_of(agent: Agent) -> dict[str, Agent]:
    """Agents to measure: with its own posterior, or if it has none, with every Laplace posterior."""
    if agent.posterior.has_density:
        return {"its own": agent}
    key = jax.random.key(0)
    return {name: with_posterior(agent, config, key=key) for name, config in LAPLACE.items()}


def faithfulness(
    agent: Agent,
    untrained: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    config: FaithfulnessConfig,
    *,
    progress: Callable[[str], None] = lambda text: None,
) -> list[dict[str, Any]]:
    """Measure the exact belief, and each posterior on the trained and the untrained network: one row each.

    All replay the histories of the trained agent. `progress` is called before each row but the first.
    """
    config.check()
    check_comparable(task)
    key = jax.random.key(config.seed)
    played = play_episodes(agent, task, learning, episodes=config.tasks, steps=config.steps, key=key)
    truth = exact_truth(task, played, key)
    rows = [{"network": "exact", "posterior": "exact belief", **_exact_measures(truth)}]
    for network, model in {"trained": agent, "untrained": untrained}.items():
        means: dict[str, tuple[np.ndarray, dict[str, float]]] = {}
        for name, candidate in posteriors_of(model).items():
            progress(f"{network}: {name}")
            # Posteriors on one network share its measures if their means are the features.
            which = "features" if candidate.posterior.mean_is_features else name
            if which not in means:
                arrays = _means(candidate, played.experience)
                mean, context = jax.tree.map(lambda array: np.asarray(array, float), arrays)
                measures = _mean_measures(candidate, mean, context, played.experience, truth)
                means[which] = mean, measures
            mean, measures = means[which]
            spread_measures = _spread_measures(candidate, mean, played.experience, truth)
            rows.append({"network": network, "posterior": name, **measures, **spread_measures})
    return rows


def exact_truth(task: AbstractControlTask, played: RolloutTrace, key: Array) -> GroundTruth:
    """Compute the exact belief along an agent's experience; `key` is the key of its rollout."""
    parameters = check_comparable(task)
    observations = np.asarray(played.experience.observation)
    tasks, steps = observations.shape[:2]
    oracle = make_oracle(task, test=False, steps=steps)
    replayed = _replay_all(oracle, played.experience)
    keys = jax.vmap(lambda k: jax.random.split(k)[0])(jax.random.split(key, tasks))
    parameter = jax.vmap(lambda k: parameters(task, task.sample(k)))(keys)
    entropy = np.asarray(replayed.entropy, float)
    belief, kind, mean, variance, pays = oracle.targets(replayed.belief, observations)
    return GroundTruth(belief, kind, entropy, np.asarray(parameter, float), mean, variance, pays)


def check_comparable(task: AbstractTask) -> Callable[[Any, Any], Array]:
    """Raise if a task has no exact belief; return its parameters as a function of the problem."""
    require_support(task, "oracle", verb="faithfulness")
    return require_support(task, "parameters", verb="faithfulness")


@eqx.filter_jit
def _replay_all(oracle: AbstractOracle, experience: Experience) -> Replay:
    return jax.vmap(lambda episode: replay(oracle, episode, read=oracle.read))(experience)


@eqx.filter_jit
def _means(agent: Agent, experience: Experience) -> tuple[Array, Array | None]:
    """Means of the agent's beliefs along a replayed history, and the heads' context."""

    def infer_episode(experience: Experience) -> tuple[Array, Array | None]:
        inputs, embedded = memory_inputs(agent, experience)
        inference = agent.posterior.infer(inputs)
        return inference.belief.mean, agent.head_context(embedded, inference.trace.hidden)

    return map_chunks(jax.vmap(infer_episode), experience, EPISODES_AT_ONCE)


@eqx.filter_jit
def _uncertainty(
    agent: Agent, experience: Experience, weight: Float[Array, "F P"]
) -> tuple[Float[Array, "E T"], Float[Array, "E T"], Float[Array, "E T P"]]:
    """Entropy, KL from the previous belief, and the variances of `z @ weight`."""

    def read_episode(experience: Experience) -> tuple[Array, Array, Array]:
        beliefs = agent.posterior.unroll(memory_inputs(agent, experience)[0])
        return beliefs.entropy(), agent.posterior.consecutive_kl(beliefs), projected_variance(beliefs, weight)

    return map_chunks(jax.vmap(read_episode), experience, EPISODES_AT_ONCE)


def _exact_measures(truth: GroundTruth) -> dict[str, float]:
    """Measures of the exact belief, without those that are 1 by definition."""
    belief, entropy = split_tasks(truth.belief), split_tasks(truth.entropy).test
    mean, variance = split_tasks(truth.mean).test, split_tasks(truth.variance).test
    error = split_tasks(truth.parameter).test[:, None] - mean
    return {
        "rank_agreement": rank_agreement(entropy, entropy),
        **_coverage_measures(error, np.sqrt(variance), variance),
        "drift": drift(belief, belief),
        "drift_in_errors": drift_in_errors(belief.test),
        "kl_late_over_early": late_over_early(
            divergence(belief.test[:, 1:], belief.test[:, :-1], truth.kind)
        ),
    }


def _mean_measures(
    agent: Agent, mean: np.ndarray, context: np.ndarray | None, experience: Experience, truth: GroundTruth
) -> dict[str, float]:
    """Measures of the mean: decoding, the martingale property of decoded beliefs, simulation."""
    features, belief = split_tasks(mean), split_tasks(truth.belief)
    exact, average = belief.test, belief.fit.mean(axis=0)
    linear = fit_ridge(features, belief)(features.test)
    logistic = fit_network(features, belief, truth.kind, hidden_sizes=())(features.test)
    network = fit_network(features, belief, truth.kind)
    decoded = Split(*map(network, features))
    uninformed = np.mean(divergence(exact, average, truth.kind))
    kl = {
        name: float(np.mean(divergence(exact, decoding, truth.kind)))
        for name, decoding in {"linear": logistic, "mlp": decoded.test}.items()
    }
    both = Split(*(np.concatenate(parts, axis=-1) for parts in zip(features, decoded, strict=True)))
    return {
        "linear_r2": r_squared(exact, linear, average.mean(axis=0)),
        "linear_r2_beyond_t": r_squared(exact, linear, average),
        "mlp_r2": r_squared(exact, decoded.test, average.mean(axis=0)),
        "mlp_r2_beyond_t": r_squared(exact, decoded.test, average),
        "linear_kl": kl["linear"],
        "mlp_kl": kl["mlp"],
        "uninformed_kl": float(uninformed),
        "drift": drift(decoded, both),
        "drift_in_errors": drift_in_errors(decoded.test),
        "exact_from_agent": _exact_from_agent(decoded.test, truth),
        "agent_from_exact": _agent_from_exact(agent, mean, context, experience, truth),
    }


def _exact_from_agent(decoded: Float[np.ndarray, "E T K"], truth: GroundTruth) -> float:
    """Simulation of the exact belief: reward predictions from the belief decoded from the agent.

    1 for the predictions of the exact belief, 0 for those of the average belief at each step.
    """
    belief, pays = split_tasks(truth.belief), split_tasks(truth.pays).test

    def output(belief: np.ndarray) -> np.ndarray:
        return np.take_along_axis(belief, pays, axis=-1)

    exact = output(belief.test)
    average = output(np.broadcast_to(belief.fit.mean(axis=0), belief.test.shape))
    loss = np.mean(divergence(exact, output(decoded), "chances"))
    return float(1 - loss / np.mean(divergence(exact, average, "chances")))


def _agent_from_exact(
    agent: Agent, mean: np.ndarray, context: np.ndarray | None, experience: Experience, truth: GroundTruth
) -> float:
    """Simulation of the agent: its policy at a state predicted from the exact belief and the observation.

    1 for the agent's own policy, 0 for the policy at the average state of each step.
    """
    sees_state = agent.policy_input == "belief_and_hidden"
    state = mean if context is None or not sees_state else np.concatenate([mean, context], axis=-1)
    exact = split_tasks(np.concatenate([truth.belief, np.asarray(experience.observation, float)], axis=-1))
    states = split_tasks(state)
    predicted = fit_network(exact, states, "numbers")(exact.test)
    other = None if context is None or sees_state else jnp.asarray(split_tasks(context).test)

    def policy(state: np.ndarray) -> np.ndarray:
        z, rest = jnp.split(jnp.asarray(state), [mean.shape[-1]], axis=-1)
        return np.asarray(_policy(agent, z, rest if sees_state else other), float)

    true = policy(states.test)
    average = np.broadcast_to(states.fit.mean(axis=0), states.test.shape)
    loss, baseline = (np.mean(divergence(true, policy(z), "exclusive")) for z in (predicted, average))
    return float(1 - loss / max(baseline, 1e-12))


@eqx.filter_jit
def _policy(agent: Agent, z: Array, context: Array | None) -> Array:
    return jax.nn.softmax(agent.policy_head(z, context))


def _spread_measures(
    agent: Agent, mean: np.ndarray, experience: Experience, truth: GroundTruth
) -> dict[str, float]:
    """Measures of the covariance: rank agreement, coverage, and the trend of the consecutive KL.

    A linear decoder maps the belief over features to one over the parameters.
    """
    features = split_tasks(mean)
    target = split_tasks(np.repeat(truth.parameter[:, None], mean.shape[1], axis=1))
    decoder = fit_ridge(features, target)
    held_out = jax.tree.map(lambda leaf: leaf[len(mean) - len(features.test) :], experience)
    uncertainty = _uncertainty(agent, held_out, jnp.asarray(decoder.weight))
    entropy, kl, variance = (np.asarray(array, float) for array in uncertainty)
    error = target.test - decoder(features.test)
    stddev = np.sqrt(np.maximum(variance, 0))
    return {
        "rank_agreement": rank_agreement(entropy, split_tasks(truth.entropy).test),
        **_coverage_measures(error, stddev, split_tasks(truth.variance).test),
        "kl_late_over_early": late_over_early(kl[:, 1:]),
    }


def _coverage_measures(error: np.ndarray, stddev: np.ndarray, exact_variance: np.ndarray) -> dict[str, float]:
    """Coverage where the exact belief is not yet certain, since a point has no 90% interval."""
    uncertain = exact_variance > 1e-9
    error, stddev = error[uncertain], stddev[uncertain]
    rates = coverage(error, stddev, LEVELS)
    named = {f"coverage_{level * 100:.0f}": rate for level, rate in zip(LEVELS, rates, strict=True)}
    return {**named, "error_over_spread": error_over_spread(error, stddev)}
