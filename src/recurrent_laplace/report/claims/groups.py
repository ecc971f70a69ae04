"""Groups of runs that differ only in seeds, and their metrics by seed."""

import dataclasses
from typing import Any, Literal

import numpy as np
import polars as pl

from recurrent_laplace.report.claims.columns import BETA, of_beta, trained_beliefs
from recurrent_laplace.report.claims.comparison import Region, shown
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.claims.verdict import Findings
from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import NAMES, ORIGINS
from recurrent_laplace.report.selection import (
    PREFERRED_WINDOWS,
    SNAPSHOTS,
    narrow,
    nearest_snapshot,
    with_equal_samples,
)

TIME_MARGIN = 0.1
"""Margin of times, as a share."""

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
    must_learn: bool = True
    """Whether claims about the group need it to have learned its task."""

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates that claims about the group must pass."""
        task, origin, method = self.runs.select("task", "origin", "method").row(0)
        own = task == "gridworld" and origin == "scratch" and method != "rnn" and self.must_learn
        return (rnn_gate(task), self.name) if own else (rnn_gate(task),)

    @property
    def was_trained_with_belief(self) -> bool:
        """Whether some of the runs were trained with a belief."""
        return not trained_beliefs(self.runs).is_empty()

    @property
    def configurations(self) -> frozenset[str]:
        """Configurations of the runs."""
        return frozenset(self.runs["configuration"])

    @property
    def covariance(self) -> str | None:
        """Covariance, diagonal or dense; None for the RNN."""
        return self.runs["covariance"][0]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""
        rows = self.runs.select("seed", "seeds").iter_rows()
        return sorted({seed for first, count in rows for seed in range(first, first + count)})

    def test(self, metric: str, when: When, *, per_feature: bool = False) -> Sample:
        """Test metric after a number of steps, by seed and test task."""
        rows = self._tests(metric)
        if when == CUTOFF:
            rows = rows.filter(pl.col("t") <= pl.col("steps"))
        elif when == END:
            rows = rows.filter(pl.col("t") > pl.col("steps"))
        elif when == 0:
            rows = rows.filter(pl.col("t") == 0)
        else:
            rows = rows.filter(pl.col("t") == when, pl.col("steps") >= when)
        rows = rows.filter(pl.col("t") == pl.col("t").max().over("run", "seed"))
        return self._by_seed(rows, per_feature)

    def change(self, metric: str, first: When, last: When, *, per_feature: bool = False) -> Sample:
        """Change of a test metric from one step to another, by seed and test task."""
        early = self.test(metric, first, per_feature=per_feature)
        return self.test(metric, last, per_feature=per_feature) - early

    def average(self, metric: str, first: int, *, per_feature: bool = False) -> Sample:
        """Mean of a test metric over the tested steps from `first` to the cut-off, by seed and test task."""
        rows = self._tests(metric).filter(pl.col("t") >= first, pl.col("t") <= pl.col("steps"))
        parts = [self._by_seed(part, per_feature) for part in rows.partition_by("t", maintain_order=True)]
        return Sample.average(parts) if parts else self._by_seed(rows, per_feature)

    def curves(self, metric: str, first: int, last: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Steps from `first` to `last` and the test metric at each, by seed."""
        rows = self._tests(metric).filter(pl.col("t").is_between(first, last))
        means = rows.group_by("seed", "t").agg(pl.col("value").mean()).sort("seed", "t")
        return {
            int(str(seed)): (part["t"].to_numpy(), part["value"].to_numpy())
            for (seed,), part in means.partition_by("seed", as_dict=True, include_key=True).items()
        }

    def training(self, metric: str, part: tuple[float, float]) -> Sample:
        """Mean of a training metric over a range of updates, at least one, by seed."""
        return self._by_seed(self._updates(metric, part))

    def training_between(self, metric: str, first: int, last: int) -> Sample:
        """Mean of a training metric over the updates after `first`, up to `last`, by seed."""
        rows = self.frames.training(metric, run=tuple(self.runs["run"]))
        return self._by_seed(rows.filter(pl.col("update") > first, pl.col("update") <= last))

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

    def _by_seed(self, rows: pl.DataFrame, per_feature: bool = False) -> Sample:
        """Values of the rows by seed: means over the runs of a seed, by test task where they are known."""
        if "by_task" not in rows.columns:
            rows = rows.with_columns(pl.lit(None, pl.List(pl.Float32)).alias("by_task"))
        found: dict[int, list[np.ndarray]] = {}
        columns = rows.select("seed", "run", "value", "by_task", "features")
        means = columns.group_by("seed", "run", maintain_order=True).agg(
            pl.col("value").mean(), pl.col("by_task").first(), pl.col("features").first()
        )
        for seed, _, value, by_task, features in means.iter_rows():
            values = [value] if by_task is None else by_task
            row = np.array([np.nan if number is None else number for number in values], float)
            found.setdefault(seed, []).append(row / features if per_feature else row)
        values = {seed: _mean(found.get(seed, [])) for seed in self.seeds}
        return Sample(values, self.configurations)


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
        runs = of_beta(select(frames.runs, task=task, origin=origin, method=method), found.beta)
        available = [None] if method == "rnn" else sorted(set(runs["covariance"].drop_nulls()))
        for covariance in required or available:
            part = select(runs, covariance=covariance)
            name = _name(task, origin, method, covariance)
            if part.is_empty():
                found.missing.append(name)
            else:
                chosen.append(Group(name, frames, usual(part)))
                found.groups.append(chosen[-1])
        if not required and not available:
            found.missing.append(_name(task, origin, method, None))
    return chosen


