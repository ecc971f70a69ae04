"""`sweep`: many runs from one file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from recurrent_laplace.cli import fail
from recurrent_laplace.cli.parsing import session
from recurrent_laplace.experiments.config import parse_toml
from recurrent_laplace.experiments.display import format_seconds
from recurrent_laplace.experiments.estimate import estimate
from recurrent_laplace.experiments.sweeper import cores, run_sweep
from recurrent_laplace.experiments.sweeps import SweepDirectory, counts, describe, failures
from recurrent_laplace.files import read_text
from recurrent_laplace.posterior.cost import format_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """Work through the runs of a sweep file; the same command again continues where it stopped."""

    file: Annotated[Positional[Path], tyro.conf.arg(metavar="FILE.toml")]
    """What to run: axes, exclusions and stages (docs/reproduce.md)."""
    out: Path | None = None
    """Directory of the sweep; runs/ and the file's name by default."""
    workers: int = dataclasses.field(default_factory=cores)
    """Processes to work with."""
    attempts: int = 2
    """How often a run is tried before it is given up."""
    only: tuple[str, ...] = ()
    """Stages to do, with all that they hang on; all but the optional ones by default."""
    dry_run: bool = False
    """List the runs with estimates of time, memory and disk, and do nothing."""
    status: bool = False
    """Show how the sweep stands, and do nothing."""


def main(argv: list[str]) -> None:
    """Sweep."""
    options = tyro.cli(Sweep, prog="recurrent-laplace sweep", args=argv)
    with session():
        tables = parse_toml(read_text(options.file), options.file)
        out = options.out or Path("runs") / options.file.stem
        directory = SweepDirectory.make(out, tables, options.file, options.only)
        directory.attempts = options.attempts
        if options.dry_run:
            print_estimates(directory)
            return
        if options.status:
            print_status(directory)
            return
        directory.write(tables)
        run_sweep(directory, workers=options.workers, only=options.only)
        finish(directory)
    print(f"finished: {directory.path}")
    print(f"next: recurrent-laplace report {directory.path}")


def finish(directory: SweepDirectory) -> None:
    """Say what failed, and leave with a code that says so."""
    if failed := failures(directory):
        for failure in failed:
            print(f"failed: {failure.job.id} ({describe(failure.job)}): {failure.message}")
        total = len(directory.plan.jobs)
        fail(f"{len(failed)} of {total} runs failed; the same command tries them again.", code=1)


def print_status(directory: SweepDirectory) -> None:
    """How many jobs stand how, and what is running or wrong."""
    standings = directory.standings()
    print(", ".join(f"{count} {word}" for word, count in counts(standings).items()))
    for job in directory.plan.jobs:
        standing = standings[job.id]
        if standing.word in ("running", "failed", "blocked"):
            print(f"{standing.word}: {job.id} ({describe(job)}) {standing.message}".rstrip())


def print_estimates(directory: SweepDirectory) -> None:
    """Every run with what it is likely to take, and the sum."""
    table = Table("stage", "run", "time", "memory", "disk", title="estimates: good to a factor of three")
    for column in table.columns[2:]:
        column.justify = "right"
    for job in directory.plan.jobs:
        cost = estimate(job.run)
        words = [format_seconds(cost.seconds), format_bytes(cost.memory), format_bytes(cost.disk)]
        table.add_row(job.stage, describe(job), *words)
    Console().print(table)
    print_total(directory)


def print_total(directory: SweepDirectory) -> None:
    """What all runs are likely to take."""
    costs = [estimate(job.run) for job in directory.plan.jobs]
    print(
        f"{len(costs)} runs: about {format_seconds(sum(cost.seconds for cost in costs))} on two cores, "
        f"{format_bytes(max(cost.memory for cost in costs))} of memory for the largest, "
        f"{format_bytes(sum(cost.disk for cost in costs))} on disk."
    )
