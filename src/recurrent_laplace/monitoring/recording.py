"""Recorded episodes of any agent: what a predictor is fitted on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from recurrent_laplace.errors import LARGEST_NUMBER, check_shape
from recurrent_laplace.monitoring.episode import Episode

PARTS = ("inputs", "observations", "actions", "rewards", "final_observation")
"""Arrays of a recording."""
MOST_ACTIONS = 2**12
"""Upper limit of the number of discrete actions: queries are one-hot."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """Inputs, actions and rewards of one recorded episode.

    **Arguments:**

    - `inputs`: the memory's inputs, `(T, D)`.
    - `actions`: discrete actions `(T,)`, whole numbers, or continuous ones `(T, A)`.
    - `rewards`: the reward of each action, `(T,)`.
    - `observations`: observations that the actions were based on, `(T, O)`; None if they are the inputs.
    - `final_observation`: observation after the last action, `(O,)`, if known. Without it, what the last
      action led to is known in part, and left out where observations are predicted.
    - `source`: `rl.Monitor.source` of the recording agent, if known.

    ```python
    recording = rl.Recording(np.zeros((5, 3)), np.array([0, 1, 1, 0, 1]), np.ones(5))
    recording.observations.shape  # (5, 3)
    ```
    """

    inputs: Any
    actions: Any
    rewards: Any
    observations: Any = None
    final_observation: Any = None
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("inputs", "actions", "rewards"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        observations = self.inputs if self.observations is None else np.asarray(self.observations)
        object.__setattr__(self, "observations", observations)
        if self.final_observation is not None:
            object.__setattr__(self, "final_observation", np.asarray(self.final_observation))
        for name in PARTS:
            values = getattr(self, name)
            if values is not None and (dtype := values.dtype).kind not in "biuf":
                raise ValueError(f"{name} must be numbers; got an array of {dtype}.")
        check_shape("inputs", self.inputs, ("T", "D"))
        steps = len(self.inputs)
        check_shape("rewards", self.rewards, (steps,))
        check_shape("observations", self.observations, (steps, "O"))
        if self.final_observation is not None:
            check_shape("final_observation", self.final_observation, observations.shape[1:])
        if self.actions.ndim != 1:
            check_shape("actions", self.actions, (steps, "A"))
        elif len(self.actions) != steps or not np.issubdtype(self.actions.dtype, np.integer):
            raise ValueError(
                f"actions must be {steps} whole numbers, or vectors of shape ({steps}, A); "
                f"got shape {self.actions.shape} of {self.actions.dtype}."
            )

    @classmethod
    def of(cls, episode: "Episode | Recording") -> "Recording":
        """Recording of an `episode` of a monitored agent."""
        if isinstance(episode, Recording):
            return episode
        actions = np.stack([episode.steps[name].to_numpy() for name in episode.actions], axis=-1)
        if actions.shape[1] == 1 and np.issubdtype(actions.dtype, np.integer):
            actions = actions[:, 0]
        rewards = episode.steps["reward"].to_numpy()
        return cls(
            episode.inputs, actions, rewards, episode.observations, episode.final_observation, episode.source
        )

    def queries(self, actions: int) -> Float[np.ndarray, "T Q"]:
        """Query of each step: its observation and action, one-hot if there are discrete `actions`."""
        return query_of(self.observations, self.actions, actions)

    def target(self, name: str) -> Float[np.ndarray, "T K"]:
        """What follows each step; NaN where it was not recorded."""
        if name == "reward":
            return np.asarray(self.rewards, float)[:, None]
        last = np.full(self.observations.shape[1], np.nan)
        last = last if self.final_observation is None else np.asarray(self.final_observation, float)
        return np.concatenate([np.asarray(self.observations, float)[1:], last[None]])

    def targets(self, names: Sequence[str]) -> Float[np.ndarray, "T K"]:
        """What follows each step, for several targets."""
        return np.concatenate([self.target(name) for name in names], axis=-1)


def query_of(observation: Any, action: Any, actions: int) -> Float[np.ndarray, "*lead Q"]:
    """Query of an observation and an action: a number below `actions`, or a vector if there are none."""
    action = np.asarray(action)
    if actions:
        if np.max(action) >= actions or np.min(action) < 0:
            raise ValueError(
                f"actions must be from 0 to {actions - 1}, as in the episodes that the head was fitted on; "
                f"got {np.max(action)}."
            )
        action = np.eye(actions)[action]
    return np.concatenate([np.asarray(observation, float), np.asarray(action, float)], axis=-1)


def target_of(names: Sequence[str], reward: Any, observation: Any) -> Float[np.ndarray, "*lead K"]:
    """Target of a reward and the next observation."""
    parts = {"reward": np.asarray(reward, float)[..., None], "observation": np.asarray(observation, float)}
    return np.concatenate([parts[name] for name in names], axis=-1)


def delayed(rows: Float[np.ndarray, "T K"]) -> Float[np.ndarray, "T K"]:
    """Rows at the step at which they are answered, one later; NaN at the first."""
    return np.concatenate([np.full_like(rows[:1], np.nan), rows[:-1]])


def stacked(arrays: Sequence[np.ndarray], *, fill: float) -> Float[np.ndarray, "N T K"]:
    """Arrays of several lengths in one, with `fill` after their ends."""
    longest = max(map(len, arrays))
    return np.stack([np.pad(a, ((0, longest - len(a)), (0, 0)), constant_values=fill) for a in arrays])


def check_recordings(recordings: Sequence[Recording], *, input_size: int | None, source: str) -> None:
    """Raise if recordings are of another agent, do not fit each other, are too short or not finite."""
    first = recordings[0]
    for index, recording in enumerate(recordings):
        name = f"episode {index}"
        if recording.source and source and recording.source != source:
            raise ValueError(
                f"{name} was recorded with another posterior or agent: "
                "pass the posterior of the monitor that recorded it."
            )
        if input_size not in (None, recording.inputs.shape[1]):
            raise ValueError(
                f"{name} must have inputs of length {input_size}, as the memory; got "
                f"{recording.inputs.shape[1]}: record the agent that the posterior is of."
            )
        if len(recording.inputs) < 2:
            raise ValueError(
                f"{name} must have at least two steps, to have a next one; got {len(recording.inputs)}."
            )
        shapes = [
            (each.inputs.shape[1:], each.observations.shape[1:], each.actions.shape[1:])
            for each in (first, recording)
        ]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"{name} must have inputs, observations and actions of shapes {shapes[0]}, as the first; "
                f"got {shapes[1]}."
            )
        for part in PARTS:
            values = getattr(recording, part)
            if values is None:
                continue
            values = values[None] if part == "final_observation" else values
            if (step := _first_step(~np.isfinite(values))) is not None:
                raise ValueError(
                    f"{name} has NaN or infinity in its {part}, first at step {step}: leave this episode out."
                )
            if (step := _first_step(np.abs(values) > LARGEST_NUMBER)) is not None:
                raise ValueError(
                    f"{name} has a number beyond {LARGEST_NUMBER:g} in its {part}, first at step {step}: "
                    "use a smaller unit."
                )
        if recording.actions.ndim == 1 and recording.actions.min() < 0:
            raise ValueError(f"{name} must have actions from 0 on; got {recording.actions.min()}.")
        if recording.actions.ndim == 1 and recording.actions.max() >= MOST_ACTIONS:
            raise ValueError(
                f"{name} must have actions below {MOST_ACTIONS}; got {recording.actions.max()}: "
                "count them from 0, or give vectors."
            )


def _first_step(found: np.ndarray) -> int | None:
    """First step with a true entry; None without one."""
    steps = found.reshape(len(found), -1).any(axis=1)
    return int(np.argmax(steps)) if steps.any() else None
