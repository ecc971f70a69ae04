"""Recorded episodes of any agent: what a predictor is fitted on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from recurrent_laplace.errors import LARGEST_NUMBER, check_shape
from recurrent_laplace.monitoring.episode import Episode

PARTS = ("inputs", "observations", "actions", "rewards")
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
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("inputs", "actions", "rewards"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))
        observations = self.inputs if self.observations is None else np.asarray(self.observations)
        object.__setattr__(self, "observations", observations)
        for name in PARTS:
            if (dtype := getattr(self, name).dtype).kind not in "biuf":
                raise ValueError(f"{name} must be numbers; got an array of {dtype}.")
        check_shape("inputs", self.inputs, ("T", "D"))
        steps = len(self.inputs)
        check_shape("rewards", self.rewards, (steps,))
        check_shape("observations", self.observations, (steps, "O"))
        if self.actions.ndim != 1:
            check_shape("actions", self.actions, (steps, "A"))
        elif len(self.actions) != steps or not np.issubdtype(self.actions.dtype, np.integer):
            raise ValueError(
                f"actions must be {steps} whole numbers, or vectors of shape ({steps}, A); "
                f"got shape {self.actions.shape} of {self.actions.dtype}."
            )

    @classmethod
    def of(cls, episode: "Episode | Recording") -> "Recording":
        """Recording of an `episode` of a monitored agent, whose observations are its inputs."""
        if isinstance(episode, Recording):
            return episode
        actions = np.stack([episode.steps[name].to_numpy() for name in episode.actions], axis=-1)
        if actions.shape[1] == 1 and np.issubdtype(actions.dtype, np.integer):
            actions = actions[:, 0]
        return cls(episode.inputs, actions, episode.steps["reward"].to_numpy(), source=episode.source)


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
