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


def binary_crps(
    chance: Float[np.ndarray, "..."], target: Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Continuous ranked probability score of the chance of a 1: the Brier score."""
    return (target - chance) ** 2


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


class Martingale(NamedTuple):
    """Statistics of the predictive means of fixed quantities, which are martingales under exact Bayes.

    - `drift`: mean change of the predictions from the first to the last step over tasks, in its standard
      errors; of several quantities, the root mean square. About 1 for a martingale.
    - `reversal`: slope of the next change on the last one: 0 for a martingale, negative if predictions are
      moved too far and come back, positive if they follow too slowly.
    - `movement`: mean sum of squared changes, divided by the mean reduction of the predictive variance: 1 for
      exact Bayes, above 1 if predictions move more than their uncertainty allows (Augenblick and Rabin,
      2021). NaN if the variance is not reduced.
    """

    drift: float
    reversal: float
    movement: float


def martingale(mean: Float[np.ndarray, "N T Q"], variance: Float[np.ndarray, "N T Q"]) -> Martingale:
    """Martingale statistics of the predictive means and variances of Q fixed quantities in N tasks."""
    changes = np.diff(mean, axis=1)
    total = changes.sum(axis=1)
    error = total.std(axis=0, ddof=1) / np.sqrt(len(total))
    moves = error > 0
    drift = np.sqrt(np.mean((total.mean(axis=0)[moves] / error[moves]) ** 2)) if moves.any() else 0.0
    before, after = changes[:, :-1], changes[:, 1:]
    power = np.sum(before**2)
    reversal = np.sum(before * after) / power if power > 0 else 0.0
    reduction = np.mean(variance[:, 0] - variance[:, -1])
    movement = np.mean(np.sum(changes**2, axis=1)) / reduction if reduction > 0 else float("nan")
    return Martingale(float(drift), float(reversal), float(movement))
