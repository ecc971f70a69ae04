"""Which score notices that the world has changed, how soon, and what that is worth."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
from jaxtyping import Float

from recurrent_laplace.deploy.alarm import Fit, fit_tables, log_ratios, scores
from recurrent_laplace.deploy.readings import Reading
from recurrent_laplace.deploy.regression_scores import (
    exact_value_surprise,
    functions_watched_by,
    prediction_errors,
    watch_functions,
)
from recurrent_laplace.deploy.scores import (
    Baselines,
    Scores,
    Watched,
    belief_scores,
    ensemble_scores,
    exact_surprise,
    play_episodes,
    read_episodes,
    reading_scores,
    td_errors,
    watched_by,
)
from recurrent_laplace.deploy.signals import log_size
from recurrent_laplace.errors import check_choice
from recurrent_laplace.evaluation.detection import detections, separation, separation_interval
from recurrent_laplace.evaluation.oracles import make_oracle
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, PosteriorConfig, Regressor, with_posterior
from recurrent_laplace.tasks import AbstractBandit, AbstractControlTask, AbstractTask, Regression
from recurrent_laplace.tasks.shifts import Shifted, shifts_of

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
    ("downward move of the value", "value"),
    ("negative value", "value"),
    ("policy_moved", "value"),
    ("policy_entropy", "value"),
)
COMBINED = {
    "combined alarm": (
        ("downward TD error", "step"),
        ("TD error", "step"),
        ("downward TD error", "value"),
        *PREDICTIVE,
    ),
    "combined alarm, no rewards": PREDICTIVE,
}
"""The signals of alarms, and whether each is compared at the same step or after a like value; as in
`ShiftAlarm`."""
COMBINED_OF_FUNCTIONS = {
    "combined alarm": (
        ("prediction error", "step"),
        ("value_moved", "step"),
        ("value_stddev, no accumulation", "step"),
    )
}
"""The same for regression, where there is no reward to do without."""

FROM_THE_START = ("support", "prior", "function_class", "new_task", "none")
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
    steps: int | None = None
    """Steps of an episode; as many as in training by default."""
    at: int | None = None
    """Steps before the change; half of them by default."""
    false_alarm_rate: float = 0.01
    """Share of clean episodes that may raise an alarm."""
    seed: int = 0
    """Of problems and draws."""


def shiftbench(
    models: Sequence[Agent | Regressor],
    task: AbstractTask,
    learning: LearningConfig,
    config: ShiftConfig,
    *,
    shifts: Sequence[str] | None = None,
    beside: Mapping[str, Sequence[Agent | Regressor]] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> pl.DataFrame:
    """Every score on every shift: a row for each model, shift and score.

    Models are seeds of one configuration; agents of which there are three or more are an ensemble, too.
    `beside`, by name: networks that were trained with a posterior of their own. They follow the episodes
    of the model with the same number, and their beliefs are scores, too.
    """
    shifts = [name for name in shifts_of(task) if name != "none"] if shifts is None else list(shifts)
    for shift in shifts:
        check_choice("shifts", shift, shifts_of(task))
    steps = learning.steps if config.steps is None else config.steps
    config = dataclasses.replace(config, steps=steps, at=steps // 2 if config.at is None else config.at)
    rows = []
    for seed, model in enumerate(models):
        followers = {name: some[seed % len(some)] for name, some in (beside or {}).items()}
        if isinstance(model, Agent):
            assert isinstance(task, AbstractControlTask)
            others = [other for other in models if other is not model and isinstance(other, Agent)]
            bench = _AgentBench(model, others, task, learning, config, seed, followers)
        else:
            assert isinstance(task, Regression)
            bench = _RegressorBench(model, task, config, seed, followers)
        for shift in shifts:
            say(f"network {seed + 1} of {len(models)}: {shift.replace('_', ' ')}")
            rows += [{"seed": seed, "shift": shift, **row} for row in bench.rows(shift)]
    return pl.DataFrame(rows)


class _Bench(abc.ABC):
    """One network: its clean episodes, what was fitted on them, and what it does in others."""

    combined: dict[str, tuple[tuple[str, str], ...]]

    def __init__(
        self,
        model: Agent | Regressor,
        config: ShiftConfig,
        seed: int,
        followers: Mapping[str, Agent | Regressor],
    ):
        self.config = config
        self.followers = followers
        assert config.steps is not None
        assert config.at is not None
        self.steps, self.at = config.steps, config.at
        self.key = jax.random.fold_in(jax.random.key(config.seed), seed)
        self.watchers = {name: with_posterior(model, p, key=self.key) for name, p in POSTERIORS.items()}
        # Three parts of one size, so that one program serves them and all that follow.
        parts = [self._play("none", part) for part in range(3)]
        self.baselines = Baselines(parts[0], seed=seed)
        by_part = [self._scores(part) for part in parts]
        clean = {name: np.concatenate([part[name] for part in by_part]) for name in by_part[0]}
        alone = {name: ((name, "step"),) for name in clean if name != VALUE_BEFORE}
        self.fits = {name: self._fit(clean, signals) for name, signals in (alone | self.combined).items()}
        self.clean = self._scores(self._play("none", 3))

    def rows(self, shift: str) -> list[dict[str, Any]]:
        """A row for each score."""
        # More time than training had begins where clean episodes end.
        longer = EVENT if shift == "horizon" else 0
        change = self.steps if longer else 0 if shift in FROM_THE_START else self.at
        played = self._play(shift, 4, steps=self.steps + longer)
        changed_scores = self._scores(played)
        end = self.steps if change == 0 else min(change + EVENT, self.steps + longer)
        knowable = self._knowable(changed_scores["exact surprise"], change)
        rows = []
        for name, fit in self.fits.items():
            changed, clean = (self._table(fit, each) for each in (changed_scores, self.clean))
            # A single score counts by its largest step, as is the custom; an alarm by what it says.
            looked_at = scores if name in self.combined else _one_step
            peaks = [
                looked_at(fit, table)[:, begin : begin + end - change].max(axis=1)
                for table, begin in ((changed, change), (clean, min(change, self.steps - (end - change))))
            ]
            apart = separation(*peaks)
            low, high = separation_interval(*peaks, draws=500)
            raised, false = (scores(fit, table) > fit.threshold for table in (changed, clean))
            found = detections(raised, false, change=change, knowable=knowable)
            row = {"score": name, **apart._asdict(), "auroc_low": low, "auroc_high": high, **found._asdict()}
            if name in self.combined:
                row |= self._worth(shift, played, raised, change)
            rows.append(row)
        return rows

    @abc.abstractmethod
    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> Watched:
        """Episodes under a shift; each part has keys of its own."""

    @abc.abstractmethod
    def _scores(self, played: Watched) -> Scores:
        """All scores of them, larger where a change is more likely."""

    def _worth(self, shift: str, played: Watched, raised: np.ndarray, change: int) -> dict[str, float]:
        """What acting on the alarm changes."""
        del shift, played, raised, change
        return {}

    def _knowable(self, surprise: Float[np.ndarray, "E T"], change: int) -> Float[np.ndarray, " E"]:
        """When the exact belief was contradicted."""
        known = surprise > KNOWN
        known[:, :change] = False
        return np.where(known.any(axis=1), known.argmax(axis=1).astype(float), np.inf)

    def _read(self, played: Watched) -> tuple[Scores, Reading]:
        """The scores that all networks have, and the reading of one posterior."""
        readings = {name: read_episodes(watcher, played) for name, watcher in self.watchers.items()}
        any_reading = next(iter(readings.values()))
        found = reading_scores(readings) | self.baselines.scores(played, any_reading)
        for name, follower in self.followers.items():
            if isinstance(follower, Agent):
                watched = watched_by(follower, played)
            else:
                watched = functions_watched_by(follower, played)
            found |= belief_scores(name, read_episodes(follower, watched))
        value = found.pop("value")
        found[VALUE_BEFORE] = np.concatenate([np.full((len(value), 1), np.nan), value[:, :-1]], axis=1)
        return found, any_reading

    def _fit(self, clean: Scores, signals: tuple[tuple[str, str], ...]) -> Fit:
        names, given = zip(*signals, strict=True)
        tables = np.stack([*(clean[name] for name in names), clean[VALUE_BEFORE]], axis=-1)
        return fit_tables(list(tables), names, given, false_alarm_rate=self.config.false_alarm_rate)

    def _table(self, fit: Fit, found: Scores) -> Float[np.ndarray, "E T K1"]:
        return np.stack([*(found[name] for name in fit.signals), found[VALUE_BEFORE]], axis=-1)


class _AgentBench(_Bench):
    """An agent, and the others of its ensemble."""

    combined = COMBINED

    def __init__(
        self,
        agent: Agent,
        others: list[Agent],
        task: AbstractControlTask,
        learning: LearningConfig,
        config: ShiftConfig,
        seed: int,
        followers: Mapping[str, Agent | Regressor],
    ):
        self.agent, self.others, self.task, self.learning = agent, others, task, learning
        self.oracle = make_oracle(task, test=False, steps=(config.steps or 0) + EVENT)
        super().__init__(agent, config, seed, followers)

    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> Watched:
        episodes, steps = self.config.episodes, steps or self.steps
        return play_episodes(
            self.agent,
            Shifted(base=self.task, shift=shift, at=self.at),
            self.learning,
            episodes=episodes,
            steps=steps,
            resets=np.zeros((episodes, steps), bool) if resets is None else resets,
            key=jax.random.fold_in(self.key, part),
        )

    def _scores(self, played: Watched) -> Scores:
        found, reading = self._read(played)
        found["negative value"] = -np.asarray(reading.value, float)
        found["downward move of the value"] = -found["value_moved"]
        found["TD error"] = td_errors(reading, played.experience, self.learning.discount)
        found["downward TD error"] = -found["TD error"]
        if len(self.others) > 1:
            found |= ensemble_scores([self.agent, *self.others], played)
        found["exact surprise"] = exact_surprise(self.oracle, played.experience)
        return {name: _as_log(name, values) for name, values in found.items()}

    def _worth(self, shift: str, played: Watched, raised: np.ndarray, change: int) -> dict[str, float]:
        """Return after the change, and what it is when the belief is reset at the first alarm."""
        first = np.where(raised.any(axis=1), raised.argmax(axis=1) + 1, raised.shape[1])
        resets = np.arange(raised.shape[1]) == first[:, None]
        again = self._play(shift, 4, resets, raised.shape[1])
        rewards = [np.asarray(each.experience.reward)[:, change:].sum(axis=1) for each in (played, again)]
        return {"return_kept": float(rewards[0].mean()), "return_reset": float(rewards[1].mean())}

    def _knowable(self, surprise: Float[np.ndarray, "E T"], change: int) -> Float[np.ndarray, " E"]:
        if isinstance(self.task, AbstractBandit):
            # It says a little from the first pull on.
            return np.full(len(surprise), float(change))
        return super()._knowable(surprise, change)


class _RegressorBench(_Bench):
    """A network that predicts."""

    combined = COMBINED_OF_FUNCTIONS

    def __init__(
        self,
        model: Regressor,
        task: Regression,
        config: ShiftConfig,
        seed: int,
        followers: Mapping[str, Agent | Regressor],
    ):
        self.model, self.task = model, task
        super().__init__(model, config, seed, followers)

    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> Watched:
        del resets
        return watch_functions(
            self.model,
            self.task,
            shift,
            functions=self.config.episodes,
            steps=steps or self.steps,
            at=self.at,
            key=jax.random.fold_in(self.key, part),
        )

    def _scores(self, played: Watched) -> Scores:
        found, reading = self._read(played)
        found["prediction error"] = prediction_errors(reading, played)
        found["exact surprise"] = np.array(exact_value_surprise(self.task, played), float)
        return {name: _as_log(name, values) for name, values in found.items()}


VALUE_BEFORE = "value of the step before"
"""What signals can be compared at; no score itself."""
SIGNED = (VALUE_BEFORE, "entropy", "negative value", "downward", "random", "policy_entropy", "exact surprise")
"""Scores that may be negative, or whose logarithm would say less than they do."""


def _as_log(name: str, values: np.ndarray) -> np.ndarray:
    return values if name.split(": ")[-1].startswith(SIGNED) else log_size(values)


def _one_step(fit: Fit, table: np.ndarray) -> Float[np.ndarray, "E T"]:
    return log_ratios(fit, table)[..., 0]
