"""`reproduce`: from nothing to the paper's figures and a verdict on each of its claims."""

import dataclasses
from pathlib import Path
from typing import Literal

import tyro

from recurrent_laplace.cli.executor import Executor
from recurrent_laplace.cli.parsing import session
from recurrent_laplace.cli.report import draw_page
from recurrent_laplace.cli.sweep import finish, print_total
from recurrent_laplace.experiments.presets import load_sweep
from recurrent_laplace.experiments.sweeper import run_sweep
from recurrent_laplace.experiments.sweeps import SweepDirectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(Executor):
    """Train, fine-tune and test the paper's agents, then draw its figures and judge its claims.

    The same command again continues where it stopped.
    """

    scale: Literal["smoke", "laptop", "paper"] = "smoke"
    """How much: minutes (nothing is learned), an hour or so on two cores, or the paper's whole grid."""
    out: Path | None = None
    """Directory of the runs and of the page; runs/reproduce-SCALE by default."""
    yes: bool = False
    """Begin without asking, where it would take years on one machine (scale paper)."""


def main(argv: list[str]) -> None:
    """Reproduce."""
    options = tyro.cli(Reproduce, prog="recurrent-laplace reproduce", args=argv)
    with session():
        tables, source = load_sweep(f"reproduce-{options.scale}")
        out = options.out or Path("runs") / f"reproduce-{options.scale}"
        directory = SweepDirectory.make(out, tables, source, options.only)
        if options.scale == "paper" and not options.yes:
            print_total(directory)
            print("this is much: add --yes to begin.")
            return
        team = options.team(directory)
        directory.write(tables)
        run_sweep(team)
        page = draw_page(directory.path)
        finish(directory)
    print(page)
