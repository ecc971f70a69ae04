"""Run directories."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import filelock

from recurrent_laplace.files import (
    DamagedError,
    StorageError,
    read_sealed,
    read_text,
    remove_temporary,
    storage_errors,
    write_sealed,
    write_text,
)
from recurrent_laplace.runs.checkpoints import Checkpoints
from recurrent_laplace.runs.config import Run
from recurrent_laplace.tasks.references import task_flag

RunState = Literal["running", "interrupted", "failed", "finished"]


class Status(NamedTuple):
    """State of a run, with an explanation where there is one."""

    state: RunState
    message: str = ""


class RunDirectory:
    """Files of a run.

    ```
    <out>/<run id>/
      config.toml  provenance.json  metrics.parquet  evaluation.parquet  checkpoints/  log.txt  status
      task.json                  version of a task that was loaded by a reference
    ```
    """

    def __init__(self, path: Path, run: Run):
        self.path = path
        self.run = run
        self.checkpoints = Checkpoints(path / "checkpoints", run.id)
        self.metrics_path = path / "metrics.parquet"
        self.evaluation_path = path / "evaluation.parquet"
        self.provenance_path = path / "provenance.json"
        self.log_path = path / "log.txt"

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open the directory of an existing run."""
        if not path.is_dir():
            raise StorageError(f"there is no run at {path}.")
        if not (path / "config.toml").is_file():
            raise StorageError(f"{path} is not the directory of a run: it has no config.toml.")
        try:
            run = Run.from_toml(read_sealed(path / "config.toml"), path / "config.toml")
        except ValueError as problem:
            raise StorageError(str(problem)) from problem
        if run.id != path.resolve().name:
            raise StorageError(
                f"{path / 'config.toml'} is the configuration of run {run.id}, not of {path.resolve().name}: "
                "it was changed, or the directory was renamed."
            )
        return cls(path, run)

    @classmethod
    def at(cls, out: Path, run: Run) -> "RunDirectory":
        """Directory of a run under `out`, whether it exists or not."""
        for folder in (out, *out.parents):
            if folder.exists() and not folder.is_dir():
                raise StorageError(f"runs cannot be put under {out}: {folder} is a file.")
        path = out / run.id
        # Without a configuration the run was killed at its start, and the directory holds nothing of value.
        if (path / "config.toml").exists():
            return cls.open(path)
        return cls(path, run)

    @property
    def folder(self) -> Path:
        """Folder that contains this directory and those of other runs."""
        return self.path.resolve().parent

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Context manager: creates the directory if necessary and locks it against other processes."""
        lock = filelock.FileLock(self.path / ".lock", blocking=False)
        with storage_errors("write", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire()
            except filelock.Timeout as problem:
                raise StorageError(f"another process is working on {self.path}.") from problem
        try:
            remove_temporary(self.path)
            remove_temporary(self.path / "checkpoints")
            if not (self.path / "config.toml").exists():
                write_sealed(self.path / "config.toml", self.run.to_toml())
            yield
        finally:
            lock.release()

    @property
    def status(self) -> Status | None:
        """Status of the run; None if it was never started. A killed run is still 'running'."""
        file = self.path / "status"
        if not file.exists():
            return None
        state, _, message = read_text(file).strip().partition("\n")
        if state not in ("running", "interrupted", "failed", "finished"):
            raise DamagedError(f"{file} is damaged: it begins with {state[:20]!r}.")
        return Status(state, message)

    @property
    def is_finished(self) -> bool:
        """Whether the run was trained to its end; its checkpoints may have been lost since then."""
        return self.status is not None and self.status.state == "finished"

    def newest_update(self) -> int:
        """Number of updates of the newest checkpoint; raises `StorageError` if there is none."""
        stored = self.checkpoints.updates()
        if stored and not (self.is_finished and stored[-1] < self.run.config.learning.updates):
            return stored[-1]
        if self.is_finished:
            raise StorageError(
                f"{self.path} is finished, but its last checkpoint is gone: "
                f"{self.retrain_command()} restores it."
            )
        raise StorageError(f"{self.path} has no checkpoint yet: train it first.")

    def retrain_command(self) -> str:
        """Command that restores lost checkpoints."""
        if self.run.parent is None:
            return (
                f"recurrent-laplace train{task_flag(self.run.config.task)} "
                f"--config {self.path / 'config.toml'} --seed {self.run.seed} "
                f"--seeds {self.run.seeds} --out {self.path.parent} --resume"
            )
        verb = "finetune" if self.run.config.learning.updates else "posthoc"
        return f"The {verb} command that made it, with --resume,"

    def set_status(self, state: RunState, message: str = "") -> None:
        """Store the status of the run."""
        write_text(self.path / "status", f"{state}\n{message}\n" if message else f"{state}\n")

    def log(self, text: str) -> None:
        """Append a line with a time stamp to the log."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        with storage_errors("write", self.log_path), self.log_path.open("a") as file:
            file.write(f"{time} {text}\n")
