"""Means, ratios and slopes with confidence intervals."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.99
"""Default confidence level."""

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


def all_hold(states: Iterable[State]) -> State:
    """Conjunction of states: `fails` if one fails, else `open` if one is open."""
    states = set(states)
    return "fails" if "fails" in states else "open" if "open" in states else "holds"
