"""`report`: the figures of a directory of runs, and a page with a verdict on each claim."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional

from recurrent_laplace.cli.parsing import session


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """Draw the paper's figures from finished runs, judge its claims, and write one page with all of it."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Directory with the runs, which may be anywhere under it; figures are put into its folder `figures`."""
    out: Path | None = None
    """File to write the page to; DIR/report.html by default."""


def main(argv: list[str]) -> None:
    """Report."""
    options = tyro.cli(Report, prog="recurrent-laplace report", args=argv)
    with session():
        from recurrent_laplace.report.page import write_report

        console = Console(stderr=True)
        with console.status("reading the runs") as status:
            page = write_report(options.folder, options.out, status.update)
    print(page)
