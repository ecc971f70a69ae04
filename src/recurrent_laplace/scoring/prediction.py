"""Scores of predictive distributions against what happened; they need no exact belief."""

from typing import NamedTuple

import numpy as np
import scipy.stats
from jaxtyping import Float

SQRT_PI = np.sqrt(np.pi)


def gaussian_crps(
    error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Continuous ranked probability score of Gaussian predictions, in the unit of the target.

    Lower is better; its limit for a stddev of 0 is the absolute error (Gneiting and Raftery, 2007).
    """
    z = error / stddev
    density, mass = scipy.stats.norm.pdf(z), scipy.stats.norm.cdf(z)
    return stddev * (z * (2 * mass - 1) + 2 * density - 1 / SQRT_PI)


def gaussian_pit(
    error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Probability integral transform of Gaussian predictions: uniform if they are calibrated."""
    return scipy.stats.norm.cdf(error / stddev)


def distance_from_uniform(values: Float[np.ndarray, "..."]) -> float:
    """Kolmogorov-Smirnov distance between the distribution of values and the uniform one on [0, 1]."""
    return float(scipy.stats.kstest(np.ravel(values), "uniform").statistic)


def coverage(error: Float[np.ndarray, "..."], stddev: Float[np.ndarray, "..."], level: float) -> float:
    """Fraction of targets inside the central Gaussian interval of a level."""
    return float(np.mean(np.abs(error) <= scipy.stats.norm.ppf((1 + level) / 2) * stddev))


class RiskCoverage(NamedTuple):
    """Risk of the most certain predictions, and how much of the possible gain their ranking has.

    - `fraction`: fractions of the predictions that are kept, the most certain first;
    - `risk`: their mean loss;
    - `gain`: 1 if uncertainty ranks predictions by their loss, 0 if it ranks them at random, by the areas
      under the curves.
    """

    fraction: Float[np.ndarray, " N"]
    risk: Float[np.ndarray, " N"]
    gain: float


def risk_coverage(loss: Float[np.ndarray, "..."], uncertainty: Float[np.ndarray, "..."]) -> RiskCoverage:
    """Risk-coverage curve of predictions that may be withheld (El-Yaniv and Wiener, 2010)."""
    loss, uncertainty = np.ravel(loss), np.ravel(uncertainty)
    count = 1 + np.arange(len(loss))
    # Ties are resolved at random, with a fixed seed: equal uncertainties rank nothing.
    ties = np.random.default_rng(0).permutation(len(loss))
    risk = np.cumsum(loss[np.lexsort((ties, uncertainty))]) / count
    best = np.cumsum(np.sort(loss)) / count
    possible = loss.mean() - best.mean()
    gain = (loss.mean() - risk.mean()) / possible if possible > 0 else 0.0
    return RiskCoverage(count / len(loss), risk, float(gain))
