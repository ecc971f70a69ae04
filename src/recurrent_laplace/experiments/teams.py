"""Who works on a sweep: processes of this machine, as a team that a sweeper looks after."""

import abc
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from recurrent_laplace.errors import check_size
from recurrent_laplace.experiments.compilation import quick_compile_flags
from recurrent_laplace.experiments.devices import cores
from recurrent_laplace.experiments.sweeps import SweepDirectory
from recurrent_laplace.experiments.worker import STOPPED
from recurrent_laplace.files import StorageError


def last_line(log: Path) -> str:
    """The last line of a log; nothing if there is none."""
    with contextlib.suppress(OSError, IndexError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 2000))
        return file.read().decode(errors="replace").strip().splitlines()[-1]
    return ""


class Process:
    """A process with a log, which stops when its standard input closes."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str] | None = None):
        self.command = command
        self.log = log
        self.environment = environment
        self._process: subprocess.Popen | None = None
        self._file: IO | None = None

    def start(self, share: list[int] | None = None) -> None:
        """Begin, or begin again; on these cores."""
        self.close()
        self.log.parent.mkdir(exist_ok=True)
        self._file = self.log.open("a")
        self._process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the sweeper, which tells its workers once.
        )
        if share and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._process.pid, share)

    @property
    def code(self) -> int | None:
        """The exit code; None while it works."""
        assert self._process is not None
        return self._process.poll()

    def close(self) -> None:
        """Close its standard input, which tells it to stop; it stores what it has first."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        if self._file is not None:
            self._file.close()

    def wait(self) -> None:
        """Wait for the end of a process that was closed; a second word, then an end."""
        if self._process is None:
            return
        for act in (None, self._process.terminate, self._process.kill):
            if act is not None:
                act()
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                self._process.wait(timeout=60)
                return

    def last_line(self) -> str:
        """What it said last."""
        return last_line(self.log)


class AbstractTeam(abc.ABC):
    """Processes that work on a sweep: they begin with the context, and store what they have at its end."""

    was_stopped = False
    """Whether someone asked the team to stop."""

    def __init__(self, directory: SweepDirectory, processes: list[Process]):
        self.directory = directory
        self.processes = processes

    def __enter__(self) -> "AbstractTeam":
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
        """The team in words."""

    @abc.abstractmethod
    def is_working(self) -> bool:
        """Whether anyone is; who died is replaced, or the reason is raised."""

    @abc.abstractmethod
    def lines(self, running: Iterable[str]) -> list[str]:
        """What was said last about the jobs that are running."""


class LocalTeam(AbstractTeam):
    """So many worker processes on this machine."""

    def __init__(self, directory: SweepDirectory, *, workers: int, only: tuple[str, ...] = ()):
        check_size("workers", workers)
        self._attempts_seen = -1
        environment = dict(os.environ)
        if directory.plan.quick_compile:
            environment["XLA_FLAGS"] = quick_compile_flags()
        command = [sys.executable, "-m", "recurrent_laplace.experiments.worker", str(directory.path), *only]
        command += ["--attempts", str(directory.attempts)]
        logs = [directory.path / "logs" / f"worker-{number}.txt" for number in range(workers)]
        super().__init__(directory, [Process(command, log, environment) for log in logs])

    def _start(self, process: Process) -> None:
        # Workers side by side share the cores out, or their threads would wait for each other.
        mine, number = cores(), self.processes.index(process)
        process.start(mine[number % len(mine) :: len(self.processes)] or mine)

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
            standing.word in ("ready", "waiting", "running")
            for standing in self.directory.standings().values()
        )

    def _check_progress(self, process: Process, code: int) -> None:
        """A worker that dies before it tries anything would die for ever."""
        leases = self.directory.leases
        attempts = sum(leases.entry(job.id).attempts for job in self.directory.plan.jobs)
        attempts += sum(self.directory.is_done(job) for job in self.directory.plan.jobs)
        if attempts == self._attempts_seen:
            raise StorageError(
                f"a worker ended with code {code} before it began a run: "
                f"{process.last_line() or 'it said nothing'} ({process.log})."
            )
        self._attempts_seen = attempts
