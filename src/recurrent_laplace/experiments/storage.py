"""The directory of a run."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

import filelock

from recurrent_laplace.experiments.checkpoints import Checkpoints
from recurrent_laplace.experiments.config import Run
from recurrent_laplace.files import StorageError, read_text, sweep, write_text

Word = Literal["running", "interrupted", "failed", "finished"]


class Status(NamedTuple):
    """How a run stands: a word, and a sentence where there is more to say."""

    word: Word
    message: str = ""


class RunDirectory:
    """What a run leaves behind, and where.

    ```
    <out>/<run id>/
      config.toml  provenance.json  metrics.parquet  evaluation.parquet  checkpoints/  log.txt  status
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
        """A run that exists."""
        if not path.is_dir():
            raise StorageError(f"there is no run at {path}.")
        if not (path / "config.toml").is_file():
            raise StorageError(f"{path} is not the directory of a run: it has no config.toml.")
        try:
            run = Run.from_toml(read_text(path / "config.toml"), path / "config.toml")
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
        """The place of a run under `out`, whether it exists or not."""
        for folder in (out, *out.parents):
            if folder.exists() and not folder.is_dir():
                raise StorageError(f"runs cannot be put under {out}: {folder} is a file.")
        path = out / run.id
        # Without a configuration it was killed while being made: there is nothing to lose in it.
        if (path / "config.toml").exists():
            return cls.open(path)
        return cls(path, run)

    @property
    def folder(self) -> Path:
        """Where the directory is, beside those of other runs."""
        return self.path.resolve().parent

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Make the directory if need be, and keep others from working on it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = filelock.FileLock(self.path / ".lock", blocking=False)
            lock.acquire()
        except filelock.Timeout as problem:
            raise StorageError(f"another process is working on {self.path}.") from problem
        except OSError as problem:
            raise StorageError(f"cannot write {self.path}: {problem.strerror or problem}.") from problem
        try:
            sweep(self.path)
            sweep(self.path / "checkpoints")
            if not (self.path / "config.toml").exists():
                write_text(self.path / "config.toml", self.run.to_toml())
            yield
        finally:
            lock.release()

    @property
    def status(self) -> Status | None:
        """How the run stands; None if it was never begun. One that was killed is still 'running'."""
        file = self.path / "status"
        if not file.exists():
            return None
        word, _, message = read_text(file).strip().partition("\n")
        if word not in ("running", "interrupted", "failed", "finished"):
            raise StorageError(f"{file} is damaged: it begins with {word[:20]!r}.")
        return Status(word, message)

    def set_status(self, word: Word, message: str = "") -> None:
        """Store how the run stands."""
        write_text(self.path / "status", f"{word}\n{message}\n" if message else f"{word}\n")

    def log(self, text: str) -> None:
        """Append a line to the log, with the time."""
        time = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with self.log_path.open("a") as file:
                file.write(f"{time} {text}\n")
        except OSError as problem:
            raise StorageError(f"cannot write {self.log_path}: {problem.strerror or problem}.") from problem
