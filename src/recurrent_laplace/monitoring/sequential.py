"""Sequential test statistics of signals (CUSUM, Shiryaev-Roberts), fitted on clean episodes."""

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from recurrent_laplace.errors import check_choice, check_number

NEIGHBOURS = 2
"""Steps before and after each step that are pooled in its clean distribution."""
VALUE_BINS = 12
"""Quantile bins of the agent's value."""
TAIL_LEVELS = np.concatenate([np.linspace(0, 0.8, 17), 1 - np.geomspace(0.18, 0.004, 16)])
"""Levels of the clean quantiles; beyond the last, tails are extrapolated exponentially."""
TAIL = 6
"""Number of last levels that determine the slope of the tail."""
CONSTANT = 1e-9
"""Standard deviation below which a signal counts as constant."""
MOST_SURPRISE = 20.0
"""Upper limit of the surprise of one signal at one step, in nats, for robustness to outliers."""
TILTS = (0.3, 0.6, 0.9)
"""Exponential tilts of the alternatives, relative to the largest for which clean surprise is normalizable:
from a small lasting change to a single very unlikely step."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """Parameters of an alarm, estimated from clean episodes."""

    signals: tuple[str, ...]
    statistic: str
    false_alarm_rate: float
    given: tuple[str, ...]
    """Conditioning variable of each signal: `"step"` or `"value"`."""
    scales: Float[np.ndarray, " K"]
    """Standard deviation of each signal in clean episodes."""
    edges: Float[np.ndarray, " C"]
    """Edges of the bins of the agent's value."""
    tails: tuple[Float[np.ndarray, "_ Q"], ...]
    """Quantiles of each scaled signal at `TAIL_LEVELS`, one row per step or bin."""
    tilts: Float[np.ndarray, "K L"]
    """Exponential tilts of each signal's surprise, for each of `TILTS`."""
    log_normalizers: Float[np.ndarray, "K L"]
    """Log normalizers of the tilted distributions."""
    peaks: Float[np.ndarray, "K Q"]
    """Quantiles of the maximum of each signal's statistic over a clean episode."""
    threshold: float = 1.0
    """Threshold of the score."""
    discount: float = 0.9
    """Discount of the agent's value."""
    source: str = ""
    """Hash of the posterior that was read."""
    checked_episodes: int = 0
    """Number of held-out clean episodes."""
    checked_false_alarms: int = 0
    """False alarms on the held-out episodes."""


