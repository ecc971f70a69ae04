"""The sweeper: runs an executor on a sweep and shows its progress."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from recurrent_laplace.machine.interrupts import graceful
from recurrent_laplace.runs.display import format_seconds
from recurrent_laplace.runs.runner import InterruptedRunError
from recurrent_laplace.sweeps.directory import JobStatus, SweepDirectory, counts, describe
from recurrent_laplace.sweeps.forecast import Forecast
from recurrent_laplace.sweeps.local import AbstractExecutor

LOOK_SECONDS = 0.5
"""Polling interval of the sweeper."""
SHOWN = 12
"""Maximum number of running jobs shown."""
FORECAST_SECONDS = 60.0
"""Time between forecasts of the remaining time."""
LINE_SECONDS = 20.0
"""Time between lines without a terminal while nothing changes."""


def run_sweep(executor: AbstractExecutor, measured: Sequence[SweepDirectory] = ()) -> None:
    """Run an executor until its sweep is complete; failures stay in the directory.

    `measured` are other sweeps whose times are used to forecast this one's.
    """
    directory = executor.directory
    jobs = directory.plan.jobs
    directory.leases.reset_attempts([job.id for job in jobs if not directory.is_done(job)])
    with graceful() as stop, executor:
        with _Progress(executor, measured) as progress:
            while executor.is_working() and not stop.requested:
                time.sleep(LOOK_SECONDS)
                progress.refresh()
            progress.refresh()
        if stop.requested:
            executor.was_stopped = True
            print("stopping: the workers store what they have", file=sys.stderr, flush=True)
    if executor.was_stopped:
        raise InterruptedRunError("stopped: the same command continues the sweep.")


class _Progress:
    """Progress display of a sweep."""

    def __init__(self, executor: AbstractExecutor, measured: Sequence[SweepDirectory]):
        self.directory = directory = executor.directory
        self.executor = executor
        self.console = Console(stderr=True)
        self.began = time.monotonic()
        self.last_line = self.began
        self.running: dict[str, float] = {}
        self.reported = {job.id for job in directory.plan.jobs if directory.is_done(job)}
        self.live: Live | None = None
        self.measured = measured
        self.forecast = ""
        self.forecast_at = self.began

    def __enter__(self) -> "_Progress":
        total, done = len(self.directory.plan.jobs), len(self.reported)
        self._print(f"{total} runs, {done} of them done before; {self.executor.about()}")
        if self.console.is_terminal:
            view = self._render(self.directory.statuses())
            self.live = Live(view, console=self.console, refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def refresh(self) -> None:
        """Read the status of all jobs and show the changes."""
        statuses = self.directory.statuses()
        for job in self.directory.plan.jobs:
            state, message = statuses[job.id]
            if state == "running":
                if job.id not in self.running:
                    self.running[job.id] = time.monotonic()
                    if self.live is None:
                        self._print(f"  begins: {describe(job)}")
                continue
            began = self.running.pop(job.id, None)
            if state == "done" and job.id not in self.reported:
                self.reported.add(job.id)
                took = f" in {format_seconds(time.monotonic() - began)}" if began is not None else ""
                self._print(f"  {len(self.reported)}/{len(statuses)} done: {describe(job)}{took}")
            elif began is not None and message:
                self._print(f"  failed: {describe(job)}: {message}")
        if time.monotonic() - self.forecast_at >= FORECAST_SECONDS:
            self.forecast = self._forecast()
            self.forecast_at = time.monotonic()
        if self.live is not None:
            self.live.update(self._render(statuses))
        elif time.monotonic() - self.last_line >= LINE_SECONDS:
            self._print(
                "  " + "; ".join([*self.executor.lines(self.running), *filter(None, [self.forecast])])
            )

    def _forecast(self) -> str:
        """Forecast of the remaining time; empty before the first measurement."""
        forecast = Forecast([*self.measured, self.directory])
        if not forecast.measured:
            return ""
        seconds = forecast.remaining(self.directory) / max(len(self.running), 1)
        return f"about {format_seconds(seconds)} left"

    def _render(self, statuses: dict[str, JobStatus]) -> Group:
        words = ", ".join(f"{count} {state}" for state, count in counts(statuses).items() if count)
        lines = [Text(f"{words}; {format_seconds(time.monotonic() - self.began)} so far", style="bold")]
        if self.forecast:
            lines[0].append(f", {self.forecast}")
        jobs = {job.id: job for job in self.directory.plan.jobs}
        for job_id in list(self.running)[:SHOWN]:
            lines.append(Text(f"  {describe(jobs[job_id])}", style="cyan"))
        lines += [Text(f"    {line}", style="dim") for line in self.executor.lines(self.running)]
        for line in lines:
            line.no_wrap = True
            line.truncate(self.console.width, overflow="ellipsis")
        return Group(*lines)

    def _print(self, text: str) -> None:
        self.last_line = time.monotonic()
        self.console.print(Text(text), soft_wrap=True)
