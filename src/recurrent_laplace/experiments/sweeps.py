"""A sweep is its directory: what is to be done, what is done, and who is doing the rest."""

import dataclasses
import time
import typing
from pathlib import Path
from typing import Literal, NamedTuple

import tomli_w

from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.experiments.config import Tables, parse_toml
from recurrent_laplace.experiments.derive import derive
from recurrent_laplace.experiments.evaluation import evaluate_run
from recurrent_laplace.experiments.leases import Entry, Leases
from recurrent_laplace.experiments.plan import Job, Plan, read_plan
from recurrent_laplace.experiments.runner import InterruptedRunError, RunOptions, train_run
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.files import StorageError, read_text, unfinished, write_text

POLL_SECONDS = 0.5
"""How often an idle worker looks for something to do."""

Word = Literal["done", "running", "ready", "waiting", "failed", "blocked"]
WORDS: tuple[Word, ...] = typing.get_args(Word)


class Standing(NamedTuple):
    """How a job stands: a word, and what went wrong where something did."""

    word: Word
    message: str = ""


class SweepDirectory:
    """The directory of a sweep.

    ```
    <out>/
      sweep.toml                 what is to be done
      runs/<run id>/             the runs
      jobs/<run id>.json         attempts, the last error, and the lease of who is at work
      logs/                      what the workers print
    ```
    """

    def __init__(self, path: Path, plan: Plan, attempts: int = 2):
        self.path = path
        self.plan = plan
        self.attempts = attempts
        self.runs = path / "runs"
        self.leases = Leases(path / "jobs")
        self._done: set[str] = set()

    @classmethod
    def make(cls, path: Path, tables: Tables, source: Path, only: tuple[str, ...] = ()) -> "SweepDirectory":
        """The sweep that `tables` describe, at `path`, which is new or has this very sweep."""
        plan = read_plan(tables, source).only(only)
        for folder in (path, *path.parents):
            if folder.exists() and not folder.is_dir():
                raise StorageError(f"a sweep cannot be put at {path}: {folder} is a file.")
        file = path / "sweep.toml"
        others = set(path.iterdir()) - {unfinished(file)} if path.exists() else set()
        # Looked for after the others: who begins the same sweep at the same time writes it before them.
        if file.exists():
            if parse_toml(read_text(file), file) != tables:
                raise StorageError(f"{path} is the directory of another sweep: {file} differs from {source}.")
        elif others:
            raise StorageError(f"{path} exists and is not the directory of a sweep: it has no sweep.toml.")
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path, only: tuple[str, ...] = ()) -> "SweepDirectory":
        """A sweep that exists."""
        file = path / "sweep.toml"
        if not file.is_file():
            raise StorageError(f"{path} is not the directory of a sweep: it has no sweep.toml.")
        return cls(path, read_plan(parse_toml(read_text(file), file), file).only(only))

    def write(self, tables: Tables) -> None:
        """Make the directory, with its `sweep.toml`."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise StorageError(f"cannot write {self.path}: {problem.strerror or problem}.") from problem
        file = self.path / "sweep.toml"
        if file.exists():
            return
        try:
            write_text(file, tomli_w.dumps(tables))
        except StorageError:
            if not file.exists():  # By another sweeper, which had the same to write.
                raise

    def is_done(self, job: Job) -> bool:
        """Whether a job's run is trained and tested."""
        if job.id not in self._done:
            folder = self.runs / job.id
            status = folder / "status"
            if not status.is_file() or not (folder / "evaluation.parquet").is_file():
                return False
            if read_text(status).strip() != "finished":
                return False
            self._done.add(job.id)
        return True

    def standing(self, job: Job) -> Standing:
        """How a job stands."""
        return self._standing(job, None if job.parent is None else self.standing(job.parent))

    def standings(self) -> dict[str, Standing]:
        """How all jobs stand.

        Only files of jobs that were begun are looked at: there may be ten thousand others, on a slow disk.
        """
        begun = self.leases.known() | {path.name for path in self.runs.glob("*")}
        found: dict[str, Standing] = {}
        for job in self.plan.jobs:
            above = None if job.parent is None else found[job.parent.id]
            found[job.id] = self._standing(job, above, begun=job.id in begun)
        return found

    def _standing(self, job: Job, above: Standing | None, *, begun: bool = True) -> Standing:
        if begun and self.is_done(job):
            return Standing("done")
        entry = self.leases.entry(job.id) if begun else Entry()
        if entry.is_held:
            return Standing("running")
        if entry.attempts >= self.attempts:
            return Standing("failed", entry.error)
        if job.parent is not None and above is not None:
            if above.word in ("failed", "blocked"):
                return Standing("blocked", f"its parent {job.parent.id} failed.")
            if above.word != "done":
                return Standing("waiting")
        return Standing("ready", entry.error)

    def work(self) -> None:
        """Do jobs until nothing is left to do, for this worker or for others to leave behind."""
        while True:
            standings = self.standings()
            ready = [job for job in self.plan.jobs if standings[job.id].word == "ready"]
            job = next((job for job in ready if self.leases.take(job.id, self.attempts)), None)
            if job is not None:
                self._attempt(job)
            elif all(standing.word in ("done", "failed", "blocked") for standing in standings.values()):
                return
            else:
                time.sleep(POLL_SECONDS)

    def work_on(self, job_id: str) -> None:
        """Do one job, if it is ready and nobody else's."""
        job = next((job for job in self.plan.jobs if job.id == job_id), None)
        if job is None:
            raise StorageError(f"{self.path / 'sweep.toml'} has no run {job_id}: it was changed.")
        if self.standing(job).word == "ready" and self.leases.take(job.id, self.attempts):
            self._attempt(job)

    def _attempt(self, job: Job) -> None:
        print(f"begins: {job.id} ({job.stage}), {describe(job)}", flush=True)
        error, counts = "the worker was stopped.", False
        try:
            with self.leases.renewed(job.id):
                self.perform(job)
            error, counts = "", True
        except InterruptedRunError:
            raise
        except Exception as problem:
            # One run that fails does not stop the others, whatever it is that failed.
            error, counts = f"{type(problem).__name__}: {problem}", True
            print(f"failed: {job.id}: {error}", flush=True)
        else:
            print(f"done: {job.id}", flush=True)
        finally:
            self.leases.give_back(job.id, error, counts=counts)

    def perform(self, job: Job) -> None:
        """Bring a job's run to its end, from wherever it stands, and test it."""
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
                options=options,
            )
        if not directory.evaluation_path.exists():
            evaluate_run(directory, EvaluationConfig())


