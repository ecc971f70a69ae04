"""Figure 5: what each choice does to the error in training, other choices being equal."""

from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import COLOURS, NAMES, RNN
from recurrent_laplace.report.panels import (
    METRICS,
    Drawing,
    average_updates,
    count_words,
    curve_of,
    finish_axes,
    fit_y,
    remember,
    say_empty,
    unit_rows,
)
from recurrent_laplace.report.selection import main_runs
from recurrent_laplace.report.tasks import STYLE

GROUPS = {
    "method": "method",
    "covariance": "covariance",
    "beta": "weight of the KL, beta",
    "samples": "draws in the loss",
    "window": "window of Jacobians",
    "features": "size of the belief",
}
"""Columns of the runs that ablations differ in, in words."""

METRIC = "squared_error"


def figure_05(frames: Frames) -> Drawing:
    """Squared error in training, a panel for each choice."""
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(9.7, 6), layout="constrained")
        panels = list(figure.subplots(2, 3).flat)
        for axes, column in zip(panels, GROUPS, strict=True):
            finish_axes(axes, METRICS[METRIC].label, "updates")
            axes.set_title(GROUPS[column])
            _draw(axes, frames, column)
        fit_y(panels, METRICS[METRIC].scale)
        for axes in panels:
            if axes.lines:
                axes.legend(loc="upper right", fontsize=6.5, framealpha=0.85, edgecolor="none")
    return figure


def comparable(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    """The runs that have a partner which differs from them in this column, and in no other choice."""
    others = [other for other in GROUPS if other != column]
    if column == "method":
        # Windows mean something else for each method, so they cannot be held fixed.
        others.remove("window")
    values = runs.group_by(others).agg(pl.col(column).n_unique().alias("values"))
    return runs.join(values.filter(pl.col("values") > 1), on=others, how="semi", nulls_equal=True)


def _draw(axes: Axes, frames: Frames, column: str) -> None:
    bayesian = select(frames.runs, task="regression", origin="scratch").filter(pl.col("method") != "rnn")
    runs = comparable(bayesian, column)
    rnn = main_runs(frames, "regression", "scratch", RNN)
    if not rnn.is_empty():
        _line(axes, frames, rnn, "RNN", COLOURS["rnn"])
    if runs.is_empty():
        if rnn.is_empty():
            say_empty(axes)
        else:
            axes.plot([], [], " ", label="missing: runs that differ in this alone")
        return
    values = _ordered(runs[column].unique().to_list())
    shades = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.85, len(values)))
    for value, shade in zip(values, shades, strict=True):
        chosen = select(runs, **{column: value})
        colour = COLOURS[value] if column == "method" else shade
        label = NAMES[value] if column == "method" else value if isinstance(value, str) else f"{value:g}"
        _line(axes, frames, chosen, label, colour)


def _line(axes: Axes, frames: Frames, runs: pl.DataFrame, label: str, colour: Any) -> None:
    curve = curve_of(average_updates(unit_rows(frames, runs, METRIC, "update", by_run=True)))
    if curve is None:
        axes.plot([], [], " ", label=f"missing: {label}")
        return
    label = f"{label} ({count_words({curve.units}, 'agent')})"
    axes.plot(curve.x, curve.mean, color=colour, linewidth=1.4, label=label)
    if curve.units > 1:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    remember(axes, runs)


def _ordered(values: list[Any]) -> list[Any]:
    """Methods as everywhere else, numbers by size, then words."""
    if set(values) <= set(COLOURS):
        return [method for method in COLOURS if method in values]
    return sorted(values, key=lambda value: (0, float(value), "") if _is_number(value) else (1, 0.0, value))


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) or value.isdigit()
