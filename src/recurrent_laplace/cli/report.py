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
        page = draw_page(options.folder, options.out)
    print(page)


def draw_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page, and show what is being done meanwhile."""
    # Matplotlib is loaded when there is something to draw.
    from recurrent_laplace.report.page import write_report

    with Console(stderr=True).status("reading the runs") as status:
        return write_report(folder, out, status.update)
