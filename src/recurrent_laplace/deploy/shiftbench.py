"""Which score notices that the world has changed, how soon, and what that is worth."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
from jaxtyping import Float

from recurrent_laplace.deploy.alarm import SMALLEST, Fit, fit_tables, log_ratio, statistics
from recurrent_laplace.deploy.scores import (
    Baselines,
    Scores,
    Watched,
    ensemble_scores,
    exact_surprise,
    play_episodes,
    read_episodes,
    reading_scores,
    td_errors,
)
from recurrent_laplace.evaluation.detection import detections, separation, separation_interval
from recurrent_laplace.evaluation.oracles import make_oracle
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, PosteriorConfig, with_posterior
from recurrent_laplace.tasks import AbstractBandit, AbstractControlTask
from recurrent_laplace.tasks.shifts import SHIFTS, Shifted

POSTERIORS = {
    "accumulated": PosteriorConfig(kind="laplace", covariance="diagonal"),
    "no accumulation": PosteriorConfig(kind="laplace", covariance="diagonal", accumulate="none"),
    "forgetting 0.9": PosteriorConfig(kind="laplace", covariance="diagonal", forgetting=0.9),
    "dense, no accumulation": PosteriorConfig(kind="laplace", covariance="dense", accumulate="none"),
    "over the state, no accumulation": PosteriorConfig(
        kind="laplace", covariance="dense", accumulate="none", space="state"
    ),
}
"""Laplace posteriors that are put on the agent's network."""

PREDICTIVE = (
    "value_stddev, no accumulation",
    "value_moved",
    "policy_moved",
    "policy_entropy",
    "negative value",
)
COMBINED = {
    "combined alarm": ("TD error", *PREDICTIVE),
    "combined alarm, no rewards": PREDICTIVE,
}
"""Alarms of several signals, chosen before any shifted episode was seen."""

