"""Executors of a sweep, and the one that uses processes of this machine."""

import abc
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from recurrent_laplace.errors import check_size
from recurrent_laplace.files import StorageError
from recurrent_laplace.machine.compilation import quick_compile_flags
from recurrent_laplace.machine.devices import cores
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.worker import STOPPED, task_arguments


def last_line(log: Path) -> str:
    """Last line of a log; empty if there is none."""
    with contextlib.suppress(OSError, IndexError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        return file.read().decode(errors="replace").strip().splitlines()[-1]
    return ""


def python_module(name: str) -> list[str]:
    """Command that runs a module of this package and ignores files of the current directory."""
    return [sys.executable, "-P", "-m", name]


class Process:
    """A child process with a log, which stops when its standard input closes."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None):
        self.command = command
        self.log = log
        self.environment = environment
        self._process: subprocess.Popen | None = None
        self._file: IO | None = None

    def start(self, cores: list[int] | None = None) -> None:
        """Start or restart the process, on these cores if given."""
        self.close()
        self.log.parent.mkdir(exist_ok=True)
        self._file = self.log.open("a")
        self._process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to the sweeper, which stops its workers.
        )
        if cores and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._process.pid, cores)

    @property
    def code(self) -> int | None:
        """Exit code; None while the process runs."""
        assert self._process is not None
        return self._process.poll()

    def close(self) -> None:
        """Close the standard input, which tells the process to store its state and stop."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._file is not None:
            self._file.close()

    def wait(self) -> None:
        """Wait for a closed process to end; terminate it after a timeout, then kill it."""
        if self._process is None:
            return
        for stop in (lambda: None, self._process.terminate, self._process.kill):
            stop()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                self._process.wait(timeout=60)
                return

    def last_line(self) -> str:
        """Last line of the log."""
        return last_line(self.log)


class AbstractExecutor(abc.ABC):
    """Interface of an executor: a context manager around the processes that work on a sweep."""

    was_stopped = False
    """Whether the executor was asked to stop."""

    def __init__(self, directory: SweepDirectory, processes: list[Process]):
        self.directory = directory
        self.processes = processes

    def __enter__(self) -> "AbstractExecutor":
        for process in self.processes:
            self._start(process)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.close()
        for process in self.processes:
            process.wait()

    def _start(self, process: Process) -> None:
        process.start()

    @abc.abstractmethod
    def about(self) -> str:
        """One-line description of the executor."""

    @abc.abstractmethod
    def is_working(self) -> bool:
        """Whether any process is running; dead ones are replaced, or the reason is raised."""

    @abc.abstractmethod
    def lines(self, running: Iterable[str]) -> list[str]:
        """Last output lines about the running jobs."""


class LocalExecutor(AbstractExecutor):
    """Executor with `workers` worker processes on this machine."""

    def __init__(self, directory: SweepDirectory, *, workers: int, only: tuple[str, ...] = ()):
        check_size("workers", workers)
        self._attempts_seen: dict[Process, int] = {}
        environment = dict(os.environ)
        if directory.plan.quick_compile:
            environment["XLA_FLAGS"] = quick_compile_flags()
        command = python_module("recurrent_laplace.sweeps.worker")
        command += [str(directory.path), *only, "--attempts", str(directory.attempts)]
        command += task_arguments(directory.references, Path.cwd())
        logs = [directory.path / "logs" / f"worker-{number}.txt" for number in range(workers)]
        super().__init__(directory, [Process(command, log, environment) for log in logs])

    def _start(self, process: Process) -> None:
        # Each worker has cores of its own, otherwise their threads would wait for each other.
        available, index = cores(), self.processes.index(process)
        process.start(available[index % len(available) :: len(self.processes)] or available)

    def about(self) -> str:
        return f"{len(self.processes)} workers"

    def lines(self, running: Iterable[str]) -> list[str]:
        del running
        return [process.last_line() for process in self.processes]

    def is_working(self) -> bool:
        working = False
        for process in self.processes:
            code = process.code
            if code is None:
                working = True
            elif code in (STOPPED, -2):
                self.was_stopped = True
            elif code != 0 and not self.was_stopped and self._has_work():
                self._check_progress(process, code)
                self._start(process)
                working = True
        return working

    def _has_work(self) -> bool:
        return any(
            status.state in ("ready", "waiting", "running") for status in self.directory.statuses().values()
        )

    def _check_progress(self, process: Process, code: int) -> None:
        """Raise `StorageError` if a worker died again and no run was started in between."""
        leases = self.directory.leases
        attempts = sum(leases.entry(job.id).attempts for job in self.directory.plan.jobs)
        attempts += sum(self.directory.is_done(job) for job in self.directory.plan.jobs)
        # Counted for each worker, since several may die together.
        if attempts == self._attempts_seen.get(process):
            raise StorageError(
                f"a worker ended with code {code} before it began a run: "
                f"{process.last_line() or 'no output'} ({process.log})."
            )
        self._attempts_seen[process] = attempts
