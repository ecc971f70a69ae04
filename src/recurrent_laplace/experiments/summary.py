"""The numbers of an evaluation in few: means over tasks with intervals, beside what is possible."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from rich.table import Table

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import Interval, mean_interval, ratio_interval

COLUMNS = ((0, 1, 5, 10, 20, 50, 100, 200), (1, 10, 50, 100, 200), (1, 50, 200))
"""Lengths to print, for wide and for narrow terminals."""

Cells = dict[tuple[str, int], Interval]
"""For each metric and length, the mean over tasks with its interval."""


class Comparison(NamedTuple):
    """How numbers of the same tasks are held against those of exact Bayes, and what it is called."""

    words: str
    compare: Callable[[np.ndarray, np.ndarray], Interval]
    percent: bool = False


def _difference(own: np.ndarray, exact: np.ndarray) -> Interval:
    return mean_interval(own - exact)


COMPARISONS = {
    "return": Comparison(f"share of {EXACT}", ratio_interval, percent=True),
    "cumulative_regret": Comparison(f"times {EXACT}", ratio_interval),
    "cross_entropy": Comparison(f"above {EXACT}", _difference),
    "squared_error": Comparison(f"above {EXACT}", _difference),
}
"""Metrics that say how good a model is; also with `_strips` and `_gaps` behind their names."""


def summary(frame: pl.DataFrame) -> Cells:
    """For each metric and length, the mean over tasks with its interval.

    Tasks are the units: the seeds of a run share them, so a task's value is its mean over seeds.
    """
    return {at: mean_interval(values) for at, values in _by_task(frame).items() if not np.isnan(values).all()}


def compared(frame: pl.DataFrame, exact: pl.DataFrame) -> Cells:
    """The same of the comparison with exact Bayes, task by task, for the metrics that have one."""
    references = _by_task(exact.filter(pl.col("run") == EXACT))
    result = {}
    for at, values in _by_task(frame).items():
        if at in references and (comparison := comparison_of(at[0])) is not None:
            interval = comparison.compare(values, references[at])
            if not np.isnan(interval.mean):
                result[at] = interval
    return result


def comparison_of(metric: str) -> Comparison | None:
    """How a metric is compared; None if it is not."""
    return COMPARISONS.get(metric.removesuffix("_strips").removesuffix("_gaps"))


def summary_table(frame: pl.DataFrame, exact: pl.DataFrame, width: int) -> Table:
    """The summary to print: metrics in rows, and as many lengths in columns as fit into `width`.

    `exact` has the references on the same tasks (`oracle_table`). Below a metric that says how good the
    model is are what they reach, and how the model compares with exact Bayes.
    """
    lengths = next((some for some in COLUMNS if 28 + 17 * len(some) <= width), COLUMNS[-1])
    table = Table(
        "metric", *(f"t = {t}" for t in lengths), title="mean ± half of the 99% interval over tasks"
    )
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    own, against = summary(frame), compared(frame, exact)
    others = {name: summary(exact.filter(pl.col("run") == name)) for name in _names(exact)}
    for metric in frame["metric"].unique(maintain_order=True):
        table.add_row(metric, *(_cell(own.get((metric, t))) for t in lengths))
        comparison = comparison_of(metric)
        if comparison is None or exact.filter(pl.col("metric") == metric).is_empty():
            continue
        for name, cells in others.items():
            table.add_row(f"  {name}", *(_cell(cells.get((metric, t))) for t in lengths), style="dim")
        shares = (_cell(against.get((metric, t)), percent=comparison.percent) for t in lengths)
        table.add_row(f"  {comparison.words}", *shares, style="bold")
    return table


def _by_task(frame: pl.DataFrame) -> dict[tuple[str, int], np.ndarray]:
    """For each metric and length, the values of all tasks in their order; NaN where a task has none."""
    means = frame.group_by("metric", "t", "task").agg(pl.col("value").mean()).sort("metric", "t", "task")
    return {
        (str(metric), int(str(t))): group["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for (metric, t), group in means.group_by("metric", "t", maintain_order=True)
    }


def _names(exact: pl.DataFrame) -> list[str]:
    """The references, exact Bayes first."""
    return sorted(exact["run"].unique(), key=lambda name: (name != EXACT, name))


def _cell(interval: Interval | None, *, percent: bool = False) -> str:
    if interval is None:
        return "-"
    if percent:
        mean, half = f"{interval.mean:.0%}", f"{interval.high - interval.mean:.1%}"
    else:
        mean, half = _short(interval.mean, 3), _short(interval.high - interval.mean, 2)
    return mean if interval.units == 1 else f"{mean} ± {half}"


def _short(value: float, digits: int) -> str:
    """So many digits; one, where a number is so small that its zeros would need the room."""
    text = f"{value:.{digits}g}"
    return f"{value:.0e}" if abs(value) < 0.01 and len(text) > digits + 3 else text