def fit_tables(
    tables: list[Float[np.ndarray, "_ K1"]],
    signals: tuple[str, ...],
    given: tuple[str, ...],
    *,
    false_alarm_rate: float,
    statistic: str = "cusum",
) -> Fit:
    """Fit an alarm to tables of signals with one row per step; larger values indicate a shift.

    The last column is the agent's value at the previous step, NaN where there is none. Tables with other
    non-finite numbers are excluded with a warning.
    """
    check_number("false_alarm_rate", false_alarm_rate, above=0)
    if false_alarm_rate >= 1:
        raise ValueError(f"false_alarm_rate must be below 1; got {false_alarm_rate:g}.")
    check_choice("statistic", statistic, ("cusum", "shiryaev-roberts"))
    needed = 3 * math.ceil(1 / false_alarm_rate)
    count, tables = len(tables), [table for table in tables if np.isfinite(table[:, :-1]).all()]
    excluded = f"{count - len(tables)} of {count} episodes have inputs or signals that are not finite"
    if len(tables) < needed:
        got = f"{len(tables)}: {excluded}" if len(tables) < count else f"{count}"
        raise ValueError(
            f"episodes must be at least {needed} for a false-alarm rate of {false_alarm_rate:g}; got {got}."
        )
    if len(tables) < count:
        warnings.warn(f"{excluded}: the alarm is fitted without them.", stacklevel=3)
    for_signals, for_threshold, held_out = (tables[start::3] for start in range(3))
    pooled = np.concatenate(for_signals)
    scales = pooled[:, :-1].std(axis=0)
    for name, scale in zip(signals, scales, strict=True):
        if scale < CONSTANT:
            raise ValueError(f"{name} is constant in all clean episodes: it cannot be a signal.")
    values = pooled[:, -1]
    values = values[np.isfinite(values)]
    levels = np.linspace(0, 1, VALUE_BINS + 1)[1:-1]
    edges = np.quantile(values, levels) if len(values) else np.zeros(0)
    fit = Fit(
        signals=signals,
        statistic=statistic,
        false_alarm_rate=float(false_alarm_rate),
        given=given,
        scales=scales,
        edges=edges,
        tails=tuple(
            _tails_by_value([table[:, [k, -1]] for table in for_signals], scales[k], edges)
            if condition == "value"
            else _tails_by_step([table[:, k] / scales[k] for table in for_signals])
            for k, condition in enumerate(given)
        ),
        tilts=np.zeros((len(signals), len(TILTS))),
        log_normalizers=np.zeros((len(signals), len(TILTS))),
        peaks=np.zeros((len(signals), len(TAIL_LEVELS))),
    )
    stacks = _stacked(for_signals)
    clean = np.concatenate([surprises(fit, stack).reshape(-1, len(signals)) for stack in stacks])
    high = np.quantile(clean, 0.95, axis=0)
    excess = [np.mean(column[column >= least] - least) for column, least in zip(clean.T, high, strict=True)]
    tilts = np.array(TILTS) / np.maximum(excess, 1e-6)[:, None]
    normalizers = logsumexp(tilts * clean[..., None], axis=0) - np.log(len(clean))
    fit = dataclasses.replace(fit, tilts=tilts, log_normalizers=normalizers)
    peaks = np.concatenate([_statistics(fit, stack).max(axis=1) for stack in stacks])
    fit = dataclasses.replace(fit, peaks=np.quantile(peaks, TAIL_LEVELS, axis=0).T)
    highest = np.sort(_highest(fit, for_threshold))
    # The smallest threshold that a new clean episode exceeds with at most this probability.
    rank = math.ceil((len(highest) + 1) * (1 - false_alarm_rate)) - 1
    threshold = max(float(highest[min(rank, len(highest) - 1)]), 1e-6)
    fit = dataclasses.replace(fit, threshold=threshold)
    alarms = int(np.sum(_highest(fit, held_out) > threshold))
    return dataclasses.replace(fit, checked_episodes=len(held_out), checked_false_alarms=alarms)


def _stacked(tables: list[Float[np.ndarray, "_ K1"]]) -> list[Float[np.ndarray, "E T K1"]]:
    """Stack tables of equal length, for vectorized computation."""
    lengths = sorted({len(table) for table in tables})
    return [np.stack([table for table in tables if len(table) == length]) for length in lengths]


def _highest(fit: Fit, tables: list[Float[np.ndarray, "_ K1"]]) -> Float[np.ndarray, " E"]:
    """Maximum score of each episode, in no particular order."""
    return np.concatenate([scores(fit, stack).max(axis=1) for stack in _stacked(tables)])


