"""Means, ratios and slopes with confidence intervals."""

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

CONFIDENCE = 0.99
"""Default confidence level."""

LEAST_LEVEL = 1e-100
"""Levels of tests below this count as zero."""

State = Literal["holds", "fails", "open"]
"""Whether a confidence interval lies inside a bound, outside of it, or across."""


class Interval(NamedTuple):
    """Mean with a two-sided confidence interval, whose ends are NaN for a single unit."""

    mean: float
    low: float
    high: float
    units: int


def mean_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Mean of independent units with Student's t interval; NaN values are ignored.

    ```python
    mean_interval(np.array([1.0, 2.0, 3.0]))
    ```
    """
    values = np.asarray(values, dtype=float)
    values = values[~np.isnan(values)]
    count = len(values)
    if count == 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    mean = float(values.mean())
    if count == 1:
        return Interval(mean, np.nan, np.nan, 1)
    half = stdtrit(count - 1, 0.5 + confidence / 2) * values.std(ddof=1) / np.sqrt(count)
    return Interval(mean, mean - float(half), mean + float(half), count)


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, confidence: float = CONFIDENCE
) -> Interval:
    """Ratio of the means of paired units with a delta-method interval; NaN over a mean that is not positive.

    ```python
    ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])).mean  # 0.5
    ```
    """
    numerator, denominator = np.asarray(numerator, dtype=float), np.asarray(denominator, dtype=float)
    known = ~(np.isnan(numerator) | np.isnan(denominator))
    numerator, denominator = numerator[known], denominator[known]
    if len(denominator) == 0 or denominator.mean() <= 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    ratio = numerator.mean() / denominator.mean()
    return mean_interval(ratio + (numerator - ratio * denominator) / denominator.mean(), confidence)


def slope_interval(x: np.ndarray, y: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Slope of the least-squares line with Student's t interval."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(x) < 3:
        raise ValueError(f"a slope with an interval needs at least 3 points; got {len(x)}.")
    centred = x - x.mean()
    spread = np.sum(centred**2)
    slope = float(np.sum(centred * y) / spread)
    residual = y - y.mean() - slope * centred
    stderr = np.sqrt(np.sum(residual**2) / (len(x) - 2) / spread)
    half = float(stdtrit(len(x) - 2, 0.5 + confidence / 2) * stderr)
    return Interval(slope, slope - half, slope + half, len(x))


class Estimate(NamedTuple):
    """Mean over paired seeds and tasks, with the standard errors over each."""

    mean: float
    seed_error: float
    task_error: float
    seeds: int
    tasks: int

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Two-sided interval: the half-widths of Student's intervals over seeds and tasks in quadrature."""
        half = self._half(0.5 - confidence / 2)
        return Interval(self.mean, self.mean - half, self.mean + half, self.seeds)

    def p_above(self, edge: float) -> float:
        """One-sided p-value against the hypothesis that the true mean is at most `edge`."""
        return self._tail(self.mean - edge)

    def p_below(self, edge: float) -> float:
        """One-sided p-value against the hypothesis that the true mean is at least `edge`."""
        return self._tail(edge - self.mean)

    def _half(self, level: float) -> float:
        """Distance from the mean to the end of the one-sided interval of a level."""
        seeds = stdtrit(self.seeds - 1, level) * self.seed_error
        tasks = stdtrit(self.tasks - 1, level) * self.task_error if self.task_error else 0.0
        return float(np.hypot(seeds, tasks))

    def _tail(self, distance: float) -> float:
        """Level at which the end of the one-sided interval is `distance` below the mean."""
        if distance <= 0:
            return 1 - self._tail(-distance) if distance < 0 else 0.5 if self.seed_error else 1.0
        if self._half(LEAST_LEVEL) <= distance:
            return 0.0
        if self.task_error == 0:
            return float(stdtr(self.seeds - 1, -distance / self.seed_error))
        # Imported late, since it takes a tenth of a second.
        from scipy.optimize import brentq

        excess = lambda logarithm: self._half(np.exp(logarithm)) - distance  # noqa: E731
        logarithm: Any = brentq(excess, np.log(LEAST_LEVEL), np.log(0.5), xtol=1e-10)
        return float(np.exp(logarithm))


def estimate(values: np.ndarray) -> Estimate:
    """Estimate the mean of values by seed and task, where all seeds have the same tasks.

    Seeds and tasks are both random. Half-widths are added in quadrature, not variances with Satterthwaite's
    degrees of freedom, which exceed the level by far in the tails that few seeds and several comparisons need
    (docs/lab/verdicts.md). With one task, it is Student's t over seeds.

    ```python
    estimate(np.array([[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]])).interval(0.99)
    ```
    """
    seeds, tasks = values.shape
    if seeds < 2:
        raise ValueError(f"an estimate needs at least 2 seeds; got {seeds}.")
    by_seed, by_task = values.mean(axis=1), values.mean(axis=0)
    seed_error = by_seed.std(ddof=1) / np.sqrt(seeds)
    task_error = by_task.std(ddof=1) / np.sqrt(tasks) if tasks > 1 else 0.0
    return Estimate(float(values.mean()), float(seed_error), float(task_error), seeds, tasks)


def holm(p_values: np.ndarray, level: float) -> np.ndarray:
    """Whether each hypothesis is rejected by Holm's procedure, at a family-wise error rate of `level`.

    ```python
    holm(np.array([0.01, 0.04]), 0.05)  # both
    ```
    """
    order = np.argsort(p_values)
    passed = p_values[order] < level / np.arange(len(order), 0, -1)
    rejected = np.zeros(len(order), bool)
    rejected[order] = np.cumprod(passed).astype(bool)
    return rejected


def iqm_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Interquartile mean of independent units with a bootstrap percentile interval.

    ```python
    iqm_interval(np.array([0.0, 1.0, 2.0, 50.0])).mean  # 1.5
    ```
    """
    # Imported late, since it takes most of a second.
    from scipy.stats import trim_mean

    values = np.asarray(values, dtype=float)
    iqm = float(trim_mean(values, 0.25))
    if len(values) < 2 or np.ptp(values) == 0:
        return Interval(iqm, iqm, iqm, len(values))
    resamples = values[np.random.default_rng(0).integers(0, len(values), (2000, len(values)))]
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    low, high = np.quantile(trim_mean(resamples, 0.25, axis=1), tails)
    return Interval(iqm, float(low), float(high), len(values))


def all_hold(states: Iterable[State]) -> State:
    """Conjunction of states: `fails` if one fails, else `open` if one is open."""
    states = set(states)
    return "fails" if "fails" in states else "open" if "open" in states else "holds"
