"""Figure 5: ablations of the training error, one option at a time."""

from typing import Any

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import COLOURS, RNN, Variant
from recurrent_laplace.report.panels import (
    METRICS,
    Drawing,
    average_updates,
    count_words,
    curve_of,
    finish_axes,
    fit_y,
    record_runs,
    show_empty,
    unit_rows,
)
from recurrent_laplace.report.selection import main_runs
from recurrent_laplace.report.style import STYLE

GROUPS = {
    "method": "method",
    "covariance": "covariance",
    "beta": "weight of the KL, beta",
    "samples": "samples in the loss",
    "window": "window of Jacobians",
    "features": "size of the belief",
}
"""Labels of the columns that ablations differ in."""

METRIC = "squared_error"


def figure_05(frames: Frames) -> Drawing:
    """Draw the squared error in training, a panel per option."""
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
                axes.legend(loc="best", fontsize=6.5, framealpha=0.85, edgecolor="none")
    return figure


def comparable(runs: pl.DataFrame, column: str) -> pl.DataFrame:
    """Runs with a counterpart that differs in this column and in no other option."""
    others = [other for other in GROUPS if other != column]
    if column == "method":
        # The window has a different meaning for each method, so it cannot be held fixed.
        others.remove("window")
    values = runs.group_by(others).agg(pl.col(column).n_unique().alias("values"))
    return runs.join(values.filter(pl.col("values") > 1), on=others, how="semi", nulls_equal=True)


def _draw(axes: Axes, frames: Frames, column: str) -> None:
    bayesian = select(frames.runs, task="regression", origin="scratch").filter(pl.col("method") != "rnn")
    runs = comparable(bayesian.drop_nulls(column), column)  # Registered methods may lack the option.
    if runs.is_empty():
        show_empty(axes, "no runs differ in this option alone")
        return
    rnn = main_runs(frames, "regression", "scratch", RNN)
    if not rnn.is_empty():
        _line(axes, frames, rnn, "RNN", COLOURS["rnn"])
    values = _ordered(runs[column].unique().to_list())
    shades = matplotlib.colormaps["viridis"](np.linspace(0.05, 0.85, len(values)))
    for value, shade in zip(values, shades, strict=True):
        chosen = select(runs, **{column: value})
        if column == "method":
            method = Variant(value, None)
            _line(axes, frames, chosen, method.label, method.colour)
        else:
            _line(axes, frames, chosen, value if isinstance(value, str) else f"{value:g}", shade)


def _line(axes: Axes, frames: Frames, runs: pl.DataFrame, label: str, colour: Any) -> None:
    curve = curve_of(average_updates(unit_rows(frames, runs, METRIC, "update", by_run=True)))
    if curve is None:
        axes.plot([], [], " ", label=f"missing: {label}")
        return
    label = f"{label} ({count_words({curve.units}, 'agent')})"
    axes.plot(curve.x, curve.mean, color=colour, linewidth=1.4, label=label)
    if curve.units > 1:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    record_runs(axes, runs)


def _ordered(values: list[Any]) -> list[Any]:
    """Methods in their usual order, numbers by size, then strings."""
    if not set(values).isdisjoint(COLOURS):
        return [*(method for method in COLOURS if method in values), *sorted(set(values) - set(COLOURS))]
    return sorted(values, key=lambda value: (0, float(value), "") if _is_number(value) else (1, 0.0, value))


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) or value.isdigit()