def describe(job: Job) -> str:
    """A job in words."""
    config = job.run.config
    posterior = config.posterior
    words = {
        "point": "RNN",
        "variational": f"VRNN {posterior.covariance}",
        "laplace": f"Laplace {posterior.covariance}, accumulate {posterior.accumulate}, "
        f"window {posterior.window}",
    }[posterior.kind]
    if job.parent is not None:
        assert job.run.parent is not None
        share = job.run.parent.snapshot / max(job.parent.run.config.learning.updates, 1)
        words += " post hoc" if config.learning.updates == 0 else f" fine-tuned from {share:g}"
    seeds = f", {job.run.seeds} seeds" if job.run.seeds > 1 else ""
    return f"{config.task.name}: {words}{seeds}"


def counts(standings: dict[str, Standing]) -> dict[str, int]:
    """How many jobs stand how."""
    found: dict[str, int] = dict.fromkeys(WORDS, 0)
    for standing in standings.values():
        found[standing.word] += 1
    return found


@dataclasses.dataclass(frozen=True)
class Failure:
    """A job that could not be done, and why."""

    job: Job
    message: str


def failures(directory: SweepDirectory) -> list[Failure]:
    """What failed, in the order of the plan."""
    standings = directory.standings()
    return [
        Failure(job, standings[job.id].message)
        for job in directory.plan.jobs
        if standings[job.id].word in ("failed", "blocked")
    ]
