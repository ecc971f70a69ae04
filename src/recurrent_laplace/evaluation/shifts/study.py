"""Shift benchmark: detection quality, delay and benefit of every score."""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import polars as pl
from jaxtyping import Float

from recurrent_laplace.errors import check_choice
from recurrent_laplace.evaluation.play import RolloutTrace, play_episodes, replayed_by
from recurrent_laplace.evaluation.shifts.regression_scores import (
    exact_value_surprise,
    functions_replayed_by,
    observe_functions,
    prediction_errors,
)
from recurrent_laplace.evaluation.shifts.scores import (
    Baselines,
    Scores,
    alarm_scores,
    belief_scores,
    ensemble_scores,
    exact_surprise,
    read_episodes,
    reading_scores,
)
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, LaplaceConfig, Regressor, with_posterior
from recurrent_laplace.monitoring.readings import Reading
from recurrent_laplace.monitoring.sequential import Fit, fit_tables, log_ratios, scores
from recurrent_laplace.monitoring.signals import SIGNALS, WITH_REWARDS, WITHOUT_REWARDS, log_size
from recurrent_laplace.oracles import make_oracle
from recurrent_laplace.scoring.detection import detections, separation, separation_interval
from recurrent_laplace.tasks import AbstractTask, require_support
from recurrent_laplace.tasks.shifts import Shifted, shift_of, shifts_of

POSTERIORS = {
    "accumulated": LaplaceConfig(covariance="diagonal"),
    "no accumulation": LaplaceConfig(covariance="diagonal", accumulate="none"),
    "forgetting 0.9": LaplaceConfig(covariance="diagonal", forgetting=0.9),
    "dense, no accumulation": LaplaceConfig(covariance="dense", accumulate="none"),
    "over the state, no accumulation": LaplaceConfig(covariance="dense", accumulate="none", space="state"),
}
"""Laplace posteriors added to each network."""

ALARMS = {"combined alarm": WITH_REWARDS, "combined alarm, no rewards": WITHOUT_REWARDS}
"""Alarms of an agent and their signals of `ShiftAlarm`."""
COMBINED = {
    alarm: tuple((SIGNALS[name].label, SIGNALS[name].given) for name in names)
    for alarm, names in ALARMS.items()
}
"""Alarms of an agent as scores with their conditioning variables."""
COMBINED_FOR_REGRESSORS = {
    "combined alarm": (
        ("prediction error", "step"),
        ("value_moved", "step"),
        ("value_stddev, no accumulation", "step"),
    )
}
"""Alarms of a regressor, which has no rewards."""

