"""Sweep directories: the plan, its runs, and the status of every job."""

import dataclasses
import os
import signal
import threading
import time
import typing
from pathlib import Path
from typing import Literal, NamedTuple

import tomli_w

from recurrent_laplace.files import (
    StorageError,
    is_temporary,
    read_sealed,
    read_text,
    storage_errors,
    write_sealed,
)
from recurrent_laplace.runs.derive import derive
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import evaluate_missing, evaluation_is_current
from recurrent_laplace.runs.runner import InterruptedRunError, RunOptions, TrainingFailedError, train_run
from recurrent_laplace.runs.toml import Tables, parse_toml
from recurrent_laplace.sweeps.leases import Entry, Leases
from recurrent_laplace.sweeps.plan import Job, Plan, read_plan

POLL_SECONDS = 0.5
"""Polling interval of an idle worker."""

JobState = Literal["done", "running", "ready", "waiting", "failed", "blocked"]
JOB_STATES: tuple[JobState, ...] = typing.get_args(JobState)


PARENT_FAILED = "its parent"
"""First words of the message of a blocked job."""


class JobStatus(NamedTuple):
    """State of a job, with its last error if there is one."""

    state: JobState
    message: str = ""


class SweepDirectory:
    """The directory of a sweep.

    ```
    <out>/
      sweep.toml                 the plan
      runs/<run id>/             run directories
      jobs/<run id>.json         attempts, last error, and lease of each job
      logs/                      output of the workers
    ```
    """

    def __init__(self, path: Path, plan: Plan, attempts: int = 2):
        self.path = path
        self.plan = plan
        self.attempts = attempts
        self.references: tuple[str, ...] = ()
        """References of tasks that workers load: those that the user has named."""
        self.runs = path / "runs"
        self.leases = Leases(path / "jobs", runs=self.runs)
        self._done: set[str] = set()

    @classmethod
    def make(cls, path: Path, tables: Tables, source: Path, only: tuple[str, ...] = ()) -> "SweepDirectory":
        """Sweep described by `tables`, at `path`, which must be new or hold the same sweep."""
        plan = read_plan(tables, source).only(only)
        for folder in (path, *path.parents):
            if folder.exists() and not folder.is_dir():
                raise StorageError(f"a sweep cannot be put at {path}: {folder} is a file.")
        file = path / "sweep.toml"
        others = [other for other in path.glob("*") if not is_temporary(other)]
        # Checked after the others, because a concurrent start of the same sweep writes this file first.
        if file.exists():
            if parse_toml(read_sealed(file), file) != tables:
                raise StorageError(f"{path} is the directory of another sweep: {file} differs from {source}.")
        elif others:
            raise StorageError(f"{path} exists and is not the directory of a sweep: it has no sweep.toml.")
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path, only: tuple[str, ...] = ()) -> "SweepDirectory":
        """Open the directory of an existing sweep."""
        file = path / "sweep.toml"
        if not file.is_file():
            raise StorageError(f"{path} is not the directory of a sweep: it has no sweep.toml.")
        return cls(path, read_plan(parse_toml(read_sealed(file), file), file).only(only))

    def write(self, tables: Tables) -> None:
        """Create the directory and its `sweep.toml`."""
        with storage_errors("write", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / "sweep.toml"
        if file.exists():
            return
        try:
            write_sealed(file, tomli_w.dumps(tables))
        except StorageError:
            if not file.exists():  # Otherwise another sweeper has written the same content.
                raise

    def is_done(self, job: Job) -> bool:
        """Whether a job's run is trained and its final weights are evaluated; True is cached."""
        if job.id not in self._done:
            directory = RunDirectory(self.runs / job.id, job.run)
            status = directory.path / "status"
            # The cheapest check comes first: there may be ten thousand jobs.
            if not status.is_file() or not directory.evaluation_path.is_file():
                return False
            if read_text(status).strip() != "finished":
                return False
            snapshots = directory.checkpoints.updates() if job.evaluate_snapshots else []
            updates = [None, *snapshots]
            if not all(evaluation_is_current(directory, update, job.test_tasks) for update in updates):
                return False
            self._done.add(job.id)
        return True

    def status(self, job: Job) -> JobStatus:
        """Status of a job."""
        return self._status(job, None if job.parent is None else self.status(job.parent))

    def statuses(self) -> dict[str, JobStatus]:
        """Status of every job, by id.

        Only the files of started jobs are read: there may be ten thousand others, on a slow disk.
        """
        started = self.leases.jobs() | {path.name for path in self.runs.glob("*")}
        statuses: dict[str, JobStatus] = {}
        for job in self.plan.jobs:
            parent = None if job.parent is None else statuses[job.parent.id]
            statuses[job.id] = self._status(job, parent, started=job.id in started)
        return statuses

    def _status(self, job: Job, parent: JobStatus | None, *, started: bool = True) -> JobStatus:
        if started and self.is_done(job):
            return JobStatus("done")
        entry = self.leases.entry(job.id) if started else Entry()
        if self.leases.is_held(job.id, entry):
            return JobStatus("running")
        if entry.attempts >= self.attempts:
            return JobStatus("failed", entry.error)
        if job.parent is not None and parent is not None:
            if parent.state in ("failed", "blocked"):
                return JobStatus("blocked", f"{PARENT_FAILED} {job.parent.id} failed.")
            if parent.state != "done":
                return JobStatus("waiting")
        return JobStatus("ready", entry.error)

    def work(self) -> None:
        """Execute jobs until all are done, failed or blocked."""
        while True:
            statuses = self.statuses()
            ready = [job for job in self.plan.jobs if statuses[job.id].state == "ready"]
            job = next((job for job in ready if self.leases.acquire(job.id, self.attempts)), None)
            if job is not None:
                self._attempt(job)
            elif all(status.state in ("done", "failed", "blocked") for status in statuses.values()):
                return
            else:
                time.sleep(POLL_SECONDS)

    def work_on(self, job_id: str) -> None:
        """Execute one job, if it is ready and not leased to another worker."""
        job = next((job for job in self.plan.jobs if job.id == job_id), None)
        if job is None:
            raise StorageError(f"{self.path / 'sweep.toml'} has no run {job_id}: the file was changed.")
        if self.status(job).state == "ready" and self.leases.acquire(job.id, self.attempts):
            self._attempt(job)

    def _attempt(self, job: Job) -> None:
        print(f"begins: {job.id} ({job.stage}), {describe(job)}", flush=True)
        error, counts, lost = "the worker was stopped.", False, threading.Event()
        try:
            with self.leases.renewed(job.id, _interrupt) as lost:
                self.perform(job)
            error, counts = "", True
        except (InterruptedRunError, KeyboardInterrupt):
            if not lost.is_set():
                raise
            print(f"left: {job.id}: another worker has taken over its lease", flush=True)
        except Exception as problem:
            # A run that fails, for whatever reason, does not stop the others.
            error, counts = f"{type(problem).__name__}: {problem}", True
            print(f"failed: {job.id}: {error}", flush=True)
        else:
            print(f"done: {job.id}", flush=True)
        finally:
            self.leases.release(job.id, error, counts=counts)

    def perform(self, job: Job) -> None:
        """Train a job's run to its end, from its newest checkpoint if any, and evaluate it."""
        options = RunOptions(out=self.runs, resume=True)
        if job.parent is None:
            directory = train_run(job.run, options)
        else:
            assert job.run.parent is not None
            parent = RunDirectory.open(self.runs / job.parent.id)
            directory = derive(
                parent,
                job.run.config.posterior,
                job.run.config.learning,
                snapshot=job.run.parent.snapshot / max(parent.run.config.learning.updates, 1),
                fresh_optimizer=job.run.start == 0,
                options=options,
            )
        evaluate_missing(directory, tasks=job.test_tasks, with_snapshots=job.evaluate_snapshots)


def _interrupt() -> None:
    """Stop the main thread as Ctrl-C does: training stores its state first."""
    os.kill(os.getpid(), signal.SIGINT)


def describe(job: Job) -> str:
    """One-line description of a job."""
    config = job.run.config
    words = [config.posterior.label, *config.posterior.details]
    if job.parent is not None:
        assert job.run.parent is not None
        fraction = job.run.parent.snapshot / max(job.parent.run.config.learning.updates, 1)
        if config.learning.updates == 0:
            words[0] = config.posterior.posthoc_label
        else:
            words.append(f"fine-tuned from {fraction:g}")
    if job.run.seeds > 1:
        words.append(f"{job.run.seeds} seeds")
    return f"{config.task.name}: {', '.join(words)}"


def counts(statuses: dict[str, JobStatus]) -> dict[str, int]:
    """Number of jobs in each state."""
    states = [status.state for status in statuses.values()]
    return {state: states.count(state) for state in JOB_STATES}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that failed or is blocked, with the reason."""

    job: Job
    message: str


def diverged(failure: Failure) -> bool:
    """Whether a failure is a result: training was not finite, or has a parent that failed."""
    return failure.message.startswith((TrainingFailedError.__name__, PARENT_FAILED))


def failures(directory: SweepDirectory) -> list[Failure]:
    """Failed and blocked jobs, in the order of the plan."""
    statuses = directory.statuses()
    return [
        Failure(job, statuses[job.id].message)
        for job in directory.plan.jobs
        if statuses[job.id].state in ("failed", "blocked")
    ]
