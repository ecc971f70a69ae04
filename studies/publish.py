"""Publish a reproduction, finished or not, in docs/lab.

    python studies/publish.py runs/reproduce-night

Judges the finished runs of the directory and writes `docs/lab/reproduction.md`, with figures and raw tables
in `docs/lab/reproduction/`, and an entry of the page in `mkdocs.yml`. Prints the lines for the README.
Everything is generated from the runs.
"""

import argparse
import contextlib
import dataclasses
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from recurrent_laplace.files import StorageError, write_text
from recurrent_laplace.report.claims import OUTCOMES, Gate, Verdict, judge, judge_gates
from recurrent_laplace.report.commands import scale_of
from recurrent_laplace.report.costs import (
    commits_of,
    dates_of,
    hours_of,
    machines_of,
    total_hours,
    update_times,
    versions_of,
)
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.frames import Frames, load_frames
from recurrent_laplace.report.methods import ALL_ORIGINS
from recurrent_laplace.report.oracles import with_oracles
from recurrent_laplace.report.raw import CONTENT, write_tables
from recurrent_laplace.report.settings import option_names, settings_of
from recurrent_laplace.report.style import save_figure
from recurrent_laplace.report.summary import COLUMNS, summarize
from recurrent_laplace.sweeps.directory import SweepDirectory

DOCS = Path(__file__).parents[1] / "docs"
NAME = "reproduction"
NAV = f"      - Reproduction of the paper: lab/{NAME}.md\n"
LAB = "  - Lab:\n"
"""Line of the navigation that the entry follows."""


