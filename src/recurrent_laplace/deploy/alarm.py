"""An alarm for the day the world changes, fitted on days when it did not."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import logsumexp

from recurrent_laplace.deploy.readings import Reading
from recurrent_laplace.deploy.recording import Episode
from recurrent_laplace.errors import check_choice, check_number

SIGNALS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "td_error": np.abs,
    "value_stddev": np.asarray,
    "value_moved": np.abs,
    "value": np.negative,
    "policy_moved": np.asarray,
    "policy_disagreement": np.asarray,
    "policy_entropy": np.asarray,
    "kl": np.asarray,
    "mahalanobis": np.asarray,
    "entropy": np.asarray,
}
"""What can be watched, and the sign that a change is expected to have, fixed before any data is seen."""

POSITIVE = (
    "td_error",
    "value_stddev",
    "value_moved",
    "policy_moved",
    "policy_disagreement",
    "kl",
    "mahalanobis",
)
"""Signals that are never negative, and are looked at as logarithms."""

WITH_REWARDS = ("td_error", "value_stddev", "value_moved", "policy_moved", "policy_entropy", "value")
WITHOUT_REWARDS = WITH_REWARDS[1:]

SMALLEST = 1e-6
"""Added before a logarithm is taken."""
NEIGHBOURS = 2
"""A step is standardised by its own clean values and those of so many steps before and after."""
TAIL_LEVELS = np.concatenate([np.linspace(0, 0.8, 17), 1 - np.geomspace(0.18, 0.004, 16)])
"""Of each signal, the clean quantiles that are kept; beyond the last, tails are taken to be exponential."""
TAIL = 6
"""So many of the last levels tell how fast."""
MOST_SURPRISE = 20.0
"""Nats of one signal at one step: a wild one alone should not decide everything."""
TILTS = (0.3, 0.6, 0.9)
"""Changes that the statistic is made for, as shares of the strongest tilt that clean surprise allows: the
first is a small change that lasts, the last a single step that hardly could have been."""


@dataclasses.dataclass(frozen=True)
class Alarm:
    """What the alarm says at a step; with several streams, all have a leading axis.

    `score` is the sequential statistic over its threshold: 1 and more is an alarm. `since` is how many
    steps ago the change began, by the statistic's own estimate.
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
    means: Float[np.ndarray, "T K"]
    """Of each signal at each step."""
    stddevs: Float[np.ndarray, "T K"]
    tails: Float[np.ndarray, "T K Q"]
    """Quantiles of the standardised signals at each step, at `TAIL_LEVELS`."""
    tilts: Float[np.ndarray, "N L"] = dataclasses.field(default_factory=lambda: np.zeros((1, 1)))
    """How much likelier a nat of surprise is after a change: of each signal and their sum, by `TILTS`."""
    log_normalizers: Float[np.ndarray, "N L"] = dataclasses.field(default_factory=lambda: np.zeros((1, 1)))
    """Make the tilted distributions sum to one."""
    threshold: float = 1.0
    """Of the logarithm of the statistic."""
    discount: float = 0.9
    source: str = ""
    """Identity of the posterior whose readings these were."""
    checked_episodes: int = 0
    checked_false_alarms: int = 0
    """On clean episodes that neither the signals nor the threshold were fitted on."""


