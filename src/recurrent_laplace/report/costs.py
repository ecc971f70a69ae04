"""Cost of the runs: time per update beside the RNN's, core-hours, software and machine."""

import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

import polars as pl

from recurrent_laplace.report.figures.timing import KEYS, ordered_rows, row_label, times
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import ALL_ORIGINS
from recurrent_laplace.report.work import HOUR


@dataclasses.dataclass(frozen=True)
class UpdateTime:
    """Median time of an update of one seed, over the runs from scratch of a method."""

    label: str
    by_task: dict[str, tuple[float, float | None]]
    """Seconds, and their ratio to those of the RNN (None without an RNN), by task."""


@dataclasses.dataclass(frozen=True)
class Hours:
    """Core-hours of the runs of a task, by origin."""

    task: str
    by_origin: dict[str, float]

    @property
    def total(self) -> float:
        """Core-hours of all origins."""
        return sum(self.by_origin.values())


def update_times(frames: Frames) -> list[UpdateTime]:
    """Times per update of every method from scratch, in the order of figure 15."""
    tables = {task: times(frames, task) for task in sorted({*frames.runs["task"]})}
    made = []
    for row in ordered_rows(pl.concat(tables.values())):
        by_task = {}
        for task, table in tables.items():
            same = [pl.col(key).eq_missing(value) for key, value in zip(KEYS, row, strict=True)]
            own = table.filter(pl.all_horizontal(same))
            if len(own):
                ratios = own["ratio"].drop_nulls().to_list()
                ratio = statistics.median(ratios) if ratios else None
                by_task[task] = (statistics.median(own["seconds"].to_list()), ratio)
        made.append(UpdateTime(row_label(row), by_task))
    return made


def hours_of(frames: Frames) -> list[Hours]:
    """Core-hours of the finished runs, by task and origin."""
    runs = frames.runs.with_columns(
        (pl.col("seconds") * pl.col("cores") / HOUR).fill_null(0.0).alias("hours")
    )
    made = []
    for task in sorted({*runs["task"]}):
        own = runs.filter(pl.col("task") == task)
        sums = {
            origin: float(own.filter(pl.col("origin") == origin)["hours"].sum())
            for origin in ALL_ORIGINS
            if origin in own["origin"]
        }
        made.append(Hours(task, sums))
    return made


def total_hours(frames: Frames) -> float:
    """Core-hours of all runs, those that are left out included."""
    return sum(hours.total for hours in hours_of(frames)) + frames.left_out_hours


def versions_of(frames: Frames) -> list[str]:
    """Packages with their versions; several where runs differ."""
    found: dict[str, list[str]] = {}
    for session in _sessions(frames):
        packages = {"python": session.get("python"), **(session.get("packages") or {})}
        for package, version in packages.items():
            if version and version not in found.setdefault(package, []):
                found[package].append(version)
    return [f"{package} {' and '.join(versions)}" for package, versions in found.items() if versions]


def commits_of(frames: Frames) -> list[str]:
    """Commits of the package that the runs were made with; `-dirty` after one marks changed files."""
    return sorted({session["commit"] for session in _sessions(frames) if session.get("commit")})


def machines_of(frames: Frames) -> list[str]:
    """Machines of the runs, without the release of their operating systems."""
    found = []
    for session in _sessions(frames):
        system = (session.get("platform") or "").partition("-")[0]
        found.append(machine_words(session | {"platform": system}))
    return [words for words in dict.fromkeys(found) if words]


def machine_words(session: dict[str, Any]) -> str:
    """Processor, cores and operating system of a session."""
    cores = session.get("cores")
    words = (session.get("processor"), f"{cores} cores" if cores else None, session.get("platform"))
    return ", ".join(word for word in words if word)


def dates_of(frames: Frames) -> str:
    """Date on which the runs were started, or the first and the last date."""
    days = sorted({began[:10] for began in frames.runs["began"].drop_nulls()})
    if not days:
        return "at an unknown time"
    return f"on {days[0]}" if len(days) == 1 else f"from {days[0]} to {days[-1]}"


def _sessions(frames: Frames) -> Iterable[dict[str, Any]]:
    return (session for sessions in frames.provenance.values() for session in sessions)
