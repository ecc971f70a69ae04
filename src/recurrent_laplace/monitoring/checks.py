"""Checks of a belief that need no exact one: its predictions, and the order of its inputs."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_shape
from recurrent_laplace.monitoring.forecast import forecast_all, split_by_target
from recurrent_laplace.monitoring.verdict import LEVEL, Explained
from recurrent_laplace.posterior import AbstractLikelihood, AbstractPosterior, Predictor
from recurrent_laplace.posterior.targets import check_targets
from recurrent_laplace.scoring.prediction import (
    Martingale,
    binary_crps,
    coverage,
    distance_from_uniform,
    gaussian_crps,
    gaussian_pit,
    martingale,
    risk_coverage,
)

SMALLEST_CHANCE = 1e-6
"""Fraction by which expected targets are moved towards those of zero outputs: a chance of 0 has no logit."""
MOST_QUERIES = 32
"""Fixed queries whose predictions are followed in the martingale test."""


@dataclasses.dataclass(frozen=True)
class PredictionScores:
    """Scores of one-step predictions of a target under the belief before it."""

    crps: float
    """Mean continuous ranked probability score, relative to the best constant prediction; below 1 is better.

    For targets of 0 and 1 it is the Brier score.
    """
    coverage: float
    """Fraction of targets inside their 90% intervals; NaN unless they are Gaussian."""
    pit_distance: float
    """Distance of the probability integral transform from the uniform distribution; NaN unless Gaussian."""
    gain: float
    """Gain of withholding uncertain predictions: 1 for a perfect ranking by squared error, 0 for none."""

    def __str__(self) -> str:
        text = f"CRPS {self.crps:.2f} of that of a constant"
        if np.isfinite(self.coverage):
            text += f", {LEVEL:.0%} intervals cover {self.coverage:.0%}"
            text += f" (PIT {self.pit_distance:.2f} from uniform)"
        return f"{text}, withholding uncertain predictions has {self.gain:.0%} of the possible gain"


def score_predictions(
    likelihood: AbstractLikelihood,
    mean: Float[np.ndarray, "N K"],
    stddev: Float[np.ndarray, "N K"],
    target: Float[np.ndarray, "N K"],
) -> dict[str, PredictionScores]:
    """Scores of the predictions of each target."""
    columns = [split_by_target(likelihood, array) for array in (target - mean, mean, stddev, target)]
    found = {}
    for name, part in likelihood.named_parts:
        error, own_mean, own_stddev, own = (column[name] for column in columns)
        deviation, spread = own - own.mean(axis=0), own.std(axis=0)
        unit = np.where(spread > 0, spread, 1)
        # Each entry on its own: that some are harder to predict than others is no merit of the belief.
        gain = float(
            np.mean([risk_coverage(e**2, s).gain for e, s in zip(error.T, own_stddev.T, strict=True)])
        )
        covered = distance = float("nan")
        if part.is_gaussian:
            covered = coverage(error, own_stddev, LEVEL)
            distance = distance_from_uniform(gaussian_pit(error, own_stddev))
            varies = spread > 0
            crps = gaussian_crps(error, own_stddev)[:, varies] / spread[varies]
            reference = gaussian_crps(deviation, unit)[:, varies] / spread[varies]
        else:
            crps, reference = binary_crps(own_mean, own), binary_crps(own - deviation, own)
        relative = float(crps.mean() / reference.mean()) if reference.size and reference.mean() > 0 else 1.0
        found[name] = PredictionScores(relative, covered, distance, gain)
    return found


@dataclasses.dataclass(frozen=True)
class PredictionCheck:
    """Scores of the predictions of each target, and what they explain if there was a baseline."""

    scores: dict[str, PredictionScores]
    explained: dict[str, Explained]


def check_predictions(
    posterior: AbstractPosterior,
    likelihood: AbstractLikelihood,
    inputs: Float[Any, "N T D"],
    queries: Float[Any, "N T Q"],
    targets: Float[Any, "N T K"],
    baseline: Predictor | None = None,
) -> PredictionCheck:
    """Score the prediction of each target of the `likelihood` by the belief before it; NaN is left out.

    `baseline` is a predictor that sees the query alone.
    """
    check_shape("targets", targets, (*inputs.shape[:2], likelihood.size))
    check_targets(likelihood, targets)
    queries, targets = np.asarray(queries, float), np.asarray(targets, float)
    known = np.isfinite(queries[:, 1:]).all(axis=-1) & np.isfinite(targets[:, 1:]).all(axis=-1)
    if not known.any():
        raise ValueError("targets must have a query and a target that are both known; all have a NaN.")
    asked = np.concatenate([queries[:, 1:], queries[:, :1]], axis=1)
    mean, stddev = forecast_all(posterior, inputs, queries, np.nan_to_num(asked))
    mean, stddev, target = mean[:, :-1][known], stddev[:, :-1][known], targets[:, 1:][known]
    explained = {}
    if baseline is not None:
        alone = predict_alone(baseline, posterior.memory.feature_size, queries[:, 1:][known])
        constant = np.broadcast_to(target.mean(axis=0), target.shape)
        explained = explain(likelihood, target, constant=constant, alone=alone, full=mean, stddev=stddev)
    return PredictionCheck(score_predictions(likelihood, mean, stddev, target), explained)


def predict_alone(baseline: Predictor, features: int, query: Float[np.ndarray, "N Q"]) -> np.ndarray:
    """Expected targets of a predictor that sees the query alone."""
    asked = jnp.asarray(query, jnp.result_type(float))
    outputs = _outputs(baseline, jnp.zeros((len(asked), features), asked.dtype), asked)
    return np.asarray(baseline.likelihood.mean(outputs), float)


@eqx.filter_jit
def _outputs(predictor: Predictor, z: Array, query: Array) -> Array:
    # Heads of users take one sample.
    return jax.vmap(predictor)(z, query)


def explain(
    likelihood: AbstractLikelihood,
    target: Float[np.ndarray, "N K"],
    *,
    constant: Float[np.ndarray, "N K"],
    alone: Float[np.ndarray, "N K"],
    full: Float[np.ndarray, "N K"],
    stddev: Float[np.ndarray, "N K"],
) -> dict[str, Explained]:
    """Deviances of each target, given its expectations by a constant, the observation, and the belief."""
    columns = [split_by_target(likelihood, array) for array in (constant, alone, full)]
    targets, stddevs = (split_by_target(likelihood, array) for array in (target, stddev))
    found = {}
    for name, part in likelihood.named_parts:
        own = targets[name]
        covered, spread = float("nan"), np.ones(part.size)
        if part.is_gaussian:
            covered = coverage(own - columns[-1][name], stddevs[name], LEVEL)
            # Each entry in units of its standard deviation; one that does not vary counts for nothing.
            spread = own.std(axis=0)
            spread = np.where(spread > 0, spread, np.inf)
        means = [jnp.asarray(column[name] / spread) for column in columns]
        if not part.is_gaussian:
            neutral = part.mean(jnp.zeros(part.size))
            means = [mean + SMALLEST_CHANCE * (neutral - mean) for mean in means]
        scaled = jnp.asarray(own / spread)
        deviances = [float(jnp.mean(part.deviance(part.outputs_of(mean), scaled))) for mean in means]
        constant_alone, observation, belief = deviances
        found[name] = Explained(constant_alone, observation, belief, covered)
    return found


def order_sensitivity(
    posterior: AbstractPosterior, inputs: Float[Array, "N T D"], queries: Float[Array, "N T Q"] | None = None
) -> float:
    """Influence of the order of the inputs on the last mean: 0 if it has none, 1 if as much as another task.

    Inputs, with their queries, are shuffled within each task. The belief after an exchangeable history must
    not depend on their order.
    """
    steps = inputs.shape[1]
    order = jax.random.permutation(jax.random.key(0), steps)

    @eqx.filter_jit
    def last_means(posterior: AbstractPosterior, inputs: Array, queries: Array | None) -> Array:
        def of_task(task: tuple[Array, Any]) -> Array:
            inputs, queries = task
            return posterior.unroll(inputs, queries=queries).mean[-1]

        return jax.lax.map(of_task, (inputs, queries))

    shuffled = None if queries is None else queries[:, order]
    means = np.asarray(last_means(posterior, inputs, queries), float)
    others = np.asarray(last_means(posterior, inputs[:, order], shuffled), float)
    # Two independent draws differ by twice their variance.
    between = 2 * means.var(axis=0).sum() * len(means) / (len(means) - 1)
    return float(np.mean(np.sum((means - others) ** 2, axis=-1)) / between) if between > 0 else 0.0


def follow_predictions(
    posterior: AbstractPosterior, inputs: Float[Any, "N T D"], queries: Float[Any, "N T Q"]
) -> Martingale:
    """Martingale statistics of the predictions of fixed queries, while the belief takes in each task.

    The queries are sampled from those that the inputs answer.
    """
    known = np.asarray(queries, float).reshape(-1, np.shape(queries)[-1])
    known = known[np.isfinite(known).all(axis=-1)]
    fixed = np.random.default_rng(0).permutation(known)[:MOST_QUERIES]

    @eqx.filter_jit
    def predict(posterior: AbstractPosterior, inputs: Array, queries: Array, fixed: Array) -> Any:
        def of_task(task: tuple[Array, Array]) -> tuple[Array, Array]:
            inputs, queries = task
            beliefs = posterior.unroll(inputs, queries=queries)

            def of_query(query: Array) -> tuple[Array, Array]:
                predictive = posterior.predict(beliefs, jnp.broadcast_to(query, (len(inputs), len(query))))
                return predictive.mean(), predictive.variance()

            return jax.vmap(of_query)(fixed)

        return jax.lax.map(of_task, (inputs, queries))

    arrays = (jnp.asarray(array, posterior.memory.dtype) for array in (inputs, queries, fixed))
    mean, variance = (np.moveaxis(np.asarray(a, float), 2, 1) for a in predict(posterior, *arrays))
    flat = (*mean.shape[:2], -1)
    return martingale(mean.reshape(flat), variance.reshape(flat))
