"""Report page in one HTML file: verdicts, figures, and the runs behind them."""

import base64
import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

import recurrent_laplace
from recurrent_laplace.files import StorageError, read_sealed, write_text
from recurrent_laplace.report.claims import OUTCOMES, Claim, Gate, Verdict, judge, judge_gates
from recurrent_laplace.report.commands import command_of
from recurrent_laplace.report.costs import (
    commits_of,
    dates_of,
    hours_of,
    machine_words,
    machines_of,
    total_hours,
    update_times,
    versions_of,
)
from recurrent_laplace.report.figures import FIGURES, FigureEntry
from recurrent_laplace.report.frames import Frames, load_frames
from recurrent_laplace.report.methods import ALL_ORIGINS, describe_run
from recurrent_laplace.report.oracles import ProgressCallback, with_oracles
from recurrent_laplace.report.panels import Drawing
from recurrent_laplace.report.raw import CONTENT, write_tables
from recurrent_laplace.report.raw import FOLDER as TABLES
from recurrent_laplace.report.settings import option_names, settings_of
from recurrent_laplace.report.style import save_figure
from recurrent_laplace.report.summary import COLUMNS, summarize

PIXELS_PER_INCH = 115
"""Scale of figures, larger than in print, since text of 9 points is small on a screen."""


@dataclasses.dataclass(frozen=True)
class PageFigure:
    """A figure of the page."""

    entry: FigureEntry
    source: str
    """Image as a data URI."""
    width: int
    """Maximum width in pixels."""
    runs: list[str]
    missing: list[str] = dataclasses.field(default_factory=list)
    """Lines without runs, by panel."""


@dataclasses.dataclass(frozen=True)
class PageClaim:
    """A claim of the page with its verdicts by column."""

    id: str
    text: str
    rule: str
    figure: int
    verdicts: dict[str, Verdict]

    @property
    def main(self) -> Verdict:
        """Verdict whose decisive sentence the table shows: as written, if there is one."""
        return next(
            (self.verdicts[column] for column in ("written", "both", "released") if column in self.verdicts),
            next(iter(self.verdicts.values())),
        )


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

    Figures are written to `folder/figures`, as PDF and SVG, and raw tables to `folder/tables`. Apart from
    tables of exact Bayes, nothing is written until everything has been drawn. `progress` receives the current
    step, `warn` the runs that are left out, with the reason. `figures` and `claims` are those of the package
    by default; others are added as in `figures=(*FIGURES, own)`.
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
    gates = judge_gates(frames)
    drawings = {}
    for entry in entries:
        progress(f"drawing figure {entry.number} of {len(entries)}: {entry.title}")
        drawings[entry] = entry.draw(frames)
    progress("writing the figures")
    for entry, drawing in drawings.items():
        for suffix in ("pdf", "svg"):
            save_figure(drawing, folder / "figures" / f"{entry.stem}.{suffix}")
    drawn = [page_figure(entry, drawing, folder / "figures") for entry, drawing in drawings.items()]
    progress("writing the tables")
    tables = write_tables(frames, verdicts, gates, folder / TABLES)
    progress("writing the page")
    links = {path.stem: Path(os.path.relpath(path, out.parent)).as_posix() for path in tables}
    page = render_page(
        frames, verdicts, drawn, gates=gates, tables=links, name=folder.resolve().name, folder=folder
    )
    write_text(out, page)
    return out


def page_figure(entry: FigureEntry, drawing: Drawing, folder: Path) -> PageFigure:
    """The figure with its SVG from `folder`, embedded as a data URI."""
    # An image instead of inline SVG, so that ids inside of figures cannot clash.
    data = base64.b64encode((folder / f"{entry.stem}.svg").read_bytes()).decode()
    width = round(PIXELS_PER_INCH * drawing.get_figwidth())
    return PageFigure(
        entry, f"data:image/svg+xml;base64,{data}", width, sorted(drawing.runs), drawing.missing
    )


