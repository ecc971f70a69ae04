"""`sweep`: many runs from one file."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from recurrent_laplace.cli import fail
from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.executor import ExecutorOptions
from recurrent_laplace.cli.parsing import OwnTasks, session
from recurrent_laplace.files import read_text
from recurrent_laplace.posterior.cost import format_bytes
from recurrent_laplace.runs.display import format_seconds
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.toml import parse_toml
from recurrent_laplace.sweeps.directory import SweepDirectory, counts, describe, failures
from recurrent_laplace.sweeps.forecast import Forecast
from recurrent_laplace.sweeps.plan import Job
from recurrent_laplace.sweeps.sweeper import run_sweep
from recurrent_laplace.tasks.references import load_named, load_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep(OwnTasks, ExecutorOptions):
    """Execute the runs of a sweep file; running the same command again continues where it stopped."""

    file: Annotated[Positional[Path], tyro.conf.arg(metavar="FILE.toml")]
    """Sweep file: axes, exclusions and stages (docs/reproduce.md)."""
    out: Annotated[Path | None, unset("PATH")] = None
    """Directory of the sweep; runs/FILE by default."""
    attempts: int = 2
    """Attempts per run before it counts as failed."""
    dry_run: bool = False
    """Only list the runs, with estimates of time, memory and disk."""
    status: bool = False
    """Only show the status of the sweep."""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Sweep, prog="recurrent-laplace sweep", args=argv)
    with session():
        tables = parse_toml(read_text(options.file), options.file)
        # The user wrote the file: tasks that it names are loaded as if they were on the command line.
        references = tuple(dict.fromkeys((*options.task, *load_named(tables))))
        for reference in options.task:
            load_task(reference)
        out = options.out or Path("runs") / options.file.stem
        directory = SweepDirectory.make(out, tables, options.file, options.only)
        directory.attempts, directory.references = options.attempts, references
        if options.dry_run:
            print_estimates(directory)
            return
        if options.status:
            print_status(directory)
            return
        executor = options.make_executor(directory)
        directory.write(tables)
        run_sweep(executor)
        finish(directory)
    print(f"finished: {directory.path}")
    flags = "".join(f" --task {shlex.quote(reference)}" for reference in references)
    print(f"next: recurrent-laplace report {directory.path}{flags}")


def finish(directory: SweepDirectory) -> None:
    """Report failed runs, and exit with code 1 if there are any."""
    if failed := failures(directory):
        for failure in failed:
            print(f"failed: {failure.job.id} ({describe(failure.job)}): {failure.message}")
        total = len(directory.plan.jobs)
        fail(f"{len(failed)} of {total} runs failed; the same command tries them again.", code=1)


def print_status(directory: SweepDirectory) -> None:
    """Print the number of jobs by status, the measured time, and the running and failed jobs."""
    statuses = directory.statuses()
    print(", ".join(f"{count} {word}" for word, count in counts(statuses).items()))
    done = [job for job in directory.plan.jobs if statuses[job.id].state == "done"]
    took = [
        (directory.leases.entry(job.id).seconds, estimate(job.run, job.test_tasks).seconds) for job in done
    ]
    if took := [pair for pair in took if pair[0]]:
        measured, estimated = (sum(seconds) / 3600 for seconds in zip(*took, strict=True))
        print(f"{len(took)} runs took {measured:.3g} worker-hours; estimate: {estimated:.3g} on two cores")
    for job in directory.plan.jobs:
        status = statuses[job.id]
        if status.state in ("running", "failed", "blocked"):
            print(f"{status.state}: {job.id} ({describe(job)}) {status.message}".rstrip())


def print_estimates(directory: SweepDirectory, measured: Sequence[SweepDirectory] = ()) -> None:
    """Print the estimated cost of every run, and the totals."""
    forecast = Forecast([*measured, directory])
    table = Table("stage", "run", "time", "memory", "disk", title=_about(forecast))
    for column in table.columns[2:]:
        column.justify = "right"
    for job in directory.plan.jobs:
        cost = estimate(job.run, job.test_tasks)
        words = [format_seconds(forecast.seconds(job)), format_bytes(cost.memory), format_bytes(cost.disk)]
        table.add_row(job.stage, describe(job), *words)
    Console().print(table)
    print_total(directory, measured)


def print_total(directory: SweepDirectory, measured: Sequence[SweepDirectory] = ()) -> None:
    """Print the estimated cost per stage, and of all runs."""
    forecast = Forecast([*measured, directory])
    unit = "worker-hours" if forecast.measured else "hours"
    table = Table("stage", "runs", unit, "largest memory", "disk", title=_about(forecast))
    for column in table.columns[1:]:
        column.justify = "right"
    stages: dict[str, list[Job]] = {}
    for job in directory.plan.jobs:
        stages.setdefault(job.stage, []).append(job)
    for stage, jobs in stages.items():
        hours = sum(map(forecast.seconds, jobs)) / 3600
        memory, disk = _memory(jobs), _disk(jobs)
        table.add_row(stage, str(len(jobs)), f"{hours:.1f}", format_bytes(memory), format_bytes(disk))
    Console().print(table)
    jobs = directory.plan.jobs
    seconds = sum(map(forecast.seconds, jobs))
    where = "of one worker" if forecast.measured else "on two cores"
    print(
        f"{len(jobs)} runs: about {format_seconds(seconds)} {where}, "
        f"{format_bytes(_memory(jobs))} of memory for the largest, {format_bytes(_disk(jobs))} on disk."
    )


def _about(forecast: Forecast) -> str:
    if forecast.measured:
        return f"time of one worker, corrected by {forecast.measured} kinds of runs that were measured"
    return "estimates on two cores, within a factor of three"


def _memory(jobs: Sequence[Job]) -> int:
    return max(estimate(job.run, job.test_tasks).memory for job in jobs)


def _disk(jobs: Sequence[Job]) -> int:
    return sum(estimate(job.run, job.test_tasks).disk for job in jobs)
