"""Forecasts of a sweep's time: estimates, corrected by the updates that were measured so far."""

import contextlib
import json
import statistics
import time
from collections.abc import Iterable
from typing import Any

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.estimate import COMPILE_SECONDS, estimate
from recurrent_laplace.runs.provenance import read_sessions
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.plan import Job

WITHOUT_EFFECT = ("updates", "beta", "learning_rate", "final_learning_rate", "entropy_weight")
WITHOUT_EFFECT += ("final_entropy_weight", "weight_decay", "predictive_floor")
"""Options of learning that do not change the time of an update."""

START_SECONDS = 2.0
"""Start of a run whose programs were compiled before."""
TRAINING_FRACTION = 0.6
"""Part of the time of compilation that the training program takes; the rest is that of the evaluation."""
QUICK = 0.3
"""Time of compilation without optimisation, relative to that with it."""

Kind = str


class Forecast:
    """Worker-seconds of jobs, from the measured times of jobs of the same kind.

    A kind is everything that decides the time of an update. The time of a job is that of its updates and the
    rest: start, compilation of programs that no earlier job has compiled, evaluation. What was not measured
    for a kind is its estimate, times the median ratio of measured to estimated times of the kinds of the same
    task, or of all. Without any measurement times are estimates on two cores.

    **Arguments:** `sweeps`, in the order of their execution, whose finished and running jobs are measured.
    """

    def __init__(self, sweeps: Iterable[SweepDirectory]):
        self._compiles: dict[str, float] = {}
        updates: dict[Kind, list[float]] = {}
        rests: dict[tuple[Kind, float], list[float]] = {}
        self._update_ratios: list[tuple[str, float]] = []
        self._rest_ratios: list[tuple[str, float]] = []
        compiled: set[str] = set()
        for sweep in sweeps:
            started = {path.name for path in sweep.runs.glob("*")}
            for job in sweep.plan.jobs:
                programs = _programs(job)
                new = sum(fraction for name, fraction in programs.items() if name not in compiled)
                compiled |= programs.keys()
                self._compiles.setdefault(job.id, new * (QUICK if sweep.plan.quick_compile else 1.0))
                if job.id not in started:
                    continue
                measured = update_seconds(sweep, job)
                if measured is not None:
                    updates.setdefault(kind_of(job), []).append(measured)
                    estimated = estimate(job.run, job.test_tasks).update_seconds
                    self._update_ratios.append((_task(job), measured / estimated))
                entry, count = sweep.leases.entry(job.id), job.run.config.learning.updates
                if entry.seconds and (measured is not None or not count) and sweep.is_done(job):
                    rest = max(entry.seconds - count * (measured or 0.0), 0.0)
                    rests.setdefault((kind_of(job), self._compiles[job.id]), []).append(rest)
                    self._rest_ratios.append((_task(job), rest / self._estimated_rest(job)))
        self._updates = {kind: statistics.median(values) for kind, values in updates.items()}
        self._rests = {key: statistics.median(values) for key, values in rests.items()}

    @property
    def measured(self) -> int:
        """Number of kinds with a measured time."""
        return len(self._updates.keys() | {kind for kind, _ in self._rests})

    def seconds(self, job: Job) -> float:
        """Worker-seconds of a job of the sweeps, from its start to the end of its evaluation."""
        cost, updates = estimate(job.run, job.test_tasks), job.run.config.learning.updates
        if not self.measured:
            return updates * cost.update_seconds + self._estimated_rest(job)
        kind, task = kind_of(job), _task(job)
        update = self._updates.get(kind, cost.update_seconds * _ratio(self._update_ratios, task))
        rest = self._rests.get((kind, self._compiles[job.id]))
        if rest is None:
            rest = self._estimated_rest(job) * _ratio(self._rest_ratios, task)
        return updates * update + rest

    def _estimated_rest(self, job: Job) -> float:
        cost = estimate(job.run, job.test_tasks)
        evaluation = cost.seconds - job.run.config.learning.updates * cost.update_seconds - COMPILE_SECONDS
        return START_SECONDS + COMPILE_SECONDS * self._compiles[job.id] + evaluation

    def remaining(self, sweep: SweepDirectory) -> float:
        """Worker-seconds until the jobs of a sweep are done; those that failed are not tried again."""
        total = 0.0
        for job, status in zip(sweep.plan.jobs, sweep.statuses().values(), strict=True):
            if status.state in ("done", "failed", "blocked"):
                continue
            entry = sweep.leases.entry(job.id)
            spent = entry.seconds + (time.time() - entry.since if status.state == "running" else 0.0)
            total += max(self.seconds(job) - spent, 0.0)
        return total


def kind_of(job: Job) -> Kind:
    """Identity of everything that decides the time of a job, its number of updates apart."""
    return json.dumps([*_model(job), job.run.seeds, job.run.config.learning.updates > 0], sort_keys=True)


def _model(job: Job) -> list[Any]:
    tables = job.run.tables()
    learning = {name: value for name, value in tables["learning"].items() if name not in WITHOUT_EFFECT}
    return [tables["task"], tables["agent"], tables["posterior"], learning]


def _programs(job: Job) -> dict[str, float]:
    """Programs that a job compiles, with their fractions of the time of compilation."""
    *model, learning = _model(job)
    acting = {name: learning[name] for name in ("acting_samples", "acting_policy", "lookup")}
    programs = {json.dumps([*model, acting], sort_keys=True): 1 - TRAINING_FRACTION}
    if job.run.config.learning.updates:
        programs[kind_of(job)] = TRAINING_FRACTION
    return programs


def update_seconds(sweep: SweepDirectory, job: Job) -> float | None:
    """Measured time of an update; None if there is none."""
    directory = RunDirectory(sweep.runs / job.id, job.run)
    with contextlib.suppress(StorageError):
        sessions = read_sessions(directory.provenance_path)
        times = [session["update_seconds"] for session in sessions if session.get("update_seconds")]
        return statistics.median(times) if times else None
    return None


def _task(job: Job) -> str:
    return job.run.config.task.name


def _ratio(ratios: list[tuple[str, float]], task: str) -> float:
    """Median of the ratios of a task; without any, of all tasks; 1 without any at all."""
    own = [ratio for name, ratio in ratios if name == task] or [ratio for _, ratio in ratios]
    return statistics.median(own) if own else 1.0
