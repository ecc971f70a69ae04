"""Checks of a belief that need no exact one: its predictions, and the order of its inputs."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_shape
from recurrent_laplace.posterior import AbstractLikelihood, AbstractPosterior
from recurrent_laplace.posterior.targets import check_targets
from recurrent_laplace.scoring.prediction import (
    coverage,
    distance_from_uniform,
    gaussian_crps,
    gaussian_pit,
    risk_coverage,
)

LEVEL = 0.9
"""Nominal level of the intervals."""


@dataclasses.dataclass(frozen=True)
class PredictionScores:
    """Scores of one-step predictions of a target under the belief before it.

    Scores of Gaussian predictions are NaN for other targets.
    """

    crps: float
    """Mean continuous ranked probability score, relative to the best constant Gaussian; below 1 is better."""
    coverage: float
    """Fraction of targets inside their 90% intervals."""
    pit_distance: float
    """Distance of the probability integral transform from the uniform distribution, at most 1."""
    gain: float
    """Gain of withholding uncertain predictions: 1 for a perfect ranking by squared error, 0 for none."""

    def __str__(self) -> str:
        text = f"withholding uncertain predictions has {self.gain:.0%} of the possible gain"
        if np.isfinite(self.crps):
            text = (
                f"CRPS {self.crps:.2f} of that of a constant, {LEVEL:.0%} intervals cover "
                f"{self.coverage:.0%} (PIT {self.pit_distance:.2f} from uniform), {text}"
            )
        return text


def check_predictions(
    posterior: AbstractPosterior,
    likelihood: AbstractLikelihood,
    inputs: Float[Array, "N T D"],
    queries: Float[Array, "N T Q"],
    targets: Float[Array, "N T K"],
) -> dict[str, PredictionScores]:
    """Score the prediction of each target of the `likelihood` by the belief before it; NaN is left out."""
    check_shape("targets", targets, (*inputs.shape[:2], likelihood.size))
    check_targets(likelihood, targets)

    @eqx.filter_jit
    def predict(posterior: AbstractPosterior, inputs: Array, queries: Array) -> tuple[Array, Array]:
        def of_task(task: tuple[Array, Array]) -> tuple[Array, Array]:
            inputs, queries = task
            beliefs = posterior.unroll(inputs, queries=queries)
            predictive = posterior.predict(beliefs[:-1], queries[1:])
            return predictive.mean(), predictive.stddev()

        return jax.lax.map(of_task, (inputs, queries))

    mean, stddev = predict(posterior, jnp.asarray(inputs), jnp.asarray(queries))
    known = np.isfinite(np.asarray(queries)[:, 1:]).all(-1) & np.isfinite(np.asarray(targets)[:, 1:]).all(-1)
    error = (np.asarray(targets, float)[:, 1:] - np.asarray(mean, float))[known]
    target, stddev = np.asarray(targets, float)[:, 1:][known], np.asarray(stddev, float)[known]
    found, start = {}, 0
    for name, part in likelihood.named_parts:
        own = slice(start, start + part.size)
        start += part.size
        gain = risk_coverage(error[:, own] ** 2, stddev[:, own]).gain
        scores = dict.fromkeys(("crps", "coverage", "pit_distance"), float("nan"))
        if part.is_gaussian:
            deviation, spread = target[:, own] - target[:, own].mean(0), target[:, own].std(0)
            reference = gaussian_crps(deviation, np.where(spread > 0, spread, 1)).mean()
            scores = {
                "crps": float(gaussian_crps(error[:, own], stddev[:, own]).mean() / reference),
                "coverage": coverage(error[:, own], stddev[:, own], LEVEL),
                "pit_distance": distance_from_uniform(gaussian_pit(error[:, own], stddev[:, own])),
            }
        found[name] = PredictionScores(**scores, gain=gain)
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
