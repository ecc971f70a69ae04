"""Groups of runs that differ only in seeds, and their metrics by seed."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import polars as pl

from recurrent_laplace.report.claims.verdict import Findings, Seeds, minus
from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import NAMES, ORIGINS
from recurrent_laplace.report.selection import PREFERRED_WINDOWS, SNAPSHOTS, narrow, nearest_snapshot

LAPLACE = ("stationary", "precision", "mean_and_precision")
BAYESIAN = ("vrnn", *LAPLACE)
DERIVED = ("vrnn", "stationary", "precision")
"""Methods that the paper derives from trained RNNs."""
CONTROL = ("bandit", "gridworld")

CUTOFF, END = "cut-off", "end"
When = int | Literal["cut-off", "end"]
"""Step of a test: a number, the training length, or the longest test beyond it."""

FIRST_QUARTER, FIRST_TENTH, LAST_TENTH = (0.0, 0.25), (0.0, 0.1), (0.9, 1.0)
"""Ranges of the updates of a run, as fractions."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs of one task, origin, method and covariance; values are means over the runs of a seed."""

    name: str
    frames: Frames
    runs: pl.DataFrame

    @property
    def covariance(self) -> str | None:
        """Covariance, diagonal or dense; None for the RNN."""
        return self.runs["covariance"][0]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        rows = self.runs.select("seed", "seeds").iter_rows()
        return sorted({seed for first, count in rows for seed in range(first, first + count)})

    def test(self, metric: str, when: When, *, per_feature: bool = False) -> Seeds:
        """Test metric after a number of steps, by seed."""
        rows = self._tests(metric)
        if when == CUTOFF:
            rows = rows.filter(pl.col("t") <= pl.col("steps"))
        elif when == END:
            rows = rows.filter(pl.col("t") > pl.col("steps"))
        else:
            rows = rows.filter(pl.col("t") == when, pl.col("steps") > when)
        rows = rows.filter(pl.col("t") == pl.col("t").max().over("run", "seed"))
        return self._by_seed(rows, per_feature)

    def change(self, metric: str, first: When, last: When, *, per_feature: bool = False) -> Seeds:
        """Change of a test metric from one step to another, by seed."""
        early = self.test(metric, first, per_feature=per_feature)
        return minus(self.test(metric, last, per_feature=per_feature), early)

    def curves(self, metric: str, first: int, last: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Steps from `first` to `last` and the test metric at each, by seed."""
        rows = self._tests(metric).filter(pl.col("t").is_between(first, last))
        means = rows.group_by("seed", "t").agg(pl.col("value").mean()).sort("seed", "t")
        return {
            seed: (part["t"].to_numpy(), part["value"].to_numpy())
            for (seed,), part in means.partition_by("seed", as_dict=True, include_key=True).items()
        }

    def training(self, metric: str, part: tuple[float, float], *, per_feature: bool = False) -> Seeds:
        """Mean of a training metric over a range of updates, at least one, by seed."""
        return self._by_seed(self._updates(metric, part), per_feature)

    def noise(self, metric: str, part: tuple[float, float]) -> Seeds:
        """Standard deviation of a training metric over a range of updates, by seed."""
        return self._by_seed(self._updates(metric, part).group_by("run", "seed").agg(pl.col("value").std()))

    def seconds(self) -> float | None:
        """Median seconds per update and seed; None if no run has a time."""
        times = self.runs.select(pl.col("update_seconds") / pl.col("seeds")).to_series().drop_nulls()
        return None if times.is_empty() else float(np.median(times.to_numpy()))

    def each_run(self) -> list["Group"]:
        """One group per run."""
        return [Group(self.name, self.frames, part) for part in self.runs.partition_by("run")]

    def _updates(self, metric: str, part: tuple[float, float]) -> pl.DataFrame:
        rows = self.frames.training(metric, run=tuple(self.runs["run"]))
        # The tolerance keeps rounding errors from adding an update.
        first = (pl.col("updates") * part[0] + 1e-9).floor() + 1
        last = pl.max_horizontal((pl.col("updates") * part[1] - 1e-9).ceil(), pl.lit(1.0))
        return rows.filter(pl.col("update").is_between(first, last))

    def _tests(self, metric: str) -> pl.DataFrame:
        return self.frames.tests(metric, run=tuple(self.runs["run"]))

    def _by_seed(self, rows: pl.DataFrame, per_feature: bool = False) -> Seeds:
        if per_feature:
            rows = rows.with_columns(pl.col("value") / pl.col("features"))
        means = dict(rows.group_by("seed").agg(pl.col("value").mean()).select("seed", "value").iter_rows())
        values = {seed: means.get(seed) for seed in self.seeds}
        return {seed: math.nan if value is None else value for seed, value in values.items()}


def groups(
    frames: Frames,
    found: Findings,
    task: str,
    origin: str,
    methods: tuple[str, ...],
    covariances: tuple[str, ...] = (),
) -> list[Group]:
    """Groups of each method, one per covariance; missing ones are recorded in `found`.

    Given `covariances` are required, and others are ignored.
    """
    chosen = []
    for method in methods:
        required = covariances if method != "rnn" else ()
        runs = select(frames.runs, task=task, origin=origin, method=method)
        available = [None] if method == "rnn" else sorted(set(runs["covariance"].drop_nulls()))
        for covariance in required or available:
            part = select(runs, covariance=covariance)
            name = _name(task, origin, method, covariance)
            if part.is_empty():
                found.missing.append(name)
            else:
                chosen.append(Group(name, frames, usual(part)))
        if not required and not available:
            found.missing.append(_name(task, origin, method, None))
    return chosen


def any_groups(frames: Frames, origin: str, methods: tuple[str, ...], **chosen: Any) -> list[Group]:
    """Groups of these methods on any task, with all of their runs; none is required."""
    runs = select(frames.runs, origin=origin, method=methods, **chosen)
    parts = runs.sort("task", "method", "covariance").partition_by(
        "task", "method", "covariance", maintain_order=True
    )
    return [
        Group(_name(part["task"][0], origin, part["method"][0], part["covariance"][0]), frames, part)
        for part in parts
        if not part.is_empty()
    ]


def usual(runs: pl.DataFrame, *axes: str) -> pl.DataFrame:
    """Runs of one setting, which differ only in seeds; columns in `axes` are not restricted.

    The setting is the paper's default if there are such runs, else the one with the most seeds.
    """
    if runs.is_empty():
        return runs
    preferred: dict[str, tuple[Any, ...]] = {
        "beta": (1e-2,),
        "samples": (1,),
        "window": PREFERRED_WINDOWS.get(runs["method"][0], ()),
        "kept": (1.0,) if runs["origin"][0] == "posthoc" else SNAPSHOTS,
        "features": (),
        "steps": (),
        "updates": (),
    }
    kept = [fraction and nearest_snapshot(fraction) for fraction in runs["snapshot"]]
    columns = runs.columns
    runs = runs.with_columns(pl.Series("kept", kept, dtype=pl.Float64))
    for column, values in preferred.items():
        if column not in axes:
            runs = narrow(runs, column, values)
    return runs.select(columns)


def pretrained(frames: Frames, found: Findings, group: Group) -> Group | None:
    """Parent RNNs of a group; if they are missing, the RNNs of the same task."""
    task = group.runs["task"][0]
    parents = tuple(group.runs["parent"].drop_nulls())
    runs = select(frames.runs, task=task, origin="scratch", method="rnn")
    if not select(runs, run=parents).is_empty():
        return Group(_name(task, "scratch", "rnn", None), frames, select(runs, run=parents))
    return next(iter(groups(frames, found, task, "scratch", ("rnn",))), None)


def partner(group: Group, others: list[Group]) -> Group | None:
    """The group with the same covariance, else the first."""
    same = [other for other in others if other.covariance == group.covariance]
    return next(iter(same or others), None)


def joined(parts: list[Seeds]) -> Seeds:
    """Means by seed over several runs."""
    seeds = sorted({seed for part in parts for seed in part})
    return {seed: float(np.mean([part[seed] for part in parts if seed in part])) for seed in seeds}


def faster(found: Findings, first: Group, second: Group) -> None:
    """Claim that updates of the first group take less time; measured once, without an interval over seeds."""
    times = first.seconds(), second.seconds()
    for group, time in zip((first, second), times, strict=True):
        if time is None:
            found.missing.append(f"the time per update of {group.name}")
    if times[0] is not None and times[1] is not None:
        found.exact(first.name, times[0], second.name, times[1], "seconds per update and seed")


def _name(task: str, origin: str, method: str, covariance: str | None) -> str:
    kind = f"{covariance} {NAMES[method]}" if covariance else NAMES[method]
    return f"{kind} {ORIGINS[origin]} on {task}"
