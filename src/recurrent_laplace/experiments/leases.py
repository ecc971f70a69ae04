"""Who is doing what: leases that expire, so that no job is done twice and none is lost with its worker."""

import contextlib
import dataclasses
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import filelock

from recurrent_laplace.files import StorageError, read_text, write_text

LEASE_SECONDS = 60.0
"""A worker that has not renewed its lease for so long is taken for dead."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """What is known of a job beside its run directory."""

    attempts: int = 0
    error: str = ""
    owner: str = ""
    host: str = ""
    process: int = 0
    since: float = 0.0
    until: float = 0.0
    seconds: float = 0.0
    """How long workers were at it, but for those that died."""

    @property
    def is_held(self) -> bool:
        """Whether someone is at work on it."""
        if not self.owner or self.until <= time.time():
            return False
        # A process of this machine that is gone needs no waiting for.
        return self.host != platform.node() or _is_alive(self.process)


class Leases:
    """The entries of a sweep's jobs, a file each; a lock makes changes one at a time.

    ```python
    leases = Leases(Path("runs/sweep/jobs"))
    if leases.take("a-job", attempts=3):
        with leases.renewed("a-job"):
            ...
        leases.give_back("a-job")
    ```

    `overflow` is a folder on another disk: what `settle` has no room for in `folder` is kept there.
    """

    def __init__(self, folder: Path, seconds: float = LEASE_SECONDS, overflow: Path | None = None):
        self.folder = folder
        self.seconds = seconds
        self.overflow = overflow
        self.me = uuid.uuid4().hex

    def known(self) -> set[str]:
        """Jobs that have an entry."""
        folders = [self.folder] if self.overflow is None else [self.folder, self.overflow]
        return {path.stem for folder in folders for path in folder.glob("*.json")}

    def entry(self, job: str) -> Entry:
        """What is known of a job."""
        entry = _read(self.folder, job)
        if self.overflow is None or not _path(self.overflow, job).exists():
            return entry
        more = _read(self.overflow, job)
        return dataclasses.replace(entry, attempts=entry.attempts + more.attempts, error=more.error)

    def take(self, job: str, attempts: int) -> bool:
        """Take a job that nobody holds and that was not tried `attempts` times already."""
        with self._alone():
            entry = self.entry(job)
            if entry.is_held or entry.attempts >= attempts:
                return False
            _write(
                self.folder,
                job,
                Entry(
                    attempts=entry.attempts + 1,
                    error="the worker died.",  # Until it says otherwise.
                    owner=self.me,
                    host=platform.node(),
                    process=os.getpid(),
                    since=time.time(),
                    until=time.time() + self.seconds,
                    seconds=entry.seconds,
                ),
            )
            return True

    @contextlib.contextmanager
    def renewed(self, job: str) -> Iterator[None]:
        """Keep the lease while working."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.seconds / 4):
                with contextlib.suppress(StorageError, OSError), self._alone():
                    entry = self.entry(job)
                    if entry.owner == self.me:
                        _write(self.folder, job, dataclasses.replace(entry, until=time.time() + self.seconds))

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def give_back(self, job: str, error: str = "", *, counts: bool = True) -> None:
        """End the lease, with what went wrong; an attempt that was only interrupted does not count."""
        with self._alone():
            entry = self.entry(job)
            if entry.owner == self.me:
                attempts = entry.attempts - (not counts)
                seconds = entry.seconds + time.time() - entry.since
                _write(self.folder, job, Entry(attempts=attempts, error=error, seconds=seconds))

    def settle(self, job: str, attempts: int, error: str, *, worker: tuple[str, int]) -> None:
        """See to it that `attempts` are counted of a job, and that it is said why the last of them failed.

        A worker that gives its job back has done both; on a full disk it cannot. `worker` is the host and
        the process that has ended.
        """
        try:
            with self._alone():
                self._settle(self.folder, job, attempts, error, worker)
        except StorageError:
            if self.overflow is None:
                raise
            self._settle(self.overflow, job, attempts, error, worker)

    def _settle(self, folder: Path, job: str, attempts: int, error: str, worker: tuple[str, int]) -> None:
        entry = self.entry(job)
        is_told = entry.attempts >= attempts and not entry.owner
        if is_told or (entry.is_held and (entry.host, entry.process) != worker):
            return
        there = _read(folder, job)
        count = there.attempts + max(attempts - entry.attempts, 0)
        _write(folder, job, Entry(attempts=count, error=error, seconds=there.seconds))

    def forget_attempts(self, jobs: list[str]) -> None:
        """Let jobs that were given up be tried again."""
        with self._alone():
            for job in jobs:
                entry = self.entry(job)
                if entry.attempts and not entry.is_held:
                    _write(self.folder, job, Entry(error=entry.error, seconds=entry.seconds))
                    if self.overflow is not None:
                        _path(self.overflow, job).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.folder / ".lock", timeout=30):
                yield
        except filelock.Timeout as problem:
            raise StorageError(f"{self.folder} has been locked for 30 seconds.") from problem
        except OSError as problem:
            raise StorageError(f"cannot write {self.folder}: {problem.strerror or problem}.") from problem


def _path(folder: Path, job: str) -> Path:
    return folder / f"{job}.json"


def _read(folder: Path, job: str) -> Entry:
    path = _path(folder, job)
    if not path.exists():
        return Entry()
    try:
        return Entry(**json.loads(read_text(path)))
    except (ValueError, TypeError) as problem:
        raise StorageError(f"{path} is damaged: {problem}.") from problem


def _write(folder: Path, job: str, entry: Entry) -> None:
    write_text(_path(folder, job), json.dumps(dataclasses.asdict(entry)) + "\n")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