@dataclasses.dataclass(frozen=True)
class Published:
    """What is published of a reproduction."""

    folder: Path
    frames: Frames
    verdicts: list[Verdict]
    gates: list[Gate]

    @classmethod
    def of(cls, folder: Path) -> "Published":
        """Judge the finished runs of a directory."""
        frames = with_oracles(load_frames(folder))
        return cls(folder, frames, judge(frames), judge_gates(frames))

    def write(self, docs: Path) -> Path:
        """Write page, figures, tables and navigation; returns the path of the page."""
        assets, page = docs / "lab" / NAME, docs / "lab" / f"{NAME}.md"
        drawings = {entry: entry.draw(self.frames) for entry in FIGURES}
        shutil.rmtree(assets, ignore_errors=True)
        write_tables(self.frames, self.verdicts, self.gates, assets)
        for entry, drawing in drawings.items():
            save_figure(drawing, assets / f"{entry.stem}.svg")
        write_text(page, "\n".join(self.page()) + "\n")
        add_to_navigation(docs.parent / "mkdocs.yml")
        return page

    def page(self) -> Iterator[str]:
        """Lines of the page."""
        scale = scale_of(self.folder)
        command = f"recurrent-laplace reproduce --scale {scale}" if scale else "recurrent-laplace report"
        commits = ", ".join(f"`{commit}`" for commit in commits_of(self.frames)) or "unknown"
        yield f"# Reproduction\n\nRuns started {dates_of(self.frames)} with `{command}`; commit: {commits}."
        yield f"{total_hours(self.frames):.3g} core-hours. {state_of(self.folder)}"
        yield "How claims are decided: [Claims](../claims.md). Written by `studies/publish.py`."
        yield "\n## Gates\n"
        yield from self._gates()
        yield "\n## Claims\n"
        yield from (f"- {line}" for line in self.counts())
        yield ""
        yield from self._claims()
        yield "\n## Figures\n"
        for entry in FIGURES:
            yield f"![Figure {entry.number}: {entry.title}]({NAME}/{entry.stem}.svg)\n"
            yield f"*Figure {entry.number}. {entry.title}.* {entry.caption}\n"
        yield "## Summary\n\nIn the form of the ML Reproducibility Challenge."
        for part in summarize(self.frames, self.verdicts, self.gates):
            yield f"\n### {part.title}\n"
            yield "\n\n".join(part.paragraphs)
        yield "\n## Hyper-parameters\n"
        yield from self._options()
        yield "\n## Cost\n"
        yield "Time of an update of one seed from scratch (median over runs), and its ratio to the RNN's.\n"
        yield from self._costs()
        yield f"\n## Versions\n\n{', '.join(versions_of(self.frames)) or 'Unknown'}."
        yield f"Machine: {'; '.join(machines_of(self.frames)) or 'unknown'}."
        yield "\n## Raw tables\n"
        yield from (f"- [{name}.parquet]({NAME}/{name}.parquet): {words}" for name, words in CONTENT.items())

    def counts(self) -> list[str]:
        """Number of claims with each outcome, a line per column."""
        lines = []
        for column, title in COLUMNS.items():
            words = [verdict.verdict for verdict in self.verdicts if verdict.column == column]
            if words:
                counts = [f"{words.count(word)} {word}" for word in OUTCOMES if word in words]
                lines.append(f"{title}: {', '.join(counts)}.")
        return lines

    def readme(self) -> list[str]:
        """Lines for the README: what was run, what came out, and where it is."""
        seeds = self.frames.runs.select("seed", "seeds").iter_rows()
        last = max(first + count for first, count in seeds)
        claims = len({verdict.id for verdict in self.verdicts})
        passed = sum(gate.passed is True for gate in self.gates)
        counts = self.counts()
        return [
            f"{claims} claims of the paper, judged on {len(self.frames.runs)} runs with up to {last} "
            f"seed{'' if last == 1 else 's'}, "
            f"{total_hours(self.frames):.3g} core-hours, {dates_of(self.frames)}:",
            *(f"- {line}" for line in counts[:2]),
            f"- {' '.join(counts[2:])} {passed} of {len(self.gates)} gates passed: what agents must learn.",
            f"- [Verdicts with their evidence, figures, options, cost and raw tables](docs/lab/{NAME}.md).",
        ]

    def _gates(self) -> Iterator[str]:
        columns = list(dict.fromkeys(gate.column for gate in self.gates))
        cells = {(gate.name, gate.column): gate for gate in self.gates}
        words = {True: "passed", False: "failed", None: "unknown, missing"}
        rows = []
        for name in dict.fromkeys(gate.name for gate in self.gates):
            own = [cells.get((name, column)) for column in columns]
            rows.append(
                [name, *("-" if gate is None else f"{words[gate.passed]}: {gate.words}" for gate in own)]
            )
        yield from table(["agents", *(COLUMNS[column] for column in columns)], rows)

    def _claims(self) -> Iterator[str]:
        rows = []
        for id, text in dict.fromkeys((verdict.id, verdict.claim) for verdict in self.verdicts):
            own = {verdict.column: verdict for verdict in self.verdicts if verdict.id == id}
            main = next(own[column] for column in ("written", "both", "released") if column in own)
            outcomes = {column: verdict.verdict for column, verdict in own.items()}
            shared = outcomes.get("both", "-")
            weaker = outcomes.get("written, beta 1e-4")
            written = outcomes.get("written", shared) + (f"; beta 1e-4: {weaker}" if weaker else "")
            rows.append([id, text, outcomes.get("released", shared), written, main.summary, f"{main.figure}"])
        yield from table(["id", "claim", "as released", "as written", "evidence", "figure"], rows)

    def _options(self) -> Iterator[str]:
        settings = settings_of(self.frames)
        rows = [
            [
                f"`{name}`",
                *("differs" if name in each.varied else each.shared.get(name, "-") for each in settings),
            ]
            for name in option_names(settings)
        ]
        yield from table(["option", *(each.task for each in settings)], rows)
        for each in settings:
            yield f"\n### Options of each method on {each.task.replace('_', ' ')}\n"
            rows = [[row.words, row.arm, *row.values.values(), row.seeds] for row in each.rows]
            yield from table(["method", "arm", *(f"`{name}`" for name in each.varied), "seeds"], rows)

    def _costs(self) -> Iterator[str]:
        hours = hours_of(self.frames)
        rows = []
        for row in update_times(self.frames):
            cells = (row.by_task.get(each.task) for each in hours)
            rows.append([row.label, *("-" if cell is None else time_words(*cell) for cell in cells)])
        yield from table(["method", *(each.task for each in hours)], rows)
        yield "\nCore-hours, compilation and evaluation included.\n"
        rows = [
            [
                each.task,
                *(f"{each.by_origin.get(origin, 0):.3g}" for origin in ALL_ORIGINS),
                f"{each.total:.3g}",
            ]
            for each in hours
        ]
        yield from table(["task", *ALL_ORIGINS.values(), "all"], rows)


def time_words(seconds: float, ratio: float | None) -> str:
    """Time of an update and its ratio to the RNN's."""
    return f"{1000 * seconds:.3g} ms" + ("" if ratio is None else f", {ratio:.2g} x")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{len(head) * '---|'}"
    for row in rows:
        cells = (cell.replace("|", "\\|").replace("<", "&lt;") for cell in row)
        yield f"| {' | '.join(cells)} |"


def state_of(folder: Path) -> str:
    """How far the looks of a reproduction are."""
    words = []
    for path in sorted(folder.glob("look-*"), key=lambda path: int(path.name.removeprefix("look-"))):
        with contextlib.suppress(StorageError):
            sweep = SweepDirectory.open(path)
            done = sum(map(sweep.is_done, sweep.plan.jobs))
            words.append(
                f"look {path.name.removeprefix('look-')}: {done} of {len(sweep.plan.jobs)} runs done"
            )
    return f"{'; '.join(words)}." if words else ""


def add_to_navigation(file: Path) -> None:
    """Add the page to the site, once."""
    text = file.read_text()
    if NAV not in text:
        write_text(file, text.replace(LAB, LAB + NAV))


def main() -> None:
    """Publish the directory that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="directory of the reproduction")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the documentation")
    options = parser.parse_args()
    try:
        published = Published.of(options.folder)
        published.write(options.docs)
    except StorageError as problem:
        raise SystemExit(f"publish.py: {problem}") from problem
    print("\n".join(published.readme()))


if __name__ == "__main__":
    main()
