"""The sweeper: starts workers, shows how far they are, and replaces those that die."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from recurrent_laplace.errors import check_size
from recurrent_laplace.experiments.compilation import quick_compile_flags
from recurrent_laplace.experiments.display import format_seconds
from recurrent_laplace.experiments.runner import InterruptedRunError
from recurrent_laplace.experiments.sweeps import Standing, SweepDirectory, counts, describe
from recurrent_laplace.experiments.worker import STOPPED
from recurrent_laplace.files import StorageError

LOOK_SECONDS = 0.5
"""How often the sweeper looks at its workers."""
LINE_SECONDS = 20.0
"""How often a line is printed where there is no terminal and nothing happens."""


def cores() -> int:
    """How many cores this process may use."""
    return len(_my_cores())


def _my_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def run_sweep(directory: SweepDirectory, *, workers: int, only: tuple[str, ...] = ()) -> None:
    """Work through a sweep with so many processes; what failed is left to be asked for."""
    check_size("workers", workers)
    jobs = directory.plan.jobs
    directory.leases.forget_attempts([job.id for job in jobs if not directory.is_done(job)])
    with _Team(directory, workers, only) as team:
        try:
            with _Board(directory, team) as board:
                while team.is_working():
                    time.sleep(LOOK_SECONDS)
                    board.look()
                board.look()
        except KeyboardInterrupt:
            team.was_stopped = True
            print("stopping: the workers store what they have", file=sys.stderr, flush=True)
    if team.was_stopped:
        raise InterruptedRunError("stopped: the same command continues the sweep.")


class _Worker:
    def __init__(self, command: list[str], environment: dict[str, str], log: Path, share: list[int]):
        self.command = command
        self.environment = environment
        self.log = log
        self.share = share
        self.process: subprocess.Popen | None = None
        self._file: IO | None = None

    def start(self) -> None:
        self._file = self.log.open("a")
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the sweeper, which tells its workers once.
        )
        if hasattr(os, "sched_setaffinity"):
            # Workers side by side share the cores out, or their threads would wait for each other.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self.process.pid, self.share)

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        if self._file is not None:
            self._file.close()

    def last_line(self) -> str:
        with contextlib.suppress(OSError, IndexError), self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 2000))
            return file.read().decode(errors="replace").strip().splitlines()[-1]
        return ""


class _Team:
    """The worker processes of a sweeper."""

    def __init__(self, directory: SweepDirectory, workers: int, only: tuple[str, ...]):
        self.directory = directory
        self.was_stopped = False
        self._attempts_seen = -1
        logs = directory.path / "logs"
        logs.mkdir(exist_ok=True)
        mine = _my_cores()
        environment = dict(os.environ)
        if directory.plan.quick_compile:
            environment["XLA_FLAGS"] = quick_compile_flags()
        self.workers = []
        for number in range(workers):
            command = [sys.executable, "-m", "recurrent_laplace.experiments.worker"]
            command += [str(directory.path), *only, "--attempts", str(directory.attempts)]
            share = mine[number % len(mine) :: workers] or mine
            self.workers.append(_Worker(command, environment, logs / f"worker-{number}.txt", share))

    def __enter__(self) -> "_Team":
        for worker in self.workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing its input tells a worker to stop; it stores what it has first.
        for worker in self.workers:
            worker.close()
        for worker in self.workers:
            if worker.process is not None:
                _end(worker.process)

    def is_working(self) -> bool:
        """Whether any worker is; one that died is replaced while there is work that can be tried."""
        working = False
        for worker in self.workers:
            assert worker.process is not None
            code = worker.process.poll()
            if code is None:
                working = True
            elif code in (STOPPED, -2):
                self.was_stopped = True
            elif code != 0 and not self.was_stopped and self._has_work():
                self._check_progress(worker, code)
                worker.close()
                worker.start()
                working = True
        return working

    def _has_work(self) -> bool:
        return any(
            standing.word in ("ready", "waiting", "running")
            for standing in self.directory.standings().values()
        )

    def _check_progress(self, worker: _Worker, code: int) -> None:
        """A worker that dies before it tries anything would die for ever."""
        leases = self.directory.leases
        attempts = sum(leases.entry(job.id).attempts for job in self.directory.plan.jobs)
        attempts += sum(self.directory.is_done(job) for job in self.directory.plan.jobs)
        if attempts == self._attempts_seen:
            raise StorageError(
                f"a worker ended with code {code} before it began a run: "
                f"{worker.last_line() or 'it said nothing'} ({worker.log})."
            )
        self._attempts_seen = attempts


class _Board:
    """What a person sees of a sweep."""

    def __init__(self, directory: SweepDirectory, team: _Team):
        self.directory = directory
        self.team = team
        self.console = Console(stderr=True)
        self.began = time.monotonic()
        self.last_line = self.began
        self.running: dict[str, float] = {}
        self.told = {job.id for job in directory.plan.jobs if directory.is_done(job)}
        self.live: Live | None = None

    def __enter__(self) -> "_Board":
        total, done = len(self.directory.plan.jobs), len(self.told)
        self._say(f"{total} runs, {done} of them done before; {len(self.team.workers)} workers")
        if self.console.is_terminal:
            picture = self._picture(self.directory.standings())
            self.live = Live(picture, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def look(self) -> None:
        """See what has changed, and show it."""
        standings = self.directory.standings()
        for job in self.directory.plan.jobs:
            word, message = standings[job.id]
            if word == "running":
                if job.id not in self.running:
                    self.running[job.id] = time.monotonic()
                    if self.live is None:
                        self._say(f"  begins: {describe(job)}")
                continue
            began = self.running.pop(job.id, None)
            if word == "done" and job.id not in self.told:
                self.told.add(job.id)
                took = f" in {format_seconds(time.monotonic() - began)}" if began is not None else ""
                self._say(f"  {len(self.told)}/{len(self.directory.plan.jobs)} done: {describe(job)}{took}")
            elif began is not None and message:
                self._say(f"  failed: {describe(job)}: {message}")
        if self.live is not None:
            self.live.update(self._picture(standings))
        elif time.monotonic() - self.last_line >= LINE_SECONDS:
            self._say("  " + "; ".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        return (worker.last_line() for worker in self.team.workers)

    def _picture(self, standings: dict[str, Standing]) -> Group:
        found = counts(standings)
        words = ", ".join(f"{count} {word}" for word, count in found.items() if count)
        lines = [Text(f"{words}; {format_seconds(time.monotonic() - self.began)} so far", style="bold")]
        jobs = {job.id: job for job in self.directory.plan.jobs}
        for job_id in self.running:
            lines.append(Text(f"  {describe(jobs[job_id])}", style="cyan"))
        lines += [Text(f"    {line}", style="dim") for line in self._lines()]
        for line in lines:
            line.no_wrap = True
            line.truncate(self.console.width, overflow="ellipsis")
        return Group(*lines)

    def _say(self, text: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)


def _end(process: subprocess.Popen) -> None:
    """Wait for a process that was told to stop; a second word, then an end."""
    for act in (None, process.terminate, process.kill):
        if act is not None:
            act()
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(timeout=60)
            return
