"""What an alarm can watch: numbers of each step that a changed world makes larger."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from recurrent_laplace.deploy.recording import Episode

SMALLEST = 1e-6
"""Added before a logarithm is taken."""


def log_size(values: np.ndarray) -> np.ndarray:
    """The logarithm of how large they are, whatever their sign."""
    return np.log(np.abs(values) + SMALLEST)


class Signal(NamedTuple):
    """Something to watch: a number of each step, what of it is larger when the world has changed, and what
    clean values it is compared with: those of the same step, or those after a like value of the agent.
    """

    source: str
    larger: Callable[[np.ndarray], np.ndarray]
    given: Literal["step", "value"]


SIGNALS = {
    "td_drop": Signal("td_error", np.negative, "step"),
    "td_error": Signal("td_error", log_size, "step"),
    "td_drop_for_value": Signal("td_error", np.negative, "value"),
    "value_drop": Signal("value_moved", np.negative, "value"),
    "value_moved": Signal("value_moved", log_size, "step"),
    "value_stddev": Signal("value_stddev", log_size, "step"),
    "value": Signal("value", np.negative, "value"),
    "policy_moved": Signal("policy_moved", log_size, "value"),
    "policy_disagreement": Signal("policy_disagreement", log_size, "step"),
    "policy_entropy": Signal("policy_entropy", np.asarray, "value"),
    "kl": Signal("kl", log_size, "step"),
    "mahalanobis": Signal("mahalanobis", log_size, "step"),
    "entropy": Signal("entropy", np.asarray, "step"),
}
"""What can be watched, with signs that were fixed before any data was seen: a world that has changed is
worse than expected, moves the belief, and leaves it less sure."""

WITHOUT_REWARDS = ("value_drop", "value", "policy_moved", "policy_entropy")
WITH_REWARDS = ("td_drop", "td_error", "td_drop_for_value", *WITHOUT_REWARDS)


def available_signals(episode: Episode) -> tuple[str, ...]:
    """The signals that an episode has the numbers for."""
    columns = set(episode.steps.columns) | ({"td_error"} if "value" in episode.steps.columns else set())
    return tuple(name for name, signal in SIGNALS.items() if signal.source in columns)


def signal_table(episode: Episode, signals: Sequence[str], discount: float) -> Float[np.ndarray, "T K1"]:
    """The signals of an episode, a row for each step, larger where a change is more likely.

    The last column is the value of the step before, NaN at first or where there is none.
    """
    steps = episode.steps
    sources = {SIGNALS[name].source for name in signals}
    columns = {name: steps[name].to_numpy() for name in sources - {"td_error"}}
    before = np.full(len(steps), np.nan)
    if "value" in steps.columns:
        value = steps["value"].to_numpy()
        before[1:] = value[:-1]
        # Known with the next input: the reward of a step is that of the action before.
        goes_on = discount * (1 - steps["ended"].to_numpy().astype(float))
        error = steps["reward"].to_numpy()[:-1] + goes_on[:-1] * value[1:] - value[:-1]
        columns["td_error"] = np.concatenate([[0.0], error])
    return np.stack([*(larger(name, columns) for name in signals), before], axis=-1)


def larger(name: str, columns: dict[str, Any]) -> np.ndarray:
    """A signal, from the numbers by their names."""
    signal = SIGNALS[name]
    return signal.larger(np.asarray(columns[signal.source], float))