EVENT = 20
"""Steps after a shift in which scores are evaluated."""
KNOWN = 5.0
"""Exact surprise in nats above which a shift counts as detectable (probability below 1/148)."""
PREVIOUS_VALUE = "value of the step before"
"""Key of the conditioning variable among the scores; not a score itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftConfig:
    """Options of the shift benchmark."""

    episodes: int = 300
    """Shifted episodes of each kind; as many clean ones for comparison, three times as many for fitting."""
    steps: int | None = None
    """Steps per episode; by default as in training."""
    at: int | None = None
    """Steps before the shift; by default half of them."""
    false_alarm_rate: float = 0.01
    """Fraction of clean episodes that may raise an alarm."""
    seed: int = 0
    """Seed of problems and samples."""


def shiftbench(
    models: Sequence[Agent | Regressor],
    task: AbstractTask,
    learning: LearningConfig,
    config: ShiftConfig,
    *,
    shifts: Sequence[str] | None = None,
    baseline_models: Mapping[str, Sequence[Agent | Regressor]] | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> pl.DataFrame:
    """Evaluate every score on every shift: one row per model, shift and score.

    **Arguments:**

    - `models`: seeds of one configuration; three or more agents also form an ensemble.
    - `task`, `learning`: task and learning options of the models.
    - `config`: number and length of episodes.
    - `shifts`: names of shifts; by default all of the task.
    - `baseline_models`: by name, networks trained with a posterior. They replay the episodes of the model
      with the same index, and their beliefs are scores, too.
    - `progress`: called with a description of each stage.
    """
    check_shiftable(task)
    shifts = [name for name in shifts_of(task) if name != "none"] if shifts is None else list(shifts)
    for shift in shifts:
        check_choice("shifts", shift, shifts_of(task))
    steps = learning.steps if config.steps is None else config.steps
    config = dataclasses.replace(config, steps=steps, at=steps // 2 if config.at is None else config.at)
    rows = []
    for seed, model in enumerate(models):
        replaying = {name: seeds[seed % len(seeds)] for name, seeds in (baseline_models or {}).items()}
        others = [other for other in models if other is not model]
        bench_class = _AgentBench if isinstance(model, Agent) else _RegressorBench
        bench = bench_class(model, others, task, learning, config, seed, replaying)
        for shift in shifts:
            progress(f"network {seed + 1} of {len(models)}: {shift.replace('_', ' ')}")
            rows += [{"seed": seed, "shift": shift, **row} for row in bench.rows(shift)]
    return pl.DataFrame(rows)


def check_shiftable(task: AbstractTask) -> None:
    """Raise if a task has no shifts, or no exact belief to compare with."""
    for part in ("shifts", "oracle"):
        require_support(task, part, verb="shiftbench")


class _Bench(abc.ABC):
    """One network with the scores and alarms fitted on its clean episodes."""

    combined: dict[str, tuple[tuple[str, str], ...]]

    def __init__(
        self,
        model: Any,
        others: Sequence[Any],
        task: Any,
        learning: LearningConfig,
        config: ShiftConfig,
        seed: int,
        replaying: Mapping[str, Agent | Regressor],
    ):
        self.model, self.others, self.task, self.learning = model, others, task, learning
        self.config = config
        self.replaying = replaying
        assert config.steps is not None
        assert config.at is not None
        self.steps, self.at = config.steps, config.at
        self.oracle: Any = make_oracle(task, test=False, steps=config.steps + EVENT)
        self.key = jax.random.fold_in(jax.random.key(config.seed), seed)
        self.posthoc = {name: with_posterior(model, p, key=self.key) for name, p in POSTERIORS.items()}
        # Three parts of the size of the test episodes, so that all share one compiled program.
        parts = [self._play("none", part) for part in range(3)]
        self.baselines = Baselines(parts[0], seed=seed)
        by_part = [self._scores(part) for part in parts]
        clean = {name: np.concatenate([part[name] for part in by_part]) for name in by_part[0]}
        single = {name: ((name, "step"),) for name in clean if name != PREVIOUS_VALUE}
        self.fits = {name: self._fit(clean, signals) for name, signals in (single | self.combined).items()}
        self.clean = self._scores(self._play("none", 3))

    def rows(self, shift: str) -> list[dict[str, Any]]:
        """One row per score."""
        # A longer horizon than in training begins where clean episodes end.
        longer = EVENT if shift == "horizon" else 0
        change = self.steps if longer else 0 if shift_of(self.task, shift).from_the_start else self.at
        played = self._play(shift, 4, steps=self.steps + longer)
        changed_scores = self._scores(played)
        end = self.steps if change == 0 else min(change + EVENT, self.steps + longer)
        knowable = self._knowable(changed_scores["exact surprise"], change)
        rows = []
        for name, fit in self.fits.items():
            changed, clean = (_table(fit.signals, found) for found in (changed_scores, self.clean))
            # Convention: a single score is evaluated by its maximum over steps, an alarm by its own score.
            statistic = scores if name in self.combined else _one_step
            peaks = [
                statistic(fit, table)[:, begin : begin + end - change].max(axis=1)
                for table, begin in ((changed, change), (clean, min(change, self.steps - (end - change))))
            ]
            separated = separation(*peaks)
            low, high = separation_interval(*peaks, resamples=500)
            raised, false = (scores(fit, table) > fit.threshold for table in (changed, clean))
            found = detections(raised, false, change=change, knowable=knowable)
            row = {"score": name, **separated._asdict(), "auroc_low": low, "auroc_high": high}
            row |= found._asdict()
            if name in self.combined:
                row |= self._benefit(shift, played, raised, change)
            rows.append(row)
        return rows

    @abc.abstractmethod
    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> RolloutTrace:
        """Episodes under a shift; each part has its own keys."""

    @abc.abstractmethod
    def _scores(self, played: RolloutTrace) -> Scores:
        """All scores of the episodes; larger values indicate a shift."""

    def _benefit(self, shift: str, played: RolloutTrace, raised: np.ndarray, change: int) -> dict[str, float]:
        """Effect of acting on the alarm."""
        del shift, played, raised, change
        return {}

    def _knowable(self, surprise: Float[np.ndarray, "E T"], change: int) -> Float[np.ndarray, " E"]:
        """First step at which the exact belief detects the shift."""
        known = surprise > KNOWN
        known[:, :change] = False
        return np.where(known.any(axis=1), known.argmax(axis=1).astype(float), np.inf)

    def _read(self, played: RolloutTrace) -> tuple[Scores, Reading]:
        """Scores that agents and regressors share, and the reading of one posterior."""
        readings = {name: read_episodes(model, played) for name, model in self.posthoc.items()}
        any_reading = next(iter(readings.values()))
        found = reading_scores(readings) | _as_logs(self.baselines.scores(played, any_reading))
        for name, model in self.replaying.items():
            replayed = (
                replayed_by(model, played)
                if isinstance(model, Agent)
                else functions_replayed_by(model, played)
            )
            found |= belief_scores(name, read_episodes(model, replayed))
        value = np.asarray(any_reading.value, float)
        found[PREVIOUS_VALUE] = np.concatenate([np.full((len(value), 1), np.nan), value[:, :-1]], axis=1)
        return found, any_reading

    def _fit(self, clean: Scores, signals: tuple[tuple[str, str], ...]) -> Fit:
        names, given = zip(*signals, strict=True)
        rate = self.config.false_alarm_rate
        return fit_tables(list(_table(names, clean)), names, given, false_alarm_rate=rate)


class _AgentBench(_Bench):
    """Benchmark of an agent and its ensemble."""

    combined = COMBINED

    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> RolloutTrace:
        episodes, steps = self.config.episodes, steps or self.steps
        return play_episodes(
            self.model,
            Shifted(base=self.task, shift=shift, at=self.at),
            self.learning,
            episodes=episodes,
            steps=steps,
            resets=np.zeros((episodes, steps), bool) if resets is None else resets,
            key=jax.random.fold_in(self.key, part),
        )

    def _scores(self, played: RolloutTrace) -> Scores:
        found, reading = self._read(played)
        found |= alarm_scores(reading, played.experience, self.learning.discount)
        if len(self.others) > 1:
            found |= _as_logs(ensemble_scores([self.model, *self.others], played))
        return found | {"exact surprise": exact_surprise(self.oracle, played.experience)}

    def _benefit(self, shift: str, played: RolloutTrace, raised: np.ndarray, change: int) -> dict[str, float]:
        """Return after the shift, without and with a reset of the belief at the first alarm."""
        first = np.where(raised.any(axis=1), raised.argmax(axis=1) + 1, raised.shape[1])
        resets = np.arange(raised.shape[1]) == first[:, None]
        traces = {"return_kept": played, "return_reset": self._play(shift, 4, resets, raised.shape[1])}
        return {
            name: float(np.asarray(trace.experience.reward)[:, change:].sum(axis=1).mean())
            for name, trace in traces.items()
        }

    def _knowable(self, surprise: Float[np.ndarray, "E T"], change: int) -> Float[np.ndarray, " E"]:
        if self.oracle.is_gradual:
            # Evidence accumulates gradually from the first shifted step.
            return np.full(len(surprise), float(change))
        return super()._knowable(surprise, change)


class _RegressorBench(_Bench):
    """Benchmark of a regressor."""

    combined = COMBINED_FOR_REGRESSORS

    def _play(
        self, shift: str, part: int, resets: np.ndarray | None = None, steps: int | None = None
    ) -> RolloutTrace:
        del resets
        return observe_functions(
            self.model,
            self.task,
            shift,
            functions=self.config.episodes,
            steps=steps or self.steps,
            at=self.at,
            key=jax.random.fold_in(self.key, part),
        )

    def _scores(self, played: RolloutTrace) -> Scores:
        found, reading = self._read(played)
        found |= _as_logs({"prediction error": prediction_errors(reading, played)})
        return found | {"exact surprise": np.array(exact_value_surprise(self.oracle, played), float)}


def _table(names: Sequence[str], found: Scores) -> Float[np.ndarray, "E T K1"]:
    """Table of `fit_tables`: the named scores, then the previous value."""
    return np.stack([*(found[name] for name in names), found[PREVIOUS_VALUE]], axis=-1)


def _as_logs(found: Scores) -> Scores:
    """Log magnitudes of all scores but `random`, which is signed."""
    return {name: values if name == "random" else log_size(values) for name, values in found.items()}


def _one_step(fit: Fit, table: np.ndarray) -> Float[np.ndarray, "E T"]:
    return log_ratios(fit, table)[..., 0]
