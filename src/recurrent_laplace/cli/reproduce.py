"""`reproduce`: the paper's experiments, figures, and a verdict on each claim."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.executor import ExecutorOptions
from recurrent_laplace.cli.parsing import session
from recurrent_laplace.cli.report import draw_page
from recurrent_laplace.cli.sweep import finish, print_total
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.sweeper import run_sweep


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(ExecutorOptions):
    """Train, fine-tune and evaluate the paper's agents, then draw its figures and judge its claims.

    Running the same command again continues where it stopped.
    """

    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """Size: minutes (nothing is learned), about an hour on two cores, or the paper's full grid."""
    out: Annotated[Path | None, unset("PATH")] = None
    """Directory of the runs and the page; runs/reproduce-SCALE by default."""
    yes: bool = False
    """Start without confirmation; scale paper takes years on one machine."""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Reproduce, prog="recurrent-laplace reproduce", args=argv)
    with session():
        tables, source = load_sweep(f"reproduce-{options.scale}")
        out = options.out or Path("runs") / f"reproduce-{options.scale}"
        directory = SweepDirectory.make(out, tables, source, options.only)
        if options.scale == "paper" and not options.yes:
            print_total(directory)
            print("this is a large computation: add --yes to start it.")
            return
        executor = options.make_executor(directory)
        directory.write(tables)
        run_sweep(executor)
        page = draw_page(directory.path)
        finish(directory)
    print(page)