def render_page(
    frames: Frames,
    verdicts: list[Verdict],
    figures: list[PageFigure],
    *,
    gates: Sequence[Gate] = (),
    tables: Mapping[str, str] | None = None,
    name: str,
    folder: Path,
) -> str:
    """Render the page as HTML; values in `frames` are escaped.

    `tables` has links to the raw tables, by their names.
    """
    settings = settings_of(frames)
    runs = [_page_run(frames, row, number) for number, row in enumerate(_ordered(frames), 1)]
    return render_template(
        "page",
        name=name,
        dates=dates_of(frames),
        titles=COLUMNS,
        judged=frames.judged,
        gates=_by_name(gates),
        tallies=_tallies(verdicts),
        claims=_page_claims(verdicts),
        figures=figures,
        runs=runs,
        anchors={run.row["run"]: run.anchor for run in runs},
        left_out=frames.left_out,
        summary=summarize(frames, verdicts, gates),
        settings=settings,
        options=option_names(settings),
        origins={key: words for key, words in ALL_ORIGINS.items() if key in frames.runs["origin"]},
        update_times=update_times(frames),
        hours=hours_of(frames),
        total_hours=total_hours(frames),
        left_out_hours=frames.left_out_hours,
        versions=versions_of(frames),
        commits=commits_of(frames),
        machines=machines_of(frames),
        tables=tables or {},
        contents=CONTENT,
        made=command_of(folder),
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


def _by_name(gates: Sequence[Gate]) -> dict[str, dict[str, Gate]]:
    """Gates by name and column."""
    names = dict.fromkeys(gate.name for gate in gates)
    return {name: {gate.column: gate for gate in gates if gate.name == name} for name in names}


def _tallies(verdicts: list[Verdict]) -> dict[str, dict[str, int]]:
    """Number of claims with each outcome that occurs, by column."""
    tallies = {}
    for column in COLUMNS:
        words = [verdict.verdict for verdict in verdicts if verdict.column == column]
        if words:
            tallies[column] = {word: words.count(word) for word in OUTCOMES if word in words}
    return tallies


def _page_claims(verdicts: list[Verdict]) -> list[PageClaim]:
    """Claims in the order of their verdicts; two claims may have one id."""
    claims: dict[tuple[str, str], PageClaim] = {}
    for verdict in verdicts:
        key = (verdict.id, verdict.claim)
        new = PageClaim(verdict.id, verdict.claim, verdict.rule, verdict.figure, {})
        claims.setdefault(key, new).verdicts[verdict.column] = verdict
    return list(claims.values())


def _page_run(frames: Frames, row: dict[str, Any], number: int) -> PageRun:
    sessions = frames.provenance.get(row["run"], [])
    commands = [_command(session["command"]) for session in sessions if _is_ours(session.get("command"))]
    last = sessions[-1] if sessions else {}
    packages = {"python": last.get("python"), **(last.get("packages") or {})}
    config = "" if frames.folder is None else read_sealed(frames.folder / row["path"] / "config.toml")
    return PageRun(
        anchor=f"run-{number}",
        row=row,
        words=describe_run(row),
        config=config,
        commands=list(dict.fromkeys(commands)),
        versions=[f"{package} {version}" for package, version in packages.items() if version],
        machine=machine_words(last),
    )


def _ordered(frames: Frames) -> list[dict[str, Any]]:
    origins = tuple(ALL_ORIGINS)
    rows = frames.runs.iter_rows(named=True)
    return sorted(
        rows, key=lambda row: (row["task"], origins.index(row["origin"]), row["method"], row["run"])
    )


def _is_ours(words: list[str] | None) -> bool:
    """Whether a command is one of the command line; that of a worker cannot be repeated."""
    return bool(words) and Path(words[0]).name == "recurrent-laplace"


def _command(words: list[str]) -> str:
    program, *arguments = words
    return shlex.join([Path(program).name, *arguments])
