"""Report page in one HTML file: verdicts, figures, and the runs behind them."""

import base64
import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

import recurrent_laplace
from recurrent_laplace.files import StorageError, read_sealed, write_text
from recurrent_laplace.report.claims import Claim, Verdict, judge
from recurrent_laplace.report.figures import FIGURES, FigureEntry
from recurrent_laplace.report.frames import Frames, load_frames
from recurrent_laplace.report.methods import ALL_ORIGINS, describe_run
from recurrent_laplace.report.oracles import ProgressCallback, with_oracles
from recurrent_laplace.report.panels import Drawing
from recurrent_laplace.report.style import save_figure

PIXELS_PER_INCH = 115
"""Scale of figures, larger than in print, since text of 9 points is small on a screen."""

OUTCOMES = ("reproduced", "not reproduced", "not decided")


@dataclasses.dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    entry: FigureEntry
    source: str
    """Image as a data URI."""
    width: int
    """Maximum width in pixels."""
    runs: list[str]


@dataclasses.dataclass(frozen=True)
class PageRun:
    """A run of the page: its row of the table, configuration and provenance."""

    anchor: str
    row: dict[str, Any]
    words: str
    config: str
    commands: list[str]
    versions: list[str]
    machine: str


def write_report(
    folder: Path,
    out: Path | None = None,
    progress: ProgressCallback = lambda text: None,
    *,
    warn: Callable[[str], None] = lambda text: None,
    figures: Sequence[FigureEntry] | None = None,
    claims: Sequence[Claim] | None = None,
) -> Path:
    """Draw all figures of the runs under `folder` and write the page; returns its path.

    Figures are written to `folder/figures`, as PDF and SVG. Apart from tables of exact Bayes, nothing is
    written until everything has been drawn. `progress` receives the current step, `warn` the runs that are
    left out, with the reason. `figures` and `claims` are those of the package by default; others are added
    as in `figures=(*FIGURES, own)`.
    """
    entries = FIGURES if figures is None else tuple(figures)
    numbers = [entry.number for entry in entries]
    if len(set(numbers)) < len(numbers):
        taken = next(number for number in numbers if numbers.count(number) > 1)
        raise ValueError(f"figures must have different numbers; two have number {taken}.")
    out = folder / "report.html" if out is None else out
    progress("reading the runs")
    frames = load_frames(folder)
    for run, reason in frames.left_out.items():
        warn(f"left out: {run}: {reason}")
    if out.is_dir() or not out.parent.is_dir():
        problem = "it is a directory" if out.is_dir() else f"there is no directory {out.parent}"
        raise StorageError(f"the page cannot be written to {out}: {problem}.")
    frames = with_oracles(frames, progress)
    progress("judging the claims")
    verdicts = judge(frames) if claims is None else judge(frames, claims)
    drawings = {}
    for entry in entries:
        progress(f"drawing figure {entry.number} of {len(entries)}: {entry.title}")
        drawings[entry] = entry.draw(frames)
    progress("writing the figures")
    for entry, drawing in drawings.items():
        for suffix in ("pdf", "svg"):
            save_figure(drawing, folder / "figures" / f"{entry.stem}.{suffix}")
    drawn = [page_figure(entry, drawing, folder / "figures") for entry, drawing in drawings.items()]
    progress("writing the page")
    write_text(out, render_page(frames, verdicts, drawn, name=folder.resolve().name, folder=folder))
    return out


def page_figure(entry: FigureEntry, drawing: Drawing, folder: Path) -> PageFigure:
    """The figure with its SVG from `folder`, embedded as a data URI."""
    # An image instead of inline SVG, so that ids inside of figures cannot clash.
    data = base64.b64encode((folder / f"{entry.stem}.svg").read_bytes()).decode()
    width = round(PIXELS_PER_INCH * drawing.get_figwidth())
    return PageFigure(entry, f"data:image/svg+xml;base64,{data}", width, sorted(drawing.runs))


def render_page(
    frames: Frames, verdicts: list[Verdict], figures: list[PageFigure], *, name: str, folder: Path
) -> str:
    """Render the page as HTML; values in `frames` are escaped."""
    runs = [_page_run(frames, row, number) for number, row in enumerate(_ordered(frames), 1)]
    return render_template(
        "page",
        name=name,
        dates=_dates(frames),
        outcomes={word: sum(verdict.verdict == word for verdict in verdicts) for word in OUTCOMES},
        verdicts=verdicts,
        figures=figures,
        runs=runs,
        anchors={run.row["run"]: run.anchor for run in runs},
        left_out=frames.left_out,
        sweep=_sweep_command(folder),
        report=shlex.join(["recurrent-laplace", "report", str(folder)]),
    )


def render_template(template: str, /, **values: Any) -> str:
    """Render a template of this folder with escaped values, in ASCII, which is the same in every locale."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = environment.get_template(f"{template}.html.jinja")
    html = source.render(version=recurrent_laplace.__version__, **values)
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
    config = "" if frames.folder is None else read_sealed(frames.folder / row["path"] / "config.toml")
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
    """Date on which the runs were started, or the first and the last date."""
    days = sorted({began[:10] for began in frames.runs["began"].drop_nulls()})
    if not days:
        return "at an unknown time"
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _sweep_command(folder: Path) -> str | None:
    """Command of the sweep that made the runs, if there is one."""
    file = folder / "sweep.toml"
    if not file.is_file():
        return None
    return shlex.join(["recurrent-laplace", "sweep", str(file), "--out", str(folder)])


def _command(words: list[str]) -> str:
    program, *arguments = words
    return shlex.join([Path(program).name, *arguments])
