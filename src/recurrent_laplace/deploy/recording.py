"""Episodes of an agent that was watched, step by step."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array

from recurrent_laplace.deploy.diagnose import Diagnosis, diagnose
from recurrent_laplace.deploy.monitor import Monitor
from recurrent_laplace.deploy.readings import Reading
from recurrent_laplace.deploy.scores import play_episodes
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractControlTask


@dataclasses.dataclass(frozen=True)
class Episode:
    """What was seen, done and read in one episode: a row of `steps` for each step.

    Columns: `t` from 1, `reward` of the action taken at t, whether with it an episode `ended` inside of the
    task, `action` (`action_0`, ... where it has several
    numbers), and one for each reading. `inputs` are the memory's, `seen` what else the heads saw.
    """

    steps: pl.DataFrame
    inputs: np.ndarray
    seen: Any = None
    source: str = ""
    """Identity of the posterior that was read."""

    @classmethod
    def of(
        cls,
        inputs: list[np.ndarray],
        actions: list[Any],
        rewards: list[float],
        readings: list[Reading],
        seen: Any = None,
        ended: Any = None,
    ) -> "Episode":
        """From lists with an entry for each step."""
        columns: dict[str, Any] = {"t": np.arange(1, len(rewards) + 1), "reward": np.array(rewards, float)}
        columns["ended"] = np.zeros(len(rewards), bool) if ended is None else np.asarray(ended, bool)
        table = np.reshape(np.asarray(actions), (len(actions), -1))
        for index, column in enumerate(table.T):
            columns["action" if table.shape[1] == 1 else f"action_{index}"] = column
        for name in readings[0].scalars():
            if name != "step":
                columns[name] = np.array([getattr(reading, name) for reading in readings], float)
        return cls(pl.DataFrame(columns), np.stack(inputs), seen, readings[0].source)

    def summary(self) -> dict[str, float]:
        """One number for each column: length, the sum of rewards, and means of the readings."""
        columns = {name: self.steps[name].to_numpy() for name in ("reward", *self.readings)}
        numbers = {"steps": float(len(self.steps)), "return": float(columns.pop("reward").sum())}
        return numbers | {name: float(values.mean()) for name, values in columns.items()}

    @property
    def readings(self) -> list[str]:
        """The columns that are readings."""
        others = ("t", "reward", "ended", *self.actions)
        return [name for name in self.steps.columns if name not in others]

    @property
    def actions(self) -> list[str]:
        """The columns that are actions."""
        return [name for name in self.steps.columns if name.startswith("action")]


def play_task(
    agent: Agent,
    task: AbstractControlTask,
    learning: LearningConfig,
    *,
    episodes: int,
    steps: int,
    greedy: bool = False,
    key: Array,
) -> tuple[Monitor, list[Episode]]:
    """An agent of ours in test problems of its task, acting as it does in evaluation, and watched."""
    played = play_episodes(
        agent, task, learning, episodes=episodes, steps=steps, test=True, greedy=greedy, key=key
    )
    monitor = Monitor(
        agent.posterior,
        policy=agent.policy_head,
        value=agent.value_head,
        streams=episodes,
    )
    readings = [
        monitor.step(played.inputs[:, t], seen=jax.tree.map(lambda leaf, t=t: leaf[:, t], played.seen))
        for t in range(steps)
    ]
    return monitor, [
        Episode.of(
            list(np.asarray(played.inputs[index])),
            list(np.asarray(played.experience.action[index])),
            list(np.asarray(played.experience.reward[index])),
            [jax.tree.map(lambda leaf, i=index: leaf[i], reading) for reading in readings],
            jax.tree.map(lambda leaf, i=index: leaf[i], played.seen),
            np.asarray(played.experience.episode_end[index]),
        )
        for index in range(episodes)
    ]


def diagnose_episodes(monitor: Monitor, episodes: list[Episode]) -> Diagnosis | None:
    """`diagnose` on the steps that all episodes have; None if that is not two episodes of two steps."""
    shortest = min(len(episode.inputs) for episode in episodes)
    if len(episodes) < 2 or shortest < 2:
        return None

    def stacked(arrays: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack([leaf[:shortest] for leaf in leaves]), *arrays)

    return diagnose(
        monitor.posterior,
        stacked([episode.inputs for episode in episodes]),
        policy=monitor.heads.policy,
        value=monitor.heads.value,
        seen=stacked([episode.seen for episode in episodes]),
        samples=monitor.samples,
    )
