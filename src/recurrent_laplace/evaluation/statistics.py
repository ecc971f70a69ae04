"""Means, and how sure one can be of them."""

from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.99


class Interval(NamedTuple):
    """A mean with a two-sided interval; both ends are NaN where one unit tells nothing of the spread."""

    mean: float
    low: float
    high: float
    units: int


def mean_interval(values: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Mean of independent units with Student's interval; NaNs are units without a value.

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


def ratio_interval(above: np.ndarray, below: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Ratio of the means of paired units, with the interval of its linearisation; NaN over nothing.

    ```python
    ratio_interval(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0])).mean  # 0.5
    ```
    """
    above, below = np.asarray(above, dtype=float), np.asarray(below, dtype=float)
    known = ~(np.isnan(above) | np.isnan(below))
    above, below = above[known], below[known]
    if len(below) == 0 or below.mean() <= 0:
        return Interval(np.nan, np.nan, np.nan, 0)
    ratio = above.mean() / below.mean()
    return mean_interval(ratio + (above - ratio * below) / below.mean(), confidence)


def slope_interval(x: np.ndarray, y: np.ndarray, confidence: float = CONFIDENCE) -> Interval:
    """Slope of the least-squares line through points, with Student's interval."""
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
