"""Summary of an evaluation: means over tasks with intervals, compared with exact Bayes."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from rich.table import Table

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import Interval, mean_interval, ratio_interval

COLUMNS = ((0, 1, 5, 10, 20, 50, 100, 200), (1, 10, 50, 100, 200), (1, 50, 200))
"""Episode lengths to print, for wide to narrow terminals."""

Cells = dict[tuple[str, int], Interval]
"""Mean over tasks with its interval, by metric and length."""


class Comparison(NamedTuple):
    """Comparison of a metric with its value under exact Bayes on the same tasks."""

    label: str
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
"""Comparisons of the metrics of quality, also with the suffixes `_strips` and `_gaps`."""


def summary(frame: pl.DataFrame) -> Cells:
    """Mean over tasks with its interval, by metric and length.

    The seeds of a run share the tasks, so a task's value is its mean over seeds.
    """
    return {at: mean_interval(values) for at, values in _by_task(frame).items() if not np.isnan(values).all()}


def compared(frame: pl.DataFrame, exact: pl.DataFrame) -> Cells:
    """Comparison with exact Bayes, task by task, for the metrics that have one."""
    references = _by_task(exact.filter(pl.col("run") == EXACT))
    result = {}
    for at, values in _by_task(frame).items():
        if at in references and (comparison := comparison_of(at[0])) is not None:
            interval = comparison.compare(values, references[at])
            if not np.isnan(interval.mean):
                result[at] = interval
    return result


def comparison_of(metric: str) -> Comparison | None:
    """Comparison of a metric; None if it has none."""
    return COMPARISONS.get(metric.removesuffix("_strips").removesuffix("_gaps"))


def summary_table(frame: pl.DataFrame, exact: pl.DataFrame, width: int) -> Table:
    """Printable summary: metrics in rows, and as many lengths in columns as fit into `width`.

    `exact` has the references on the same tasks (`oracle_table`). Below each metric of quality are the values
    of the references, and the comparison with exact Bayes.
    """
    lengths = next((choice for choice in COLUMNS if 28 + 17 * len(choice) <= width), COLUMNS[-1])
    table = Table(
        "metric", *(f"t = {t}" for t in lengths), title="mean ± half of the 99% interval over tasks"
    )
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    own, relative = summary(frame), compared(frame, exact)
    others = {name: summary(exact.filter(pl.col("run") == name)) for name in _names(exact)}
    for metric in frame["metric"].unique(maintain_order=True):
        table.add_row(metric, *(_cell(own.get((metric, t))) for t in lengths))
        comparison = comparison_of(metric)
        if comparison is None or exact.filter(pl.col("metric") == metric).is_empty():
            continue
        for name, cells in others.items():
            table.add_row(f"  {name}", *(_cell(cells.get((metric, t))) for t in lengths), style="dim")
        comparisons = (_cell(relative.get((metric, t)), percent=comparison.percent) for t in lengths)
        table.add_row(f"  {comparison.label}", *comparisons, style="bold")
    return table


def _by_task(frame: pl.DataFrame) -> dict[tuple[str, int], np.ndarray]:
    """Values of all tasks in order, by metric and length; NaN where a task has none."""
    means = frame.group_by("metric", "t", "task").agg(pl.col("value").mean()).sort("metric", "t", "task")
    return {
        (str(metric), int(str(t))): group["value"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for (metric, t), group in means.group_by("metric", "t", maintain_order=True)
    }


def _names(exact: pl.DataFrame) -> list[str]:
    """Names of the references, exact Bayes first."""
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
    """Number with `digits` significant digits; one digit if zeros would take the space."""
    text = f"{value:.{digits}g}"
    return f"{value:.0e}" if abs(value) < 0.01 and len(text) > digits + 3 else text
