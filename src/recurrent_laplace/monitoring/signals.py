"""Signals of shift alarms: per-step statistics that increase under a distribution shift."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num

from recurrent_laplace.monitoring.episode import Episode

SMALLEST = 1e-6
"""Offset inside logarithms of magnitudes."""


def log_size(values: np.ndarray) -> np.ndarray:
    """Logarithm of the absolute values."""
    return np.log(np.abs(values) + SMALLEST)


class Signal(NamedTuple):
    """A statistic to monitor, and its reference distribution.

    - `source`: name of the reading, or `"td_error"`;
    - `larger`: transformation after which larger values indicate a shift;
    - `given`: conditioning variable of the clean distribution: the step, or the agent's previous value;
    - `label`: name of the score in `shiftbench` and its report.
    """

    source: str
    larger: Callable[[np.ndarray], np.ndarray]
    given: Literal["step", "value"]
    label: str


SIGNALS = {
    "td_drop": Signal("td_error", np.negative, "step", "downward TD error"),
    "td_error": Signal("td_error", log_size, "step", "TD error"),
    "td_drop_for_value": Signal("td_error", np.negative, "value", "downward TD error"),
    "value_drop": Signal("value_moved", np.negative, "value", "downward move of the value"),
    "value_moved": Signal("value_moved", log_size, "step", "value_moved"),
    "value_stddev": Signal("value_stddev", log_size, "step", "value_stddev"),
    "value": Signal("value", np.negative, "value", "negative value"),
    "policy_moved": Signal("policy_moved", log_size, "value", "policy_moved"),
    "policy_disagreement": Signal("policy_disagreement", log_size, "step", "policy_disagreement"),
    "policy_entropy": Signal("policy_entropy", np.asarray, "value", "policy_entropy"),
    "kl": Signal("kl", log_size, "step", "kl"),
    "mahalanobis": Signal("mahalanobis", log_size, "step", "mahalanobis"),
    "entropy": Signal("entropy", np.asarray, "step", "entropy"),
}
"""Available signals. Their signs were fixed in advance: a shift lowers rewards and values, moves the belief,
and raises its uncertainty."""

WITHOUT_REWARDS = ("value_drop", "value", "policy_moved", "policy_entropy")
"""Default signals that need no rewards."""
WITH_REWARDS = ("td_drop", "td_error", "td_drop_for_value", *WITHOUT_REWARDS)
"""Default signals of an agent with heads; `shiftbench` uses the same."""


def available_signals(episode: Episode) -> tuple[str, ...]:
    """Names of the signals whose source an episode contains."""
    columns = set(episode.steps.columns) | ({"td_error"} if "value" in episode.steps.columns else set())
    return tuple(name for name, signal in SIGNALS.items() if signal.source in columns)


def signal_table(episode: Episode, signals: Sequence[str], discount: float) -> Float[np.ndarray, "T K1"]:
    """Signals of an episode, one row per step; larger values indicate a shift.

    The last column is the agent's value at the previous step, NaN where there is none.
    """
    steps = episode.steps
    sources = {SIGNALS[name].source for name in signals}
    columns = {name: steps[name].to_numpy() for name in sources - {"td_error"}}
    previous_value = np.full(len(steps), np.nan)
    if "value" in steps.columns:
        value = steps["value"].to_numpy()
        previous_value[1:] = finite_or_nan(value[:-1])
        reward, ended = (steps[name].to_numpy()[:-1] for name in ("reward", "ended"))
        columns["td_error"] = td_errors(value, reward, ended, discount)
    return np.stack([*(larger(name, columns) for name in signals), previous_value], axis=-1)


def td_error(value: Any, reward: Any, ended: Any, next_value: Any, discount: float) -> Any:
    """TD error `reward + discount * next_value - value`; `ended` cuts the bootstrap, as in training."""
    return reward + discount * (1 - np.asarray(ended, float)) * next_value - value


def td_errors(
    value: Float[np.ndarray, "*lead T"],
    reward: Float[np.ndarray, "*lead T-1"],
    ended: Num[np.ndarray, "*lead T-1"] | Bool[np.ndarray, "*lead T-1"],
    discount: float,
) -> Float[np.ndarray, "*lead T"]:
    """TD errors along a sequence, each at the step of the next input; zero at the first step.

    `reward` and `ended` belong to the actions between consecutive inputs.
    """
    errors = td_error(value[..., :-1], reward, ended, value[..., 1:], discount)
    return np.concatenate([np.zeros((*value.shape[:-1], 1)), errors], axis=-1)


def finite_or_nan(values: Any) -> np.ndarray:
    """Values with infinities replaced by NaN."""
    values = np.asarray(values, float)
    return np.where(np.isfinite(values), values, np.nan)


def larger(name: str, columns: dict[str, Any]) -> np.ndarray:
    """Values of the signal `name`, computed from its source column."""
    signal = SIGNALS[name]
    return signal.larger(np.asarray(columns[signal.source], float))