FROM_THE_START = ("support", "prior", "new_task", "none")
"""Shifts of the problem as a whole; the others begin in the middle."""
EVENT = 20
"""Steps after a change in which a score is looked at."""
KNOWN = 5.0
"""Nats of exact surprise from which on a change could be known: less than 1 in 148."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftConfig:
    """How many episodes, how long, and when they change."""

    episodes: int = 300
    """Shifted episodes of each kind; as many clean ones to compare with, and three times as many to fit."""
    steps: int = 100
    """Steps of an episode."""
    at: int = 50
    """Steps before the change."""
    false_alarm_rate: float = 0.01
    """Share of clean episodes that may raise an alarm."""
    seed: int = 0
    """Of problems and draws."""


def shiftbench(
    agents: Sequence[Agent],
    task: AbstractControlTask,
    learning: LearningConfig,
    config: ShiftConfig,
    *,
    shifts: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> pl.DataFrame:
    """Every score on every shift: a row for each agent, shift and score.

    Agents are seeds of one configuration; where there are two or more, the others are an ensemble.
    """
    shifts = [name for name in SHIFTS if name != "none"] if shifts is None else list(shifts)
    rows = []
    for seed, agent in enumerate(agents):
        others = [other for other in agents if other is not agent]
        bench = _Bench(agent, others, task, learning, config, seed)
        for shift in shifts:
            say(f"agent {seed + 1} of {len(agents)}: {shift.replace('_', ' ')}")
            rows += [{"seed": seed, "shift": shift, **row} for row in bench.rows(shift)]
    return pl.DataFrame(rows)


class _Bench:
    """One agent: its clean episodes, what was fitted on them, and what it does in others."""

    def __init__(
        self,
        agent: Agent,
        others: list[Agent],
        task: AbstractControlTask,
        learning: LearningConfig,
        config: ShiftConfig,
        seed: int,
    ):
        self.agent, self.others, self.task = agent, others, task
        self.learning, self.config = learning, config
        self.key = jax.random.fold_in(jax.random.key(config.seed), seed)
        self.oracle = make_oracle(task, test=False, steps=config.steps)
        self.watchers = {name: with_posterior(agent, p, key=self.key) for name, p in POSTERIORS.items()}
        # Three parts of one size, so that one program serves them and all that follow.
        parts = [self._play("none", part) for part in range(3)]
        self.baselines = Baselines(parts[0])
        scores = [self._scores(part) for part in parts]
        clean = {name: np.concatenate([part[name] for part in scores]) for name in scores[0]}
        self.fits = {name: self._fit({name: values}) for name, values in clean.items()}
        for name, signals in COMBINED.items():
            self.fits[name] = self._fit({signal: clean[signal] for signal in signals})
        self.clean = self._scores(self._play("none", 3))

    def rows(self, shift: str) -> list[dict[str, Any]]:
        """A row for each score."""
        config = self.config
        played = self._play(shift, 4)
        scores = self._scores(played)
        change = 0 if shift in FROM_THE_START else config.at
        end = config.steps if change == 0 else min(change + EVENT, config.steps)
        knowable = self._knowable(scores["exact surprise"], change)
        rows = []
        for name, fit in self.fits.items():
            changed, clean = (self._table(fit, each) for each in (scores, self.clean))
            combined = name in COMBINED
            peaks = [log_ratio(fit, table)[:, change:end].max(axis=1) for table in (changed, clean)]
            apart = separation(*peaks)
            low, high = separation_interval(*peaks, draws=200)
            raised, false = (statistics(fit, table) > fit.threshold for table in (changed, clean))
            found = detections(raised, false, change=change, knowable=knowable)
            row = {"score": name, **apart._asdict(), "auroc_low": low, "auroc_high": high, **found._asdict()}
            if combined:
                row |= self._worth(shift, played, raised, change)
            rows.append(row)
        return rows

    def _worth(self, shift: str, played: Watched, raised: np.ndarray, change: int) -> dict[str, float]:
        """Return after the change, and what it is when the belief is reset at the first alarm."""
        first = np.where(raised.any(axis=1), raised.argmax(axis=1) + 1, raised.shape[1])
        resets = np.arange(raised.shape[1]) == first[:, None]
        again = self._play(shift, 4, resets)
        rewards = [np.asarray(each.experience.reward)[:, change:].sum(axis=1) for each in (played, again)]
        return {"return_kept": float(rewards[0].mean()), "return_reset": float(rewards[1].mean())}

    def _play(self, shift: str, part: int, resets: np.ndarray | None = None) -> Watched:
        episodes = self.config.episodes
        task = Shifted(base=self.task, shift=shift, at=self.config.at)
        key = jax.random.fold_in(self.key, part)
        none = np.zeros((episodes, self.config.steps), bool)
        return play_episodes(
            self.agent,
            task,
            self.learning,
            episodes=episodes,
            steps=self.config.steps,
            resets=none if resets is None else resets,
            key=key,
        )

    def _scores(self, played: Watched) -> Scores:
        readings = {name: read_episodes(agent, played) for name, agent in self.watchers.items()}
        any_reading = next(iter(readings.values()))
        scores = reading_scores(readings) | self.baselines.scores(played, any_reading)
        scores["TD error"] = td_errors(any_reading, played.experience, self.learning.discount)
        if len(self.others) > 1:
            scores |= ensemble_scores([self.agent, *self.others], played)
        scores["exact surprise"] = exact_surprise(self.oracle, played.experience)
        return {name: _as_log(name, values) for name, values in scores.items()}

    def _fit(self, scores: Scores) -> Fit:
        tables = np.stack(list(scores.values()), axis=-1)
        return fit_tables(list(tables), tuple(scores), false_alarm_rate=self.config.false_alarm_rate)

    def _table(self, fit: Fit, scores: Scores) -> Float[np.ndarray, "E T K"]:
        return np.stack([scores[name] for name in fit.signals], axis=-1)

    def _knowable(self, log_surprise: Float[np.ndarray, "E T"], change: int) -> Float[np.ndarray, " E"]:
        """When the exact belief was contradicted; a bandit says a little from the first pull on."""
        if isinstance(self.task, AbstractBandit):
            return np.full(len(log_surprise), float(change))
        known = np.exp(log_surprise) - SMALLEST > KNOWN
        known[:, :change] = False
        return np.where(known.any(axis=1), known.argmax(axis=1).astype(float), np.inf)


SIGNED = ("entropy", "negative value", "random", "policy_entropy")
"""Scores that may be negative, or whose logarithm would say less than they do."""


def _as_log(name: str, values: np.ndarray) -> np.ndarray:
    return values if name.startswith(SIGNED) else np.log(np.maximum(values, 0) + SMALLEST)
