"""Figure 16: the final test result of every seed, as released and as written."""

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import Interval, iqm_interval
from recurrent_laplace.report.claims.columns import RELEASED, WRITTEN, Column
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import VARIANTS, Variant
from recurrent_laplace.report.oracles import exact_tests
from recurrent_laplace.report.panels import (
    EXACT_STYLE,
    METRICS,
    Drawing,
    finish_axes,
    record_runs,
    show_empty,
    show_missing,
)
from recurrent_laplace.report.selection import bandit_of, main_runs
from recurrent_laplace.report.style import STYLE

OFFSETS = ((RELEASED, -0.18, "none"), (WRITTEN, 0.18, "full"))
"""Vertical offsets and fill of the dots of each column."""


def figure_16(frames: Frames) -> Drawing:
    """Draw the test result at the cut-off of every seed from scratch."""
    panels = {"regression": "cross_entropy", bandit_of(frames): "cumulative_regret", "gridworld": "return"}
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(9.7, 4.2), layout="constrained")
        for axes, (task, metric) in zip(
            figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True
        ):
            finish_axes(axes, "", f"{METRICS[metric].label}, at T")
            axes.set_title(task.replace("_", " "))
            _draw(axes, frames, task, metric)
        axes = figure.axes[0]
        axes.set_yticks(range(len(VARIANTS)), [variant.label for variant in VARIANTS], fontsize=7)
        axes.set_ylim(len(VARIANTS) - 0.4, -0.6)
    return figure


def share_of_exact(frames: Frames, runs: pl.DataFrame, rows: pl.DataFrame) -> Interval | None:
    """Interquartile mean over test tasks of the return as a share of that of exact Bayes; None if unknown."""
    exact = frames.oracle.filter(
        (pl.col("run") == EXACT)
        & (pl.col("metric") == "return")
        & (pl.col("configuration") == runs["task_id"][0])
        & (pl.col("t") == rows["t"].max())
    ).sort("task")["value"]
    lists = [np.array(values, float) for values in rows["by_task"] if values is not None]
    count = min([len(exact), *map(len, lists)]) if lists else 0
    if count < 2:
        return None
    best = exact.to_numpy()[:count]
    own = np.mean([values[:count] for values in lists], axis=0)
    return iqm_interval(own[best > 0] / best[best > 0])


def _draw(axes: Axes, frames: Frames, task: str, metric: str) -> None:
    missing, drawn = [], []
    for place, variant in enumerate(VARIANTS):
        parts = [_plot(axes, frames, task, metric, variant, place, *offset) for offset in OFFSETS]
        known = [part for part in parts if part is not None]
        drawn += known
        if not known:
            missing.append(variant)
    if not drawn:
        show_empty(axes)
        return
    runs = pl.concat(drawn)
    record_runs(axes, runs)
    exact = exact_tests(frames, runs, metric).filter(pl.col("t") <= runs["steps"].min())
    # On regression, exact Bayes is far beyond the methods.
    if metric != "cross_entropy" and not exact.is_empty():
        axes.axvline(exact["value"][-1], **EXACT_STYLE)
    show_missing(axes, missing)


def _plot(
    axes: Axes,
    frames: Frames,
    task: str,
    metric: str,
    variant: Variant,
    place: int,
    column: Column,
    offset: float,
    fill: str,
) -> pl.DataFrame | None:
    """Draw the seeds of a variant in a column; returns the runs, None if there are none."""
    chosen = column.restrict(frames)
    runs = main_runs(chosen, task, "scratch", variant)
    rows = chosen.tests(metric, run=tuple(runs["run"])).filter(pl.col("t") <= pl.col("steps"))
    rows = rows.filter(pl.col("t") == pl.col("t").max().over("run", "seed"))
    if rows.is_empty():
        return None
    values, height = rows["value"].to_numpy(), place + offset
    face = variant.colour if fill == "full" else "none"
    axes.plot(values, [height] * len(values), "o", color=variant.colour, markerfacecolor=face, markersize=3.5)
    share = share_of_exact(frames, runs, rows) if metric == "return" else None
    if share is not None:
        axes.annotate(
            f"{share.mean:.0%} ({share.low:.0%} to {share.high:.0%})",
            (1.01, height),
            xycoords=("axes fraction", "data"),
            fontsize=5.5,
            ha="left",
            va="center",
            color="0.35",
        )
    return runs