def _tails_by_step(values: list[Float[np.ndarray, " _"]]) -> Float[np.ndarray, "T Q"]:
    """Quantiles at each step, pooled with its neighbours."""
    # Steps beyond the median length have too few values, and use those of the last row.
    lengths = sorted(map(len, values))
    pooled = [
        np.concatenate([episode[max(0, t - NEIGHBOURS) : t + NEIGHBOURS + 1] for episode in values])
        for t in range(lengths[len(lengths) // 2])
    ]
    return np.stack([np.quantile(near, TAIL_LEVELS) for near in pooled])


def _tails_by_value(
    tables: list[Float[np.ndarray, "_ 2"]], scale: float, edges: Float[np.ndarray, " C"]
) -> Float[np.ndarray, "C1 Q"]:
    """Quantiles for each bin of the previous value."""
    signal, value = np.concatenate(tables).T
    known = np.isfinite(value)
    bins = np.digitize(value[known], edges)
    signal = signal[known] / scale
    by_bin = [signal[bins == index] for index in range(len(edges) + 1)]
    # Repeated values can leave bins empty, which then get the quantiles of all values.
    return np.stack([np.quantile(inside if len(inside) else signal, TAIL_LEVELS) for inside in by_bin])


def surprises(
    fit: Fit, table: Float[np.ndarray, "*lead K1"], steps: Any = None
) -> Float[np.ndarray, "*lead K"]:
    """Surprise of each signal: minus the log of its tail probability in clean episodes.

    The surprise of a non-finite signal is NaN, which counts as no evidence. `steps` are the steps of the
    rows, from 1; by default the last of the leading axes is time.
    """
    steps = np.arange(1, table.shape[-2] + 1) if steps is None else np.asarray(steps)
    value = table[..., -1]
    columns = []
    for k, condition in enumerate(fit.given):
        row = np.digitize(value, fit.edges) if condition == "value" else steps - 1
        tails = fit.tails[k][np.clip(row, 0, len(fit.tails[k]) - 1)]
        surprise = _tail_surprise(table[..., k] / fit.scales[k], tails)
        # Without a previous value there is no reference distribution.
        columns.append(np.where(np.isnan(value), 0.0, surprise) if condition == "value" else surprise)
    return np.where(np.isfinite(table[..., :-1]), np.stack(columns, axis=-1), np.nan)


def _tail_surprise(values: np.ndarray, quantiles: Float[np.ndarray, "... Q"]) -> np.ndarray:
    """Minus the log of the fraction of clean values that are at least as large."""
    surprises = -np.log1p(-TAIL_LEVELS)
    # Interpolate linearly between the two neighbouring quantiles.
    rank = np.sum(values[..., None] >= quantiles, axis=-1)
    lower, upper = np.clip(rank - 1, 0, None), np.clip(rank, None, len(TAIL_LEVELS) - 1)
    low, high = (_take(quantiles, index, values.shape) for index in (lower, upper))
    with np.errstate(invalid="ignore"):
        weight = np.clip((values - low) / np.maximum(high - low, 1e-9), 0.0, 1.0)
    inside = surprises[lower] + weight * (surprises[upper] - surprises[lower])
    # Beyond the last quantile, extrapolate with the slope of the last levels.
    span = np.maximum(quantiles[..., -1] - quantiles[..., -TAIL], 1e-3)
    slope = (surprises[-1] - surprises[-TAIL]) / span
    beyond = np.maximum(values - quantiles[..., -1], 0.0) * slope
    return np.minimum(inside + beyond, MOST_SURPRISE)


def _take(quantiles: np.ndarray, index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    broadcast = np.broadcast_to(quantiles, (*shape, quantiles.shape[-1]))
    return np.take_along_axis(broadcast, index[..., None], axis=-1)[..., 0]


def log_ratios(fit: Fit, table: np.ndarray, steps: Any = None) -> Float[np.ndarray, "*lead K"]:
    """Log-likelihood ratio of each signal: shifted against clean.

    Under a shift, the surprise has a uniform mixture of exponentially tilted distributions.
    """
    tilted = fit.tilts * surprises(fit, table, steps)[..., None] - fit.log_normalizers
    return logsumexp(tilted, axis=-1) - np.log(len(TILTS))


def advance(statistic: str, previous: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """Log of the sequential statistic after one more step; a NaN ratio leaves it unchanged."""
    past = np.maximum(previous, 0.0) if statistic == "cusum" else np.logaddexp(previous, 0.0)
    return np.where(np.isnan(ratio), previous, past + ratio)


def scores(fit: Fit, table: Float[np.ndarray, "*lead T K1"]) -> Float[np.ndarray, "*lead T"]:
    """Score at each step of episodes of one length; an alarm where it exceeds `fit.threshold`.

    The score is infinite where a signal is not finite.
    """
    total = evidence(fit, _statistics(fit, table)).sum(axis=-1)
    return np.where(np.isfinite(table[..., :-1]).all(axis=-1), total, np.inf)


def _statistics(fit: Fit, table: Float[np.ndarray, "*lead T K1"]) -> Float[np.ndarray, "*lead T K"]:
    """Log of each signal's statistic along episodes."""
    ratios = log_ratios(fit, table)
    out = np.empty_like(ratios)
    statistic = np.full(ratios.shape[:-2] + ratios.shape[-1:], -np.inf)
    for t in range(ratios.shape[-2]):
        out[..., t, :] = statistic = advance(fit.statistic, statistic, ratios[..., t, :])
    return out


def evidence(fit: Fit, log_statistics: Float[np.ndarray, "*lead K"]) -> Float[np.ndarray, "*lead K"]:
    """Evidence in nats: minus the log of the fraction of clean episodes whose maximum is as large."""
    return _tail_surprise(log_statistics, fit.peaks)
