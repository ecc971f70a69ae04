"""Shift alarm: online change detection on readings, fitted on clean episodes."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from recurrent_laplace.errors import check_choice, check_number, check_shape, check_size, shown
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.readings import Reading
from recurrent_laplace.monitoring.sequential import (
    TAIL_LEVELS,
    TILTS,
    Fit,
    advance,
    evidence,
    fit_tables,
    log_ratios,
)
from recurrent_laplace.monitoring.signals import (
    SIGNALS,
    WITH_REWARDS,
    available_signals,
    finite_or_nan,
    larger,
    signal_table,
    td_error,
)


@dataclasses.dataclass(frozen=True)
class Alarm:
    """Output of a `ShiftAlarm` at one step; with several streams, all fields have a leading axis.

    - `score`: evidence for a shift relative to the threshold;
    - `alarm`: whether `score > 1`;
    - `since`: estimated number of steps since the shift, from the signal with the most evidence;
    - `reason`: names of the readings, signals or rewards that are not finite. These raise an alarm with an
      infinite score. Empty otherwise.
    """

    score: Float[np.ndarray, "*lead"]
    alarm: Bool[np.ndarray, "*lead"]
    since: Int[np.ndarray, "*lead"]
    reason: Any = ""


class ShiftAlarm:
    """Online detector of distribution shift, fitted on clean episodes with `ShiftAlarm.fit`.

    The surprise of a signal is minus the log of its tail probability in clean episodes, given the step or
    the previous value. Exponential tilting of the surprise gives a likelihood ratio, and a sequential
    statistic (CUSUM or Shiryaev-Roberts) accumulates it. The evidence of a signal is minus the log tail
    probability of its statistic in clean episodes. The alarm is raised when the sum of the evidence over
    signals exceeds a threshold, which is calibrated to the requested false-alarm rate.

    A non-finite number raises an alarm at its own step and leaves the statistics unchanged. A reset of the
    belief (`reading.step == 1`) restarts the alarm.

    **Arguments:** `fit`, the parameters that `ShiftAlarm.fit` estimates and passes on.

    ```python
    from recurrent_laplace.monitoring.episode import Episode

    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))), accumulate="none")
    inputs = jax.random.normal(jax.random.key(1), (60, 5, 2))  # 60 clean episodes of 5 steps
    monitor = rl.Monitor(posterior, streams=60)
    readings = [monitor.step(inputs[:, t]) for t in range(5)]
    episodes = [
        Episode.of(xs, [0] * 5, [0.0] * 5, [jax.tree.map(lambda leaf: leaf[i], r) for r in readings])
        for i, xs in enumerate(inputs)
    ]
    alarm = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.05)
    result = alarm.step(rl.Monitor(posterior).step(jnp.ones(2)))
    result.score, result.alarm
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
        statistic: Literal["cusum", "shiryaev-roberts"] = "cusum",
        discount: float = 0.9,
    ) -> "ShiftAlarm":
        """Fit an alarm; a third of the episodes each for the signals, the threshold and its validation.

        **Arguments:**

        - `episodes`: clean episodes of the agent, as recorded by a `Monitor`. Episodes with non-finite
          inputs or signals are excluded with a warning.
        - `false_alarm_rate`: fraction of clean episodes that may raise an alarm.
        - `signals`: names in `SIGNALS`; by default the predictive ones that the episodes have. Without
          `td_drop`, `td_error` and `td_drop_for_value`, the alarm needs no rewards.
        - `statistic`: `"cusum"` or `"shiryaev-roberts"`.
        - `discount`: discount of the agent's value, for the TD error.
        """
        if not episodes:
            raise ValueError("episodes must be clean episodes of the agent; got none.")
        sources = {episode.source for episode in episodes}
        if len(sources) > 1:
            raise ValueError("episodes must all come from one posterior; got several.")
        chosen = _choose_signals(episodes[0], signals)
        tables = [signal_table(episode, chosen, discount) for episode in episodes]
        # An infinite input can saturate all gates, so that the signals are finite.
        tables = [
            table if np.isfinite(episode.inputs).all() else np.full_like(table, np.nan)
            for episode, table in zip(episodes, tables, strict=True)
        ]
        has_value = "value" in episodes[0].steps.columns
        given = tuple(SIGNALS[name].given if has_value else "step" for name in chosen)
        fit = fit_tables(tables, chosen, given, false_alarm_rate=false_alarm_rate, statistic=statistic)
        return cls(dataclasses.replace(fit, discount=float(discount), source=sources.pop()))

    def to_json(self) -> dict[str, Any]:
        """JSON representation of the fit and the running state."""
        state = (self._log_statistics, self._dating, self._ages, self._value)
        return {"fit": _plain(vars(self.fitted)), "state": [_plain(part) for part in state]}

    @classmethod
    def from_json(cls, spec: dict[str, Any]) -> "ShiftAlarm":
        """Rebuild the alarm from `spec`, the result of `to_json`."""
        alarm = cls(_fit_from_json(spec["fit"]))
        state = _state_from_json(spec["state"], len(alarm.fitted.signals))
        alarm._log_statistics, alarm._dating, alarm._ages, alarm._value = state
        return alarm

    def step(self, reading: Reading, reward: Any = None, ended: Any = False) -> Alarm:
        """Update the alarm with the reading of one step.

        **Arguments:**

        - `reading`: reading of the monitored posterior.
        - `reward`: reward of the previous action; needed by signals of the TD error only.
        - `ended`: whether the previous action ended an episode within the task.
        """
        fit = self.fitted
        if fit.source and reading.source and reading.source != fit.source:
            raise ValueError("reading is of another posterior than the one that the alarm was fitted on.")
        first = np.asarray(reading.step) == 1
        sources = {SIGNALS[name].source for name in fit.signals}
        columns = {name: _column(reading, name) for name in sources - {"td_error"}}
        needs_value = "td_error" in sources or "value" in fit.given
        value = np.asarray(_column(reading, "value")) if needs_value else np.zeros(first.shape)
        previous_value = np.where(first, np.nan, 0.0 if self._value is None else self._value)
        if "td_error" in sources:
            if reward is None:
                raise ValueError("reward must be given to an alarm with signals of the TD error; got None.")
            with np.errstate(invalid="ignore"):
                error = td_error(previous_value, np.asarray(reward, float), ended, value, fit.discount)
            # Without a previous value, as at the first step, there is no TD error.
            columns["td_error"] = np.where(np.isnan(previous_value), 0.0, error)
        self._value = finite_or_nan(value)
        signals = np.stack([larger(name, columns) for name in fit.signals], axis=-1)
        row = np.concatenate([signals, previous_value[..., None]], axis=-1)
        ratios = log_ratios(fit, row, np.asarray(reading.step))
        if self._log_statistics is None:
            self._log_statistics = self._dating = np.full(ratios.shape, -np.inf)
            self._ages = np.zeros(ratios.shape, int)
        restart = first[..., None]
        # CUSUM dates the change for either statistic: to the last step at which it was zero.
        dating = np.where(restart, -np.inf, self._dating)
        self._ages = np.where(dating <= 0, 0, self._ages + 1)
        self._dating = advance("cusum", dating, ratios)
        statistics = np.where(restart, -np.inf, self._log_statistics)
        self._log_statistics = advance(fit.statistic, statistics, ratios)
        nats = evidence(fit, self._log_statistics)
        strongest = nats.argmax(axis=-1)[..., None]
        since = np.take_along_axis(self._ages, strongest, axis=-1)[..., 0]
        by_name = dict(zip(fit.signals, np.moveaxis(signals, -1, 0), strict=True))
        reason = _not_finite(reading, reward, by_name)
        broken = reason != ""
        score = np.where(broken, np.inf, nats.sum(axis=-1) / fit.threshold)[()]
        since = np.where(broken, 0, since)[()]
        return Alarm(score=score, alarm=score > 1, since=since, reason=reason[()])


def _choose_signals(episode: Episode, signals: Sequence[str] | None) -> tuple[str, ...]:
    available = available_signals(episode)
    if signals is None:
        chosen = tuple(name for name in WITH_REWARDS if name in available)
        # Without heads, only the belief itself can be monitored.
        return chosen or ("kl", "mahalanobis")
    for name in signals:
        check_choice("signals", name, available)
    if not signals:
        raise ValueError("signals must name at least one; got none.")
    return tuple(signals)


def _not_finite(reading: Reading, reward: Any, signals: dict[str, np.ndarray]) -> np.ndarray:
    """Reason for each stream: the names of all numbers that are not finite, or an empty string."""
    lead = np.shape(reading.step)
    numbers = reading.numbers() | ({} if reward is None else {"reward": np.asarray(reward, float)})
    broken = {name: _any_not_finite(values, lead) for name, values in (numbers | signals).items()}
    if reading.finite is not None:
        # An infinite input can saturate all gates, so that the belief is finite.
        known = np.any([*broken.values()], axis=0)
        broken["the input of the monitor"] = ~np.asarray(reading.finite, bool) & ~known
    broken = {name: where for name, where in broken.items() if where.any()}
    if not broken:
        return np.full(lead, "")
    names = [[name for name, where in broken.items() if where[index]] for index in np.ndindex(lead)]
    return np.reshape([f"not finite: {', '.join(found)}" if found else "" for found in names], lead)


def _any_not_finite(values: Any, lead: tuple[int, ...]) -> Bool[np.ndarray, "*lead"]:
    """Whether any of the values of each stream is not finite."""
    found = np.zeros(lead, bool)
    for array in values if isinstance(values, tuple) else (values,):
        broken = ~np.isfinite(np.asarray(array, float))
        found |= broken.any(axis=tuple(range(len(lead), broken.ndim)))
    return found


def _column(reading: Reading, name: str) -> Any:
    value = reading.scalars().get(name)
    if value is None:
        raise ValueError(f"reading has no {name}, which the alarm needs: give its monitor the same heads.")
    return value


def _fit_from_json(spec: dict[str, Any]) -> Fit:
    """Decode and validate a `Fit`."""
    values: dict[str, Any] = dict(spec)
    for name in ("signals", "given", "tails"):
        if not isinstance(values[name], list):
            raise ValueError(f"{name} must be a list; got {shown(values[name])}.")
    for key, choices in (("signals", tuple(SIGNALS)), ("given", ("step", "value"))):
        for name in values[key]:
            check_choice(key, name, choices)
    check_choice("statistic", values["statistic"], ("cusum", "shiryaev-roberts"))
    check_number("false_alarm_rate", values["false_alarm_rate"], above=0, most=1)
    check_number("threshold", values["threshold"], above=0)
    if not isinstance(values["source"], str):
        raise ValueError(f"source must be a text; got {shown(values['source'])}.")
    for name in ("checked_episodes", "checked_false_alarms"):
        check_size(name, values[name], least=0)
    count, quantiles = len(values["signals"]), len(TAIL_LEVELS)
    if not count or len(values["given"]) != count or len(values["tails"]) != count:
        raise ValueError("the alarm must have as many comparisons and tails as signals, and at least one.")
    shapes = {"discount": (), "scales": (count,), "edges": ("C",), "peaks": (count, quantiles)}
    for name, shape in (shapes | dict.fromkeys(("tilts", "log_normalizers"), (count, len(TILTS)))).items():
        values[name] = _finite_array(name, values[name], shape)
    if np.any(values["scales"] <= 0) or np.any(np.diff(values["edges"]) < 0):
        raise ValueError("the alarm must have scales above zero and edges in ascending order.")
    values["tails"] = tuple(_finite_array("tails", tail, ("T", quantiles)) for tail in values["tails"])
    if not all(map(len, values["tails"])):
        raise ValueError("tails must have at least one row.")
    values["discount"] = float(values["discount"])
    values["signals"], values["given"] = tuple(values["signals"]), tuple(values["given"])
    return Fit(**values)


def _state_from_json(state: Any, signals: int) -> list[Any]:
    """Decode the running state: log statistics, log statistics that date the change, ages, last value."""
    if not isinstance(state, list) or len(state) != 4:
        raise ValueError("the alarm's state must be a list of four.")
    if all(part is None for part in state):
        return state
    statistics, dating, ages, value = (np.array(part, float) for part in state)
    if not (statistics.shape == dating.shape == ages.shape == (*value.shape, signals)) or value.ndim > 1:
        raise ValueError("the alarm's state must have a number for each signal of each stream.")
    if not np.all((ages >= 0) & (ages < 2**53)) or np.isposinf([statistics, dating]).any():
        raise ValueError("the alarm's state must be of numbers that it can reach.")
    # Files of version 0.1 can hold NaN statistics, which are restarted.
    statistics, dating = (np.where(np.isnan(part), -np.inf, part) for part in (statistics, dating))
    return [statistics, dating, ages.astype(int), finite_or_nan(value)]


def _finite_array(name: str, values: Any, shape: tuple[int | str, ...]) -> np.ndarray:
    array = np.array(values, float)
    check_shape(name, array, shape)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite.")
    return array


def _plain(value: Any) -> Any:
    """Convert arrays to lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
