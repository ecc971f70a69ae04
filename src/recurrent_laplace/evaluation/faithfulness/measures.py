"""Measures of an approximate belief against the exact one, on arrays of tasks and steps.

Each docstring states the value that the exact belief attains.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.stats import norm

from recurrent_laplace.scoring.decoding import Kind, Split, fit_ridge

LEAST = 1e-6
"""Lower limit of probabilities, which keeps divergences finite."""
CONSTANT = 1e-9
"""Variation below which values count as constant."""


def r_squared(
    exact: Float[np.ndarray, "E T K"],
    decoded: Float[np.ndarray, "E T K"],
    baseline: Float[np.ndarray, "*lead K"],
) -> float:
    """Coefficient of determination of the decoded belief, relative to a baseline.

    1 for perfect decoding, 0 for the baseline.
    """
    return float(1 - np.sum((exact - decoded) ** 2) / np.sum((exact - baseline) ** 2))


def divergence(
    p: Float[np.ndarray, "... K"], q: Float[np.ndarray, "... K"], kind: Kind
) -> Float[np.ndarray, "..."]:
    """`KL(p || q)` in nats: categorical if `kind` is "exclusive", else summed over Bernoulli variables."""
    p, q = (np.clip(probabilities, LEAST, 1 - LEAST) for probabilities in (p, q))
    if kind == "exclusive":
        p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
        return np.sum(p * np.log(p / q), axis=-1)
    return np.sum(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)), axis=-1)


def rank_agreement(uncertainty: Float[np.ndarray, "E T"], exact: Float[np.ndarray, "E T"]) -> float:
    """Somers' D of an uncertainty with respect to the exact one, over pairs of tasks at the same step.

    Concordant minus discordant pairs, relative to the pairs whose exact uncertainties differ: 1 for the order
    of the exact belief, 0 for one that depends on t alone. Tasks that the exact belief does not tell apart
    have no order to be met; a correlation of ranks would charge any order of them as an error.
    """
    agreement = pairs = 0
    for approximate, true in zip(uncertainty.T, exact.T, strict=True):
        difference = true[:, None] - true
        order = np.sign(np.where(np.abs(difference) > CONSTANT, difference, 0))
        agreement += np.sum(order * np.sign(approximate[:, None] - approximate))
        pairs += np.sum(np.abs(order))
    return float(agreement / pairs) if pairs else np.nan


def coverage(
    error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."], levels: Sequence[float]
) -> list[float]:
    """Coverage of the central intervals of normals at each level; the levels for an exact Gaussian belief."""
    ratio = np.abs(error) / np.maximum(stddev, 1e-12)
    return [float(np.mean(ratio <= norm.ppf(0.5 + level / 2))) for level in levels]


def error_over_spread(error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."]) -> float:
    """Ratio of the RMS error to the RMS stddev of the belief.

    1 for an exact belief of any family; above 1 for an overconfident one.
    """
    return float(np.sqrt(np.mean(error**2) / np.maximum(np.mean(stddev**2), 1e-24)))


def drift(decoded: Split, features: Split) -> float:
    """R² of a linear prediction of a decoded belief's increments from the preceding features.

    0 for a martingale, whose increments cannot be predicted.
    """
    increments = Split(*(np.diff(part, axis=1) for part in decoded))
    preceding = Split(*(part[:, :-1] for part in features))
    if np.sum(increments.test**2) < CONSTANT:
        return 0.0
    return r_squared(increments.test, fit_ridge(preceding, increments)(preceding.test), np.zeros(1))


def drift_in_errors(decoded: Float[np.ndarray, "E T K"]) -> float:
    """RMS over entries of the mean change from the first step to the last, in standard errors.

    About 1 for a martingale; grows with the number of tasks where the mean change is not zero. Changes of
    single steps are rare and large, so that their means are far from normal.
    """
    change = decoded[:, -1] - decoded[:, 0]
    errors = change.std(axis=0, ddof=1) / np.sqrt(len(change))
    moving = errors > CONSTANT
    if not moving.any():
        return 0.0
    return float(np.sqrt(np.mean((change.mean(axis=0)[moving] / errors[moving]) ** 2)))


def late_over_early(kl: Float[np.ndarray, "E T"]) -> float:
    """Ratio of the mean over the last quarter of the steps to the first; near 0 if the belief converges."""
    quarter = max(kl.shape[1] // 4, 1)
    return float(kl[:, -quarter:].mean() / max(kl[:, :quarter].mean(), 1e-12))
