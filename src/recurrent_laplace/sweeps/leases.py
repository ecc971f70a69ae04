"""Leases of jobs: at most one worker per job, and a job outlives its worker."""

import contextlib
import dataclasses
import functools
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock

from recurrent_laplace.files import DamagedError, StorageError, is_alive, read_json, write_json

LEASE_SECONDS = 60.0
"""Duration of a lease: without renewal its worker counts as dead, unless it still holds its lock."""
LARGEST = {int: 2**31 - 1, float: 2.0**53}
"""Largest value of a number in an entry, by type."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Record of a job: attempts, last error, and lease."""

    attempts: int = 0
    error: str = ""
    owner: str = ""
    """Identity of the worker that holds the lease; empty if none does."""
    host: str = ""
    """Identity of the machine on which `process` is the worker's process id (`host_identity`)."""
    process: int = 0
    since: float = 0.0
    until: float = 0.0
    seconds: float = 0.0
    """Total working time, without that of workers that died."""

    @property
    def is_leased(self) -> bool:
        """Whether the lease has not expired and its owner is not known to be dead."""
        if not self.owner or self.until <= time.time():
            return False
        # Process ids have a meaning on the same host only: there, the lease of a dead process is free at
        # once.
        return self.host != host_identity() or is_alive(self.process)


@functools.cache
def host_identity() -> str:
    """Identity of the process namespace: host name, boot id and PID namespace, where known.

    Containers may share a host name without seeing each other's processes.
    """
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(parts)