def any_groups(frames: Frames, origin: str, methods: tuple[str, ...], **chosen: Any) -> list[Group]:
    """Groups of these methods on any task, with all of their runs; none is required, and none recorded."""
    runs = select(frames.runs, origin=origin, method=methods, **chosen)
    parts = runs.sort("task", "method", "covariance").partition_by(
        "task", "method", "covariance", maintain_order=True
    )
    return [
        Group(_name(part["task"][0], origin, part["method"][0], part["covariance"][0]), frames, part, False)
        for part in parts
        if not part.is_empty()
    ]


def usual(runs: pl.DataFrame, *axes: str) -> pl.DataFrame:
    """Runs of one setting, which differ only in seeds; columns in `axes` are not restricted.

    The setting is the paper's default if there are such runs, else the one with the most seeds.
    """
    if runs.is_empty():
        return runs
    task, method, origin = runs.select("task", "method", "origin").row(0)
    windows = PREFERRED_WINDOWS.get(method, ())
    preferred: dict[str, tuple[Any, ...]] = {
        "arm": ("written",),
        "beta": (BETA,),
        "samples": (1,),
        # The paper has all history on regression.
        "window": tuple(reversed(windows)) if task == "regression" else windows,
        "kept": (1.0,) if origin == "posthoc" else SNAPSHOTS,
        "features": (),
        "steps": (),
        "updates": (),
    }
    kept = [fraction and nearest_snapshot(fraction) for fraction in runs["snapshot"]]
    columns = runs.columns
    runs = runs.with_columns(pl.Series("kept", kept, dtype=pl.Float64))
    if "samples" not in axes:
        runs = with_equal_samples(runs)
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


def time_ratio(found: Findings, first: Group, second: Group) -> float | None:
    """Ratio of the seconds per update and seed of two groups: the median over runs of the same seeds."""
    columns = ["seed", "seeds", "update_seconds"]
    pairs = first.runs.select(columns).join(
        second.runs.select(columns), on=["seed", "seeds"], suffix="_other"
    )
    pairs = pairs.drop_nulls()
    if not pairs.is_empty():
        ratios = pairs["update_seconds"].to_numpy() / pairs["update_seconds_other"].to_numpy()
        return float(np.median(ratios))
    for group in (first, second):
        if group.seconds() is None:
            found.missing.append(f"the time per update of {group.name}")
    times = first.seconds(), second.seconds()
    return None if times[0] is None or times[1] is None else times[0] / times[1]


def faster(found: Findings, first: Group, second: Group) -> None:
    """Claim that updates of the first group take less time, by more than the margin of times."""
    if (ratio := time_ratio(found, first, second)) is not None:
        words = f"updates of {first.name} take {shown(ratio)} times as long as those of {second.name}"
        found.exact(words, ratio, Region(high=1 - TIME_MARGIN, par=(1 - TIME_MARGIN, 1 + TIME_MARGIN)))


def rnn_gate(task: str) -> str:
    """Name of the gate of the RNN on a task."""
    return f"{NAMES['rnn']} on {task}"


def _mean(rows: list[np.ndarray]) -> np.ndarray:
    tasks = min(map(len, rows), default=0)
    return np.mean([row[:tasks] for row in rows], axis=0) if tasks else np.array([np.nan])


def _name(task: str, origin: str, method: str, covariance: str | None) -> str:
    kind = f"{covariance} {NAMES[method]}" if covariance else NAMES[method]
    return f"{kind} {ORIGINS[origin]} on {task}"
