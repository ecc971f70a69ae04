"""`report`: the figures of finished runs, and a page with a verdict on each claim."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import Positional

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.parsing import OwnTasks, session
from recurrent_laplace.runs.origin import changed_tasks
from recurrent_laplace.tasks import load_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(OwnTasks):
    """Draw the paper's figures from finished runs, judge its claims, and write both to one page."""

    folder: Annotated[Positional[Path], tyro.conf.arg(metavar="DIR")]
    """Directory that is searched for runs; figures are written to its folder `figures`."""
    out: Annotated[Path | None, unset("FILE.html")] = None
    """HTML file to write; DIR/report.html by default."""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Report, prog="recurrent-laplace report", args=argv)
    with session():
        for reference in options.task:
            load_task(reference)
        page = draw_page(options.folder, options.out)
        for difference in changed_tasks(options.folder):
            print(f"note: {difference}.", file=sys.stderr)
    print(page)


def draw_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page, with a progress display."""
    # Imported late, since it loads Matplotlib.
    from recurrent_laplace.report.page import write_report

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with console.status("reading the runs") as status:
        return write_report(folder, out, status.update, warn=console.print)