class Leases:
    """Entries of a sweep's jobs, one file each, with changes serialised by a lock.

    ```python
    leases = Leases(Path("runs/sweep/jobs"))
    if leases.acquire("a-job", attempts=3):
        with leases.renewed("a-job"):
            ...
        leases.release("a-job")
    ```

    A lease expires if it is not renewed. Its owner also holds a file lock, which the operating system
    releases when the process ends: a process that was stopped for longer than its lease keeps its job.

    `runs` is the folder of the run directories: a job whose run directory is locked is not free. `overflow`
    is a folder on another disk, where `record_attempts` writes if the disk of `folder` is full.
    """

    def __init__(
        self,
        folder: Path,
        *,
        runs: Path | None = None,
        seconds: float = LEASE_SECONDS,
        overflow: Path | None = None,
    ):
        self.folder = folder
        self.runs = runs
        self.seconds = seconds
        self.overflow = overflow
        self.owner = uuid.uuid4().hex
        self._locks: dict[str, filelock.BaseFileLock] = {}

    def jobs(self) -> set[str]:
        """Ids of the jobs that have an entry."""
        folders = [self.folder] if self.overflow is None else [self.folder, self.overflow]
        return {path.stem for folder in folders for path in folder.glob("*.json")}

    def entry(self, job: str) -> Entry:
        """Entry of a job."""
        entry = _read(self.folder, job)
        if self.overflow is None or not _path(self.overflow, job).exists():
            return entry
        overflow = _read(self.overflow, job)
        return dataclasses.replace(entry, attempts=entry.attempts + overflow.attempts, error=overflow.error)

    def is_held(self, job: str, entry: Entry | None = None) -> bool:
        """Whether a worker holds a job, by a valid lease or by a lock."""
        entry = self.entry(job) if entry is None else entry
        if entry.is_leased or not entry.owner:
            return entry.is_leased
        if job in self._locks:
            return True
        with contextlib.suppress(OSError):  # Without write access only the leases can be checked.
            lock = self._lock(job)
            if lock is None:
                return True
            lock.release()
        return False

    def acquire(self, job: str, attempts: int) -> bool:
        """Lease a job unless a worker holds it or it was tried `attempts` times; return whether it worked."""
        with self._exclusive():
            entry = self.entry(job)
            if entry.is_leased or entry.attempts >= attempts or job in self._locks:
                return False
            lock = self._lock(job)
            if lock is None:
                return False
            self._locks[job] = lock
            try:
                _write(
                    self.folder,
                    job,
                    Entry(
                        attempts=entry.attempts + 1,
                        error="the worker died.",  # Replaced by `release`.
                        owner=self.owner,
                        host=host_identity(),
                        process=os.getpid(),
                        since=time.time(),
                        until=time.time() + self.seconds,
                        seconds=entry.seconds,
                    ),
                )
            except StorageError:
                self._locks.pop(job).release()
                raise
            return True

    @contextlib.contextmanager
    def renewed(self, job: str, lost: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
        """Context manager: renews the lease; sets the event and calls `lost` if another worker takes over."""
        done, is_lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not done.wait(self.seconds / 4) and not is_lost.is_set():
                with contextlib.suppress(StorageError, OSError), self._exclusive():
                    entry = self.entry(job)
                    if entry.owner == self.owner:
                        _write(self.folder, job, dataclasses.replace(entry, until=time.time() + self.seconds))
                    elif entry.owner:
                        is_lost.set()
            if is_lost.is_set():
                lost()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield is_lost
        finally:
            done.set()
            thread.join()

    def release(self, job: str, error: str = "", *, counts: bool = True) -> None:
        """End the lease and store the error, if any; an interrupted attempt does not count (`counts`)."""
        try:
            with self._exclusive():
                entry = self.entry(job)
                if entry.owner == self.owner:
                    attempts = entry.attempts - (not counts)
                    seconds = entry.seconds + time.time() - entry.since
                    _write(self.folder, job, Entry(attempts=attempts, error=error, seconds=seconds))
                    _lock_path(self.folder, job).unlink(missing_ok=True)
        finally:
            if job in self._locks:
                self._locks.pop(job).release()

    def record_attempts(self, job: str, attempts: int, error: str, *, owner: str) -> None:
        """Record that a job was tried `attempts` times, and the error of the last attempt.

        `release` does so too, but cannot on a full disk. `owner` is the identity of the worker that has
        ended.
        """
        try:
            with self._exclusive():
                self._record_attempts(self.folder, job, attempts, error, owner)
        except StorageError:
            if self.overflow is None:
                raise
            self._record_attempts(self.overflow, job, attempts, error, owner)

    def _record_attempts(self, folder: Path, job: str, attempts: int, error: str, owner: str) -> None:
        entry = self.entry(job)
        is_recorded = entry.attempts >= attempts and not entry.owner
        if is_recorded or (entry.owner != owner and self.is_held(job, entry)):
            return
        stored = _read(folder, job)
        count = stored.attempts + max(attempts - entry.attempts, 0)
        _write(folder, job, Entry(attempts=count, error=error, seconds=stored.seconds))

    def reset_attempts(self, jobs: list[str]) -> None:
        """Reset the attempts of jobs, so that failed ones are tried again."""
        with self._exclusive():
            for job in jobs:
                entry = self.entry(job)
                if entry.attempts and not self.is_held(job, entry):
                    _write(self.folder, job, Entry(error=entry.error, seconds=entry.seconds))
                    if self.overflow is not None:
                        _path(self.overflow, job).unlink(missing_ok=True)

    def _lock(self, job: str) -> filelock.BaseFileLock | None:
        """Acquire the lock of a job; None if a running process holds it or that of the run directory."""
        lock = _acquired(_lock_path(self.folder, job))
        run = None if self.runs is None else self.runs / job / ".lock"
        if lock is None or run is None or not run.exists():
            return lock
        # While this process holds the lock of the job, no worker can lock the run directory.
        run_lock = _acquired(run)
        if run_lock is None:
            lock.release()
            return None
        run_lock.release()
        return lock

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Context manager: serialises changes of entries between processes."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(self.folder / ".lock", timeout=30):
                yield
        except filelock.Timeout as problem:
            raise StorageError(f"{self.folder} has been locked for 30 seconds.") from problem
        except OSError as problem:
            raise StorageError(f"cannot write {self.folder}: {problem.strerror or problem}.") from problem


def _acquired(path: Path) -> filelock.BaseFileLock | None:
    lock = filelock.FileLock(path, blocking=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        return None
    return lock


def _path(folder: Path, job: str) -> Path:
    return folder / f"{job}.json"


def _lock_path(folder: Path, job: str) -> Path:
    return folder / f"{job}.lock"


def _read(folder: Path, job: str) -> Entry:
    path = _path(folder, job)
    if not path.exists():
        return Entry()
    try:
        values = read_json(path)
        if problem := _problem(values):
            raise DamagedError(f"{path} is damaged: {problem}.")
    except DamagedError as damage:
        remedy = "delete it, and the attempts of its run are counted anew."
        raise DamagedError(f"{str(damage).rstrip('.')}; {remedy}") from damage
    return Entry(**values)


def _problem(values: dict[str, Any]) -> str:
    """Problem with the values of an entry; empty if they are valid."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Entry)}
    if values.keys() != kinds.keys():
        keys = ", ".join(sorted(values.keys() ^ kinds.keys()))
        return f"its keys are not those of a lease ({keys[:100]})"
    for name, kind in kinds.items():
        value = values[name]
        if kind is str:
            if not isinstance(value, str):
                return f"{name} must be a text; got {_shown(value)}"
        elif isinstance(value, bool) or not isinstance(value, int | kind) or not 0 <= value <= LARGEST[kind]:
            return f"{name} must be a number from 0 to {LARGEST[kind]:g}; got {_shown(value)}"
    return ""


def _shown(value: object) -> str:
    # The value may be nested too deeply, or a number with too many digits.
    with contextlib.suppress(RecursionError, ValueError):
        return repr(value)[:40]
    return type(value).__name__


def _write(folder: Path, job: str, entry: Entry) -> None:
    write_json(_path(folder, job), dataclasses.asdict(entry))