class ShiftAlarm:
    """Says when an agent's world is no longer the one of its clean episodes.

    Signals of each step are turned into surprise: minus the logarithm of how many clean episodes have as
    much at that step. From it comes the likelihood ratio of a changed world, in which one signal, or all of
    them, are more surprising than they were. A sequential statistic of that ratio, CUSUM or
    Shiryaev-Roberts, raises the alarm when it passes a threshold that clean episodes pass at the
    false-alarm rate that was asked for.

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
        self._log_statistic: Any = None
        self._dating: Any = None
        self._age: Any = 0
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
          `td_error` to need no rewards.
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
        fit = fit_tables(tables, chosen, false_alarm_rate=false_alarm_rate, statistic=statistic)
        return cls(dataclasses.replace(fit, discount=float(discount), source=sources.pop()))

    def to_json(self) -> dict[str, Any]:
        """All of it, running state included, in plain numbers and words."""
        fit = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self.fitted).items()
        }
        state = [self._log_statistic, self._dating, self._age, self._value]
        return {"fit": fit, "state": [None if part is None else np.asarray(part).tolist() for part in state]}

    @classmethod
    def from_json(cls, spec: dict[str, Any]) -> "ShiftAlarm":
        """What `to_json` described."""
        values: dict[str, Any] = dict(spec["fit"])
        for name in ("means", "stddevs", "tails", "tilts", "log_normalizers"):
            values[name] = np.array(values[name], float)
        values["signals"] = tuple(values["signals"])
        fit = Fit(**values)
        if fit.means.shape != fit.stddevs.shape or fit.means.shape[-1] != len(fit.signals):
            raise ValueError("the alarm's signals and their scales do not fit")
        check_choice("statistic", fit.statistic, ("cusum", "shiryaev-roberts"))
        for name in fit.signals:
            check_choice("signals", name, tuple(SIGNALS))
        alarm = cls(fit)
        state = [None if part is None else np.asarray(part) for part in spec["state"]]
        alarm._log_statistic, alarm._dating, alarm._age, alarm._value = state
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
        columns = {name: _of_reading(reading, name) for name in fit.signals if name != "td_error"}
        if "td_error" in fit.signals:
            if reward is None:
                raise ValueError("reward must be given to an alarm that watches the TD error; got None.")
            before = np.zeros_like(reading.value) if self._value is None else self._value
            goes_on = fit.discount * (1 - np.asarray(ended, float))
            error = np.asarray(reward) + goes_on * np.asarray(reading.value) - before
            columns["td_error"] = np.where(first, 0.0, error)
            self._value = np.asarray(reading.value)
        row = np.stack([oriented(name, np.asarray(columns[name], float)) for name in fit.signals], axis=-1)
        ratio = log_ratio(fit, row, np.asarray(reading.step))
        nothing = np.full(first.shape, -np.inf)
        before, dating = (
            (nothing, nothing) if self._log_statistic is None else (self._log_statistic, self._dating)
        )
        before, dating = np.where(first, -np.inf, before), np.where(first, -np.inf, dating)
        # The change is dated by CUSUM, whatever the statistic: to where it last was at zero.
        self._age = np.where(dating <= 0, 0, self._age + 1)
        self._dating = advance("cusum", dating, ratio)
        self._log_statistic = advance(fit.statistic, before, ratio)
        score = self._log_statistic / fit.threshold
        return Alarm(score=score, alarm=score > 1, since=self._age)


def fit_tables(
    tables: list[Float[np.ndarray, "_ K"]],
    signals: tuple[str, ...],
    *,
    false_alarm_rate: float,
    statistic: str = "cusum",
) -> Fit:
    """`ShiftAlarm.fit` on tables of signals: a row for each step, larger where a change is more likely."""
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
    means, stddevs = _standardisation(for_signals, signals)
    fit = Fit(
        signals=signals,
        statistic=statistic,
        false_alarm_rate=float(false_alarm_rate),
        means=means,
        stddevs=stddevs,
        tails=_tails([_standardised(means, stddevs, table) for table in for_signals], len(means)),
    )
    clean = np.concatenate([surprises(fit, table) for table in for_signals])
    high = np.quantile(clean, 0.95, axis=0)
    excess = [np.mean(column[column >= least] - least) for column, least in zip(clean.T, high, strict=True)]
    tilts = np.array(TILTS) / np.maximum(excess, 1e-6)[:, None]
    normalizers = logsumexp(tilts * clean[..., None], axis=0) - np.log(len(clean))
    fit = dataclasses.replace(fit, tilts=tilts, log_normalizers=normalizers)
    peaks = np.sort([statistics(fit, table).max() for table in for_threshold])
    # The smallest threshold that a fresh clean episode passes with at most this chance.
    rank = math.ceil((len(peaks) + 1) * (1 - false_alarm_rate)) - 1
    threshold = max(float(peaks[min(rank, len(peaks) - 1)]), 1e-6)
    fit = dataclasses.replace(fit, threshold=threshold)
    alarms = sum(bool(statistics(fit, table).max() > threshold) for table in for_check)
    return dataclasses.replace(fit, checked_episodes=len(for_check), checked_false_alarms=alarms)


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


def available_signals(episode: Episode) -> tuple[str, ...]:
    """The signals that an episode has the numbers for."""
    columns = set(episode.steps.columns) | ({"td_error"} if "value" in episode.steps.columns else set())
    return tuple(name for name in SIGNALS if name in columns)


def signal_table(episode: Episode, signals: Sequence[str], discount: float) -> Float[np.ndarray, "T K"]:
    """The signals of an episode, a row for each step, larger where a change is more likely."""
    columns = {}
    for name in signals:
        if name == "td_error":
            value, reward = episode.steps["value"].to_numpy(), episode.steps["reward"].to_numpy()
            # Known with the next input: the reward of a step is that of the action before.
            goes_on = discount * (1 - episode.steps["ended"].to_numpy().astype(float))
            error = reward[:-1] + goes_on[:-1] * value[1:] - value[:-1]
            columns[name] = np.concatenate([[0.0], error])
        else:
            columns[name] = episode.steps[name].to_numpy()
    return np.stack([oriented(name, column) for name, column in columns.items()], axis=-1)


def oriented(name: str, values: np.ndarray) -> np.ndarray:
    """A signal with its sign, and as a logarithm where it is never negative."""
    values = SIGNALS[name](values)
    return np.log(values + SMALLEST) if name in POSITIVE else values


def _of_reading(reading: Reading, name: str) -> Any:
    value = reading.scalars().get(name)
    if value is None:
        raise ValueError(f"reading has no {name}, which the alarm watches: give its monitor the same heads.")
    return value


def _standardisation(
    tables: list[np.ndarray], signals: tuple[str, ...]
) -> tuple[Float[np.ndarray, "T K"], Float[np.ndarray, "T K"]]:
    """Mean and stddev of each signal at each step, neighbours included."""
    # A step that only a few episodes reach has too few values of its own: the last common one serves.
    lengths = sorted(len(table) for table in tables)
    longest = lengths[len(lengths) // 2]
    means, stddevs = [], []
    for t in range(longest):
        near = np.concatenate([table[max(0, t - NEIGHBOURS) : t + NEIGHBOURS + 1] for table in tables])
        means.append(near.mean(axis=0))
        stddevs.append(near.std(axis=0))
    for index, name in enumerate(signals):
        if max(stddev[index] for stddev in stddevs) < 1e-9:
            raise ValueError(f"{name} is constant in all clean episodes: it cannot be a signal.")
    floor = 1e-3 * np.max(stddevs, axis=0)
    return np.stack(means), np.maximum(np.stack(stddevs), floor)


def surprises(
    fit: Fit, table: Float[np.ndarray, "*lead K"], steps: Any = None
) -> Float[np.ndarray, "*lead N"]:
    """Of each signal, minus the logarithm of its tail probability in clean episodes; then their sum.

    `steps` are those of the rows, from 1; by default the last of the leading axes counts them.
    """
    steps = np.arange(1, table.shape[-2] + 1) if steps is None else np.asarray(steps)
    standard = _standardised(fit.means, fit.stddevs, table, steps)
    tails = fit.tails[np.clip(steps - 1, 0, len(fit.tails) - 1)]
    # One signal at a time: all at once would be large.
    each = [_tail_surprise(standard[..., k], tails[..., k, :]) for k in range(len(fit.signals))]
    return np.stack([*each, sum(each)] if len(each) > 1 else each, axis=-1)


def _tails(standard: list[np.ndarray], steps: int) -> Float[np.ndarray, "T K Q"]:
    """Quantiles of each signal at each step, neighbours included."""
    tails = []
    for t in range(steps):
        near = np.concatenate([table[max(0, t - NEIGHBOURS) : t + NEIGHBOURS + 1] for table in standard])
        tails.append(np.quantile(near, TAIL_LEVELS, axis=0).T)
    return np.stack(tails)


def _standardised(means: np.ndarray, stddevs: np.ndarray, table: np.ndarray, steps: Any = None) -> np.ndarray:
    """Signals in clean stddevs from the clean mean of their step."""
    steps = np.arange(1, table.shape[-2] + 1) if steps is None else steps
    place = np.clip(np.asarray(steps) - 1, 0, len(means) - 1)
    return (table - means[place]) / stddevs[place]


def _tail_surprise(values: np.ndarray, quantiles: Float[np.ndarray, "... Q"]) -> np.ndarray:
    """`-log` of the share of clean values that are at least this high."""
    surprises = -np.log1p(-TAIL_LEVELS)
    # Linear between quantiles: the interval that a value falls into, and how far.
    above = np.sum(values[..., None] >= quantiles, axis=-1)
    lower, upper = np.clip(above - 1, 0, None), np.clip(above, None, len(TAIL_LEVELS) - 1)
    low, high = (_taken(quantiles, index, values.shape) for index in (lower, upper))
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


def log_ratio(fit: Fit, table: np.ndarray, steps: Any = None) -> np.ndarray:
    """Log-likelihood ratio of a step, of a changed world against the clean one.

    A changed world is one of many, all as likely: one signal, or their sum, is tilted upwards, by a little
    or by much.
    """
    tilted = fit.tilts * surprises(fit, table, steps)[..., None] - fit.log_normalizers
    return logsumexp(tilted, axis=(-2, -1)) - np.log(fit.tilts.size)


def advance(statistic: str, before: np.ndarray, ratio: np.ndarray) -> np.ndarray:
    """The logarithm of the sequential statistic after one more step."""
    if statistic == "cusum":
        return np.maximum(before, 0.0) + ratio
    return np.logaddexp(before, 0.0) + ratio


def statistics(fit: Fit, table: Float[np.ndarray, "*lead T K"]) -> Float[np.ndarray, "*lead T"]:
    """The logarithm of the statistic along an episode, or many of one length."""
    ratios = log_ratio(fit, table)
    out = np.empty_like(ratios)
    before = np.full(ratios.shape[:-1], -np.inf)
    for t in range(ratios.shape[-1]):
        out[..., t] = before = advance(fit.statistic, before, ratios[..., t])
    return out
