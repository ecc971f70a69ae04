"""An alarm for the day the world changes, fitted on days when it did not."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from recurrent_laplace.deploy.readings import Reading
from recurrent_laplace.deploy.recording import Episode
from recurrent_laplace.deploy.signals import SIGNALS, WITH_REWARDS, available_signals, larger, signal_table
from recurrent_laplace.errors import check_choice, check_number

NEIGHBOURS = 2
"""A step is compared with clean values of its own and of so many steps before and after."""
VALUE_BINS = 12
"""Values are alike that fall between the same quantiles of clean ones."""
TAIL_LEVELS = np.concatenate([np.linspace(0, 0.8, 17), 1 - np.geomspace(0.18, 0.004, 16)])
"""The clean quantiles that are kept; beyond the last, tails are taken to be exponential."""
TAIL = 6
"""So many of the last levels tell how fast."""
CONSTANT = 1e-9
"""A signal that varies less says nothing."""
MOST_SURPRISE = 20.0
"""Nats of one signal at one step: a wild one alone should not decide everything."""
TILTS = (0.3, 0.6, 0.9)
"""Changes that the statistic is made for, as shares of the strongest tilt that clean surprise allows: the
first is a small change that lasts, the last a single step that hardly could have been."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """What the alarm says at a step; with several streams, all have a leading axis.

    `score` is over its threshold: more than 1 is an alarm. `since` is how many steps ago the change began,
    as dated by the signal that says most.
    """

    score: Float[np.ndarray, "*lead"]
    alarm: Bool[np.ndarray, "*lead"]
    since: Int[np.ndarray, "*lead"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """What was learned from clean episodes."""

    signals: tuple[str, ...]
    statistic: str
    false_alarm_rate: float
    given: tuple[str, ...]
    """What each signal is compared at: `"step"` or `"value"`."""
    scales: Float[np.ndarray, " K"]
    """The clean stddev of each signal."""
    edges: Float[np.ndarray, " C"]
    """Between the bins of values."""
    tails: tuple[Float[np.ndarray, "_ Q"], ...]
    """Of each signal over its scale, for each step or bin of values, quantiles at `TAIL_LEVELS`."""
    tilts: Float[np.ndarray, "K L"]
    """How much likelier a nat of surprise is after a change, by `TILTS`."""
    log_normalizers: Float[np.ndarray, "K L"]
    """Make the tilted distributions sum to one."""
    peaks: Float[np.ndarray, "K Q"]
    """Quantiles of the largest statistic of each signal in a clean episode."""
    threshold: float = 1.0
    """Of the score."""
    discount: float = 0.9
    source: str = ""
    """Identity of the posterior whose readings these were."""
    checked_episodes: int = 0
    checked_false_alarms: int = 0
    """On clean episodes that neither the signals nor the threshold were fitted on."""


class ShiftAlarm:
    """Says when an agent's world is no longer the one of its clean episodes.

    Each signal of a step becomes surprise: minus the logarithm of how often clean episodes have as much at
    that step, or after such a value. From it comes the likelihood ratio of a world in which this signal is
    more surprising than it was, and from that a sequential statistic, CUSUM or Shiryaev-Roberts. How rarely
    a clean episode reaches as much is the signal's word, in nats; the score is the sum of all words, and the
    alarm is raised when it passes what clean episodes pass at the false-alarm rate that was asked for.

    Made by `ShiftAlarm.fit`. A reset of the belief (`reading.step == 1`) restarts the alarm.

    ```python
    alarm = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.05)
    now = alarm.step(monitor.step(x), reward=reward)   # reward: of the action before x
    if now.alarm:
        monitor.reset()
    ```
    """

    def __init__(self, fit: Fit):
        self.fitted = fit
        self._log_statistics: Any = None
        self._dating: Any = None
        self._ages: Any = None
        self._value: Any = None

    @classmethod
    def fit(
        cls,
        episodes: Sequence[Episode],
        *,
        false_alarm_rate: float = 0.01,
        signals: Sequence[str] | None = None,
        statistic: Literal["cusum", "shiryaev-roberts"] | str = "cusum",
        discount: float = 0.9,
    ) -> "ShiftAlarm":
        """Fit on clean episodes; a third of them each for the signals, the threshold, and the check.

        **Arguments:**

        - `episodes`: of the agent in the world it knows, as recorded by a `Monitor`.
        - `false_alarm_rate`: share of clean episodes that may raise an alarm.
        - `signals`: names of `SIGNALS`; by default the predictive ones that the episodes have. Leave out
          `td_drop` and `td_error` to need no rewards.
        - `statistic`: `"cusum"` or `"shiryaev-roberts"`.
        - `discount` of the agent's value, for the TD error.
        """
        if not episodes:
            raise ValueError("episodes must be clean episodes of the agent; got none.")
        sources = {episode.source for episode in episodes}
        if len(sources) > 1:
            raise ValueError("episodes must all come from one posterior; got several.")
        chosen = _choose_signals(episodes[0], signals)
        tables = [signal_table(episode, chosen, discount) for episode in episodes]
        has_value = "value" in episodes[0].steps.columns
        given = tuple(SIGNALS[name].given if has_value else "step" for name in chosen)
        fit = fit_tables(tables, chosen, given, false_alarm_rate=false_alarm_rate, statistic=statistic)
        return cls(dataclasses.replace(fit, discount=float(discount), source=sources.pop()))

    def to_json(self) -> dict[str, Any]:
        """All of it, running state included, in plain numbers and words."""
        state = (self._log_statistics, self._dating, self._ages, self._value)
        return {"fit": _plain(vars(self.fitted)), "state": [_plain(part) for part in state]}

    @classmethod
    def from_json(cls, spec: dict[str, Any]) -> "ShiftAlarm":
        """What `to_json` described."""
        values: dict[str, Any] = dict(spec["fit"])
        for name in ("scales", "edges", "tilts", "log_normalizers", "peaks"):
            values[name] = np.array(values[name], float)
        values["tails"] = tuple(np.array(one, float) for one in values["tails"])
        values["signals"], values["given"] = tuple(values["signals"]), tuple(values["given"])
        fit = Fit(**values)
        if not len(fit.signals) == len(fit.given) == len(fit.scales) == len(fit.tails) == len(fit.peaks):
            raise ValueError("the alarm's signals and their scales do not fit")
        check_choice("statistic", fit.statistic, ("cusum", "shiryaev-roberts"))
        for name in fit.signals:
            check_choice("signals", name, tuple(SIGNALS))
        alarm = cls(fit)
        state = [None if part is None else np.asarray(part) for part in spec["state"]]
        alarm._log_statistics, alarm._dating, alarm._ages, alarm._value = state
        return alarm

    def step(self, reading: Reading, reward: Any = None, ended: Any = False) -> Alarm:
        """Take in a reading, and the reward that came with its input (None, if none is watched).

        `ended` says that with that reward an episode ended inside of the task, beyond which the agent's
        value does not look.
        """
        fit = self.fitted
        if fit.source and reading.source and reading.source != fit.source:
            raise ValueError("reading is of another posterior than the one that the alarm was fitted on.")
        first = np.asarray(reading.step) == 1
        sources = {SIGNALS[name].source for name in fit.signals}
        columns = {name: _of_reading(reading, name) for name in sources - {"td_error"}}
        needs_value = "td_error" in sources or "value" in fit.given
        value = np.asarray(_of_reading(reading, "value")) if needs_value else np.zeros(first.shape)
        before = np.where(first, np.nan, np.zeros(first.shape) if self._value is None else self._value)
        if "td_error" in sources:
            if reward is None:
                raise ValueError("reward must be given to an alarm that watches the TD error; got None.")
            goes_on = fit.discount * (1 - np.asarray(ended, float))
            columns["td_error"] = np.where(first, 0.0, np.asarray(reward) + goes_on * value - before)
        self._value = value
        row = np.stack([*(larger(name, columns) for name in fit.signals), before], axis=-1)
        ratios = log_ratios(fit, row, np.asarray(reading.step))
        if self._log_statistics is None:
            self._log_statistics = self._dating = np.full(ratios.shape, -np.inf)
            self._ages = np.zeros(ratios.shape, int)
        restart = first[..., None]
        # The change is dated by CUSUM, whatever the statistic: to where it last was at zero.
        dating = np.where(restart, -np.inf, self._dating)
        self._ages = np.where(dating <= 0, 0, self._ages + 1)
        self._dating = advance("cusum", dating, ratios)
        before = np.where(restart, -np.inf, self._log_statistics)
        self._log_statistics = advance(fit.statistic, before, ratios)
        words = _words(fit, self._log_statistics)
        score = words.sum(axis=-1) / fit.threshold
        loudest = words.argmax(axis=-1)[..., None]
        since = np.take_along_axis(self._ages, loudest, axis=-1)[..., 0]
        return Alarm(score=score, alarm=score > 1, since=since)


def fit_tables(
    tables: list[Float[np.ndarray, "_ K1"]],
    signals: tuple[str, ...],
    given: tuple[str, ...],
    *,
    false_alarm_rate: float,
    statistic: str = "cusum",
) -> Fit:
    """`ShiftAlarm.fit` on tables of signals: a row for each step, larger where a change is more likely.

    The last column is the agent's value of the step before, NaN where there was none.
    """
    check_number("false_alarm_rate", false_alarm_rate, above=0)
    if false_alarm_rate >= 1:
        raise ValueError(f"false_alarm_rate must be below 1; got {false_alarm_rate:g}.")
    check_choice("statistic", statistic, ("cusum", "shiryaev-roberts"))
    needed = 3 * math.ceil(1 / false_alarm_rate)
    if len(tables) < needed:
        raise ValueError(
            f"episodes must be at least {needed} for a false-alarm rate of {false_alarm_rate:g}; "
            f"got {len(tables)}."
        )
    for_signals, for_threshold, for_check = (tables[start::3] for start in range(3))
    together = np.concatenate(for_signals)
    scales = together[:, :-1].std(axis=0)
    for name, scale in zip(signals, scales, strict=True):
        if scale < CONSTANT:
            raise ValueError(f"{name} is constant in all clean episodes: it cannot be a signal.")
    values = together[:, -1]
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
            if how == "value"
            else _tails_by_step([table[:, k] / scales[k] for table in for_signals])
            for k, how in enumerate(given)
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
    # The smallest threshold that a fresh clean episode passes with at most this chance.
    rank = math.ceil((len(highest) + 1) * (1 - false_alarm_rate)) - 1
    threshold = max(float(highest[min(rank, len(highest) - 1)]), 1e-6)
    fit = dataclasses.replace(fit, threshold=threshold)
    alarms = int(np.sum(_highest(fit, for_check) > threshold))
    return dataclasses.replace(fit, checked_episodes=len(for_check), checked_false_alarms=alarms)


def _stacked(tables: list[Float[np.ndarray, "_ K1"]]) -> list[Float[np.ndarray, "E T K1"]]:
    """Tables of one length together, to be worked on at once."""
    lengths = sorted({len(table) for table in tables})
    return [np.stack([table for table in tables if len(table) == length]) for length in lengths]


def _highest(fit: Fit, tables: list[Float[np.ndarray, "_ K1"]]) -> Float[np.ndarray, " E"]:
    """The highest score of each episode, in no order."""
    return np.concatenate([scores(fit, stack).max(axis=1) for stack in _stacked(tables)])


def _choose_signals(episode: Episode, signals: Sequence[str] | None) -> tuple[str, ...]:
    there = available_signals(episode)
    if signals is None:
        chosen = tuple(name for name in WITH_REWARDS if name in there)
        # Without heads, the belief itself is all there is.
        return chosen or ("kl", "mahalanobis")
    for name in signals:
        check_choice("signals", name, there)
    if not signals:
        raise ValueError("signals must name at least one; got none.")
    return tuple(signals)


def _of_reading(reading: Reading, name: str) -> Any:
    value = reading.scalars().get(name)
    if value is None:
        raise ValueError(f"reading has no {name}, which the alarm watches: give its monitor the same heads.")
    return value


def _tails_by_step(values: list[Float[np.ndarray, " _"]]) -> Float[np.ndarray, "T Q"]:
    """Quantiles at each step, neighbours included."""
    # A step that only a few episodes reach has too few values of its own: the last common one serves.
    lengths = sorted(len(one) for one in values)
    near = [
        np.concatenate([one[max(0, t - NEIGHBOURS) : t + NEIGHBOURS + 1] for one in values])
        for t in range(lengths[len(lengths) // 2])
    ]
    return np.stack([np.quantile(some, TAIL_LEVELS) for some in near])


def _tails_by_value(
    tables: list[Float[np.ndarray, "_ 2"]], scale: float, edges: Float[np.ndarray, " C"]
) -> Float[np.ndarray, "C1 Q"]:
    """Quantiles for each bin of the value before."""
    signal, value = np.concatenate(tables).T
    known = np.isfinite(value)
    bins = np.digitize(value[known], edges)
    signal = signal[known] / scale
    every = np.quantile(signal, TAIL_LEVELS)
    rows = []
    for index in range(len(edges) + 1):
        some = signal[bins == index]
        # Values that are often the same leave bins empty.
        rows.append(np.quantile(some, TAIL_LEVELS) if len(some) else every)
    return np.stack(rows)


def surprises(
    fit: Fit, table: Float[np.ndarray, "*lead K1"], steps: Any = None
) -> Float[np.ndarray, "*lead K"]:
    """Of each signal, minus the logarithm of its tail probability in clean episodes.

    `steps` are those of the rows, from 1; by default the last of the leading axes counts them.
    """
    steps = np.arange(1, table.shape[-2] + 1) if steps is None else np.asarray(steps)
    value = table[..., -1]
    found = []
    for k, how in enumerate(fit.given):
        place = np.digitize(value, fit.edges) if how == "value" else steps - 1
        tails = fit.tails[k][np.clip(place, 0, len(fit.tails[k]) - 1)]
        surprise = _tail_surprise(table[..., k] / fit.scales[k], tails)
        # Without a value before there is nothing to compare with.
        found.append(np.where(np.isnan(value), 0.0, surprise) if how == "value" else surprise)
    return np.stack(found, axis=-1)


def _tail_surprise(values: np.ndarray, quantiles: Float[np.ndarray, "... Q"]) -> np.ndarray:
    """`-log` of the share of clean values that are at least this high."""
    surprises = -np.log1p(-TAIL_LEVELS)
    # Linear between quantiles: the interval that a value falls into, and how far.
    above = np.sum(values[..., None] >= quantiles, axis=-1)
    lower, upper = np.clip(above - 1, 0, None), np.clip(above, None, len(TAIL_LEVELS) - 1)
    low, high = (_taken(quantiles, index, values.shape) for index in (lower, upper))
    with np.errstate(invalid="ignore"):
        share = np.clip((values - low) / np.maximum(high - low, 1e-9), 0.0, 1.0)
    inside = surprises[lower] + share * (surprises[upper] - surprises[lower])
    # The last levels give the slope of the tail.
    span = np.maximum(quantiles[..., -1] - quantiles[..., -TAIL], 1e-3)
    slope = (surprises[-1] - surprises[-TAIL]) / span
    beyond = np.maximum(values - quantiles[..., -1], 0.0) * slope
    return np.minimum(inside + beyond, MOST_SURPRISE)


def _taken(quantiles: np.ndarray, index: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    wide = np.broadcast_to(quantiles, (*shape, quantiles.shape[-1]))
    return np.take_along_axis(wide, index[..., None], axis=-1)[..., 0]


def log_ratios(fit: Fit, table: np.ndarray, steps: Any = None) -> Float[np.ndarray, "*lead K"]:
    """For each signal, the log-likelihood ratio of a step, of a changed world against the clean one.

    In the changed world the signal is tilted upwards, by a little or by much, all as likely.
    """
    tilted = fit.tilts * surprises(fit, table, steps)[..., None] - fit.log_normalizers
    return logsumexp(tilted, axis=-1) - np.log(len(TILTS))


def advance(statistic: str, before: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """The logarithm of the sequential statistic after one more step."""
    if statistic == "cusum":
        return np.maximum(before, 0.0) + ratio
    return np.logaddexp(before, 0.0) + ratio


def scores(fit: Fit, table: Float[np.ndarray, "*lead T K1"]) -> Float[np.ndarray, "*lead T"]:
    """The score along an episode, or many of one length; an alarm where it passes `fit.threshold`."""
    return _words(fit, _statistics(fit, table)).sum(axis=-1)


def _statistics(fit: Fit, table: Float[np.ndarray, "*lead T K1"]) -> Float[np.ndarray, "*lead T K"]:
    """The logarithm of each signal's statistic along an episode."""
    ratios = log_ratios(fit, table)
    out = np.empty_like(ratios)
    before = np.full(ratios.shape[:-2] + ratios.shape[-1:], -np.inf)
    for t in range(ratios.shape[-2]):
        out[..., t, :] = before = advance(fit.statistic, before, ratios[..., t, :])
    return out


def _words(fit: Fit, log_statistics: Float[np.ndarray, "*lead K"]) -> Float[np.ndarray, "*lead K"]:
    """In nats, how rarely a clean episode reaches as much."""
    return _tail_surprise(log_statistics, fit.peaks)


def _plain(value: Any) -> Any:
    """Arrays as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
