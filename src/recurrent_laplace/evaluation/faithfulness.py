"""Measures of a belief against the exact one, on arrays of tasks and steps.

Each has a value that the exact belief itself reaches: its docstring says which.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.stats import norm, spearmanr

from recurrent_laplace.evaluation.decoding import Kind, Split, fit_ridge
from recurrent_laplace.gaussians import AbstractBelief

LEAST = 1e-6
"""Smaller probabilities count as this, so that divergences are finite."""
CONSTANT = 1e-9
"""What varies less than this does not vary."""


def r_squared(
    exact: Float[np.ndarray, "E T K"],
    decoded: Float[np.ndarray, "E T K"],
    baseline: Float[np.ndarray, "*lead K"],
) -> float:
    """Share of the squared distance of the exact belief from a baseline that decoding explains.

    1 where all is decoded, 0 where the baseline does as well.
    """
    return float(1 - np.sum((exact - decoded) ** 2) / np.sum((exact - baseline) ** 2))


def divergence(
    p: Float[np.ndarray, "... K"], q: Float[np.ndarray, "... K"], kind: Kind
) -> Float[np.ndarray, "..."]:
    """`KL(p || q)` in nats: of one draw from probabilities that exclude each other, else of one from each."""
    p, q = (np.clip(each, LEAST, 1 - LEAST) for each in (p, q))
    if kind == "exclusive":
        p, q = (each / each.sum(axis=-1, keepdims=True) for each in (p, q))
        return np.sum(p * np.log(p / q), axis=-1)
    return np.sum(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)), axis=-1)


def rank_agreement(entropy: Float[np.ndarray, "E T"], exact: Float[np.ndarray, "E T"]) -> float:
    """Spearman's correlation of entropies over tasks at each step, averaged over steps. At most 1.

    Within a step, t is the same for all, so a clock has no agreement. Steps at which all tasks are alike
    in the exact entropy say nothing and are left out; where only the belief's are alike, it agrees in
    nothing: 0.
    """
    correlations = []
    for own, true in zip(entropy.T, exact.T, strict=True):
        if np.ptp(true) > CONSTANT:
            correlations.append(spearmanr(own, true)[0] if np.ptp(own) > CONSTANT else 0.0)
    return float(np.mean(correlations)) if correlations else np.nan


def projected_variance(beliefs: AbstractBelief, weight: Float[Array, "F P"]) -> Float[Array, "*lead P"]:
    """Variances of `z @ weight` under beliefs over z."""
    covariance = beliefs.covariance()
    if covariance.ndim == beliefs.mean.ndim:
        return covariance @ weight**2
    return jnp.einsum("fp,...fg,gp->...p", weight, covariance, weight)


def coverage(
    error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."], levels: Sequence[float]
) -> list[float]:
    """How often an error is within the central interval of a normal with that deviation, at each level.

    The levels themselves for a Gaussian belief that is exact.
    """
    ratio = np.abs(error) / np.maximum(stddev, 1e-12)
    return [float(np.mean(ratio <= norm.ppf(0.5 + level / 2))) for level in levels]


def error_over_spread(error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."]) -> float:
    """Root of the mean squared error over that of the mean variance that is claimed.

    1 for an exact belief of any shape; above 1 it is overconfident.
    """
    return float(np.sqrt(np.mean(error**2) / np.maximum(np.mean(stddev**2), 1e-24)))


def drift(decoded: Split, features: Split) -> float:
    """Share of the increments of a decoded belief that a linear map of the features before them predicts.

    0 for a martingale: what is believed now says nothing of where it goes.
    """
    steps = Split(*(np.diff(part, axis=1) for part in decoded))
    before = Split(*(part[:, :-1] for part in features))
    if np.sum(steps.test**2) < CONSTANT:
        return 0.0
    return r_squared(steps.test, fit_ridge(before, steps)(before.test), np.zeros(1))


def drift_in_errors(decoded: Float[np.ndarray, "E T K"]) -> float:
    """Mean change of each entry from the first step to the last in standard errors, root mean square.

    About 1 for a martingale; grows with the number of tasks where the mean change is not zero. Not step by
    step: single steps are rare and large, and such means are far from normal.
    """
    change = decoded[:, -1] - decoded[:, 0]
    errors = change.std(axis=0, ddof=1) / np.sqrt(len(change))
    moving = errors > CONSTANT
    if not moving.any():
        return 0.0
    return float(np.sqrt(np.mean((change.mean(axis=0)[moving] / errors[moving]) ** 2)))


def late_over_early(kl: Float[np.ndarray, "E T"]) -> float:
    """Mean of the last quarter of the steps over that of the first: near 0 where a belief settles."""
    quarter = max(kl.shape[1] // 4, 1)
    return float(kl[:, -quarter:].mean() / max(kl[:, :quarter].mean(), 1e-12))
