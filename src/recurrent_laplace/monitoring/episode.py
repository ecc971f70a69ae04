"""Recorded episodes of a monitored agent."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from recurrent_laplace.monitoring.readings import NOT_FINITE, Reading


@dataclasses.dataclass(frozen=True)
class Episode:
    """Inputs, actions, rewards and readings of one episode, with one row of `steps` per step.

    Columns: `t` from 1; `reward` of the action at t; `ended`, whether that action ended an episode within
    the task; `action` (`action_0`, ... for vectors); and one column per reading. `inputs` are the memory's
    inputs, `context` the heads' second argument, `observations` those of the environment, in its units.
    """

    steps: pl.DataFrame
    inputs: np.ndarray
    context: Any = None
    source: str = ""
    """Hash of the posterior that was read."""
    observations: np.ndarray | None = None
    """Observations that the actions were based on; None if they are the inputs."""
    final_observation: np.ndarray | None = None
    """Observation after the last action, if it was recorded."""

    @classmethod
    def of(
        cls,
        inputs: list[np.ndarray],
        actions: list[Any],
        rewards: list[float],
        readings: list[Reading],
        context: Any = None,
        ended: Any = None,
        *,
        observations: list[np.ndarray] | None = None,
        final_observation: np.ndarray | None = None,
    ) -> "Episode":
        """Build an episode from lists with one entry per step."""
        columns: dict[str, Any] = {"t": np.arange(1, len(rewards) + 1), "reward": np.array(rewards, float)}
        columns["ended"] = np.zeros(len(rewards), bool) if ended is None else np.asarray(ended, bool)
        table = np.reshape(np.asarray(actions), (len(actions), -1))
        for index, column in enumerate(table.T):
            columns["action" if table.shape[1] == 1 else f"action_{index}"] = column
        for name in readings[0].scalars():
            if name != "step":
                columns[name] = np.array([getattr(reading, name) for reading in readings], float)
        return cls(
            pl.DataFrame(columns),
            np.stack(inputs),
            context,
            readings[0].source,
            None if observations is None else np.stack(observations),
            final_observation,
        )

    def summary(self) -> dict[str, float]:
        """Length, return, and mean of each reading."""
        columns = {name: self.steps[name].to_numpy() for name in ("reward", *self.readings)}
        numbers = {"steps": float(len(self.steps)), "return": float(columns.pop("reward").sum())}
        return numbers | {name: float(values.mean()) for name, values in columns.items()}

    @property
    def readings(self) -> list[str]:
        """Names of the columns of readings."""
        others = ("t", "reward", "ended", *self.actions)
        return [name for name in self.steps.columns if name not in others]

    @property
    def actions(self) -> list[str]:
        """Names of the columns of actions."""
        return [name for name in self.steps.columns if name.startswith("action")]


def format_number(value: float, digits: int = 4) -> str:
    """Format a number for tables."""
    return f"{value:.{digits}g}" if np.isfinite(value) else NOT_FINITE
