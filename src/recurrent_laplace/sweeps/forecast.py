"""Forecasts of a sweep's time: estimates, corrected by the updates that were measured so far."""

import contextlib
import json
import statistics
import time
from collections.abc import Iterable

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.provenance import read_sessions
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.plan import Job

WITHOUT_EFFECT = ("updates", "beta", "learning_rate", "final_learning_rate", "entropy_weight")
WITHOUT_EFFECT += ("final_entropy_weight", "weight_decay", "predictive_floor")
"""Options of learning that do not change the time of an update."""

Kind = str


class Forecast:
    """Worker-seconds of jobs, from the measured times of jobs of the same kind.

    A kind is everything that decides the time of an update. The time of a job is that of its updates and the
    rest: start, compilation, evaluation. What was not measured for a kind is its estimate, times the median
    ratio of measured to estimated times of the kinds of the same task, or of all. Without any measurement
    `seconds` is the estimate on two cores.

    **Arguments:** `sweeps`, whose finished and running jobs are the measurements.
    """

    def __init__(self, sweeps: Iterable[SweepDirectory]):
        self.updates: dict[Kind, float] = {}
        self.rests: dict[Kind, float] = {}
        samples: dict[Kind, list[float]] = {}
        rests: dict[Kind, list[float]] = {}
        ratios: list[tuple[str, float]] = []
        rest_ratios: list[tuple[str, float]] = []
        for sweep in sweeps:
            started = {path.name for path in sweep.runs.glob("*")}
            for job in sweep.plan.jobs:
                if job.id not in started:
                    continue
                kind, cost = kind_of(job), estimate(job.run, job.test_tasks)
                measured = _update_seconds(sweep, job)
                if measured is not None:
                    samples.setdefault(kind, []).append(measured)
                    ratios.append((_task(job), measured / cost.update_seconds))
                entry = sweep.leases.entry(job.id)
                updates = job.run.config.learning.updates
                if entry.seconds and (measured is not None or not updates) and sweep.is_done(job):
                    rest = max(entry.seconds - updates * (measured or 0.0), 0.0)
                    rests.setdefault(kind, []).append(rest)
                    rest_ratios.append((_task(job), rest / _rest_of(job)))
        self.updates = {kind: statistics.median(values) for kind, values in samples.items()}
        self.rests = {kind: statistics.median(values) for kind, values in rests.items()}
        self._ratios, self._rest_ratios = ratios, rest_ratios

    @property
    def measured(self) -> int:
        """Number of kinds with a measured time."""
        return len(self.updates.keys() | self.rests.keys())

    def seconds(self, job: Job) -> float:
        """Worker-seconds of a job, from its start to the end of its evaluation."""
        cost, updates = estimate(job.run, job.test_tasks), job.run.config.learning.updates
        if not self.measured:
            return cost.seconds
        kind = kind_of(job)
        update = self.updates.get(kind, cost.update_seconds * _ratio(self._ratios, _task(job)))
        rest = self.rests.get(kind, _rest_of(job) * _ratio(self._rest_ratios, _task(job)))
        return updates * update + rest

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
    tables = dict(job.run.tables())
    learning = {name: value for name, value in tables["learning"].items() if name not in WITHOUT_EFFECT}
    trains = job.run.config.learning.updates > 0
    parts = [tables["task"], tables["agent"], tables["posterior"], learning, job.run.seeds, trains]
    return json.dumps(parts, sort_keys=True)


def _update_seconds(sweep: SweepDirectory, job: Job) -> float | None:
    """Measured time of an update; None if there is none."""
    directory = RunDirectory(sweep.runs / job.id, job.run)
    with contextlib.suppress(StorageError):
        sessions = read_sessions(directory.provenance_path)
        times = [session["update_seconds"] for session in sessions if session.get("update_seconds")]
        return statistics.median(times) if times else None
    return None


def _rest_of(job: Job) -> float:
    cost = estimate(job.run, job.test_tasks)
    return cost.seconds - job.run.config.learning.updates * cost.update_seconds


def _task(job: Job) -> str:
    return job.run.config.task.name


def _ratio(ratios: list[tuple[str, float]], task: str) -> float:
    """Median of the ratios of a task; without any, of all tasks; 1 without any at all."""
    own = [ratio for name, ratio in ratios if name == task] or [ratio for _, ratio in ratios]
    return statistics.median(own) if own else 1.0
