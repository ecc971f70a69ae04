"""One page that has it all, in one file: verdicts, figures, and the runs behind them."""

import base64
import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

import recurrent_laplace
from recurrent_laplace.files import StorageError, read_text, write_text
from recurrent_laplace.report.claims import Verdict, judge
from recurrent_laplace.report.figures import FIGURES, FigureEntry
from recurrent_laplace.report.frames import Frames, load_frames
from recurrent_laplace.report.methods import ALL_ORIGINS, describe_run
from recurrent_laplace.report.oracles import with_oracles
from recurrent_laplace.report.panels import Drawing
from recurrent_laplace.report.tasks import save_figure

PIXELS_PER_INCH = 115
"""A little larger than in print: text of 9 points is small on a screen."""

OUTCOMES = ("reproduced", "not reproduced", "not decided")


@dataclasses.dataclass(frozen=True)
class PageFigure:
    """A figure as the page has it."""

    entry: FigureEntry
    source: str
    """The picture as a data URI."""
    width: int
    """In pixels, where there is room."""
    runs: list[str]


@dataclasses.dataclass(frozen=True)
class PageRun:
    """A run as the page has it: its row of the table, and what else is known of it."""

    anchor: str
    row: dict[str, Any]
    words: str
    config: str
    commands: list[str]
    versions: list[str]
    machine: str


def write_report(
    folder: Path, out: Path | None = None, say: Callable[[str], None] = lambda text: None
) -> Path:
    """Draw all figures of the runs under `folder` and write the page; returns where it is.

    Figures go to `folder/figures`, as PDF and SVG. Nothing is written before all of it could be made, but for
    tables of exact Bayes beside the runs.
    `say` is told what is being done.
    """
    out = folder / "report.html" if out is None else out
    say("reading the runs")
    frames = load_frames(folder)
    if out.is_dir() or not out.parent.is_dir():
        raise StorageError(f"the page cannot be written to {out}: {_why(out)}.")
    frames = with_oracles(frames, say)
    say("judging the claims")
    verdicts = judge(frames)
    drawings = {}
    for entry in FIGURES:
        say(f"drawing figure {entry.number} of {len(FIGURES)}: {entry.title}")
        drawings[entry] = entry.draw(frames)
    say("writing the figures")
    for entry, drawing in drawings.items():
        for suffix in ("pdf", "svg"):
            save_figure(drawing, folder / "figures" / f"{entry.stem}.{suffix}")
    figures = [page_figure(entry, drawing, folder / "figures") for entry, drawing in drawings.items()]
    say("writing the page")
    write_text(out, render_page(frames, verdicts, figures, name=folder.resolve().name, folder=folder))
    return out


def page_figure(entry: FigureEntry, drawing: Drawing, folder: Path) -> PageFigure:
    """A figure whose SVG is in `folder`, for the page."""
    # As a picture and not as a part of the page, so that names inside of figures cannot meet.
    data = base64.b64encode((folder / f"{entry.stem}.svg").read_bytes()).decode()
    width = round(PIXELS_PER_INCH * drawing.get_figwidth())
    return PageFigure(entry, f"data:image/svg+xml;base64,{data}", width, sorted(drawing.runs))


def render_page(
    frames: Frames, verdicts: list[Verdict], figures: list[PageFigure], *, name: str, folder: Path
) -> str:
    """The page as HTML; whatever is in `frames` is shown as text."""
    runs = [_page_run(frames, row, number) for number, row in enumerate(_ordered(frames), 1)]
    html = (
        environment()
        .get_template("page.html.jinja")
        .render(
            name=name,
            dates=_dates(frames),
            outcomes={word: sum(verdict.verdict == word for verdict in verdicts) for word in OUTCOMES},
            verdicts=verdicts,
            figures=figures,
            runs=runs,
            anchors={run.row["run"]: run.anchor for run in runs},
            unfinished=frames.unfinished,
            sweep=_sweep_command(folder),
            report=shlex.join(["recurrent-laplace", "report", str(folder)]),
            version=recurrent_laplace.__version__,
        )
    )
    return as_ascii(html)


def environment() -> jinja2.Environment:
    """Our templates, in which whatever is put into a page is text."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def as_ascii(html: str) -> str:
    """The same page in plain ASCII, which is the same bytes in every locale."""
    return html.encode("ascii", "xmlcharrefreplace").decode()


def _page_run(frames: Frames, row: dict[str, Any], number: int) -> PageRun:
    sessions = frames.provenance.get(row["run"], [])
    commands = [_command(session["command"]) for session in sessions if session.get("command")]
    last = sessions[-1] if sessions else {}
    packages = {"python": last.get("python"), **last.get("packages", {})}
    machine = [
        last.get("processor"),
        f"{last['cores']} cores" if last.get("cores") else None,
        last.get("platform"),
    ]
    config = "" if frames.folder is None else read_text(frames.folder / row["path"] / "config.toml")
    return PageRun(
        anchor=f"run-{number}",
        row=row,
        words=describe_run(row),
        config=config,
        commands=list(dict.fromkeys(commands)),
        versions=[f"{package} {version}" for package, version in packages.items() if version],
        machine=", ".join(part for part in machine if part),
    )


def _ordered(frames: Frames) -> list[dict[str, Any]]:
    origins = tuple(ALL_ORIGINS)
    rows = frames.runs.iter_rows(named=True)
    return sorted(
        rows, key=lambda row: (row["task"], origins.index(row["origin"]), row["method"], row["run"])
    )


def _dates(frames: Frames) -> str:
    """The day on which the runs were begun, or the first and the last of such days."""
    days = sorted({began[:10] for began in frames.runs["began"].drop_nulls()})
    if not days:
        return "at an unknown time"
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _sweep_command(folder: Path) -> str | None:
    """What makes the runs again, where a sweep has made them."""
    file = folder / "sweep.toml"
    if not file.is_file():
        return None
    return shlex.join(["recurrent-laplace", "sweep", str(file), "--out", str(folder)])


def _command(words: list[str]) -> str:
    program, *arguments = words
    return shlex.join([Path(program).name, *arguments])


def _why(out: Path) -> str:
    return "it is a directory" if out.is_dir() else f"there is no directory {out.parent}"
