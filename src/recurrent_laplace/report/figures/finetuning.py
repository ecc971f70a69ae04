"""Figures of training around the snapshot at which fine-tuning starts."""

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import BAYESIAN, RNN, VARIANTS, Variant
from recurrent_laplace.report.panels import (
    METRICS,
    Drawing,
    add_legend,
    average_updates,
    count_words,
    curve_of,
    draw_curve,
    finish_axes,
    fit_y,
    mark,
    mark_handle,
    record_runs,
    show_empty,
    show_missing,
    unit_rows,
)
from recurrent_laplace.report.selection import bandit_of, main_runs
from recurrent_laplace.report.style import STYLE

SNAPSHOTS = {0.5: "after a half", 0.75: "after three quarters"}

BEFORE, AFTER = 0.1, 0.25
"""Range around the snapshot, as fractions of the parent's updates."""

LAST = 0.1
"""Fraction of the updates whose mean is the final level of training from scratch."""


def figure_06(frames: Frames) -> Drawing:
    """Draw the squared error on regression."""
    return _zoom(frames, "squared_error", "regression")


def figure_09(frames: Frames) -> Drawing:
    """Draw the return on the bandit."""
    return _zoom(frames, "return", bandit_of(frames))


def figure_11(frames: Frames) -> Drawing:
    """Draw the return on the gridworld."""
    return _zoom(frames, "return", "gridworld")


def _zoom(frames: Frames, metric: str, task: str) -> Drawing:
    level = Line2D([], [], color="0.3", marker="<", linestyle="", label="end of training from scratch")
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(8.2, 3.8), layout="constrained")
        panels = list(figure.subplots(1, 2))
        for axes, snapshot in zip(panels, SNAPSHOTS, strict=True):
            finish_axes(axes, METRICS[metric].label, "updates, including the RNN's")
            _draw(axes, frames, metric, task, snapshot)
        fit_y(panels, METRICS[metric].scale)
        add_legend(figure, VARIANTS, mark_handle("snapshot"), level)
    return figure


def _draw(axes: Axes, frames: Frames, metric: str, task: str, snapshot: float) -> None:
    axes.set_title(f"fine-tuned {SNAPSHOTS[snapshot]}")
    chosen = {v: main_runs(frames, task, "finetuned", v, snapshot=snapshot) for v in BAYESIAN}
    if all(runs.is_empty() for runs in chosen.values()):
        show_empty(axes)
        return
    total = max(_parent_updates(frames, runs) for runs in chosen.values() if not runs.is_empty())
    begin = int(snapshot * total)
    low, high = begin - BEFORE * total, begin + AFTER * total
    chosen = {RNN: main_runs(frames, task, "scratch", RNN), **chosen}
    missing, units = [], set()
    for variant, runs in chosen.items():
        rows = unit_rows(frames, runs, metric, "update")
        rows = rows.with_columns(pl.col("x") + (0 if variant == RNN else begin))
        curve = curve_of(average_updates(rows.filter(pl.col("x").is_between(low, high))))
        if curve is None:
            missing.append(variant)
            continue
        units.add(curve.units)
        draw_curve(axes, curve, variant)
        record_runs(axes, runs)
        if variant != RNN:
            _draw_level(axes, frames, metric, task, variant)
    mark(axes, begin)
    axes.set_xlim(low, high)
    axes.set_title(f"fine-tuned {SNAPSHOTS[snapshot]}, {count_words(units, 'seed')}")
    show_missing(axes, missing)


def _draw_level(axes: Axes, frames: Frames, metric: str, task: str, variant: Variant) -> None:
    """Mark the final level of training from scratch at the right edge."""
    runs = main_runs(frames, task, "scratch", variant)
    rows = unit_rows(frames, runs, metric, "update")
    if rows.is_empty():
        return
    last = rows.filter(pl.col("x") > pl.col("x").max() * (1 - LAST))["value"].to_numpy()
    axes.plot(
        [1.02],
        [float(last.mean())],
        transform=axes.get_yaxis_transform(),
        color=variant.colour,
        marker="<",
        markersize=5,
        fillstyle="none" if variant.covariance == "diagonal" else "full",
        linestyle="",
        clip_on=False,
        label=f"_{variant.label} from scratch",
    )
    record_runs(axes, runs)


def _parent_updates(frames: Frames, runs: pl.DataFrame) -> int:
    """Total updates of the parent RNN, inferred from the fine-tuned run if the parent is missing."""
    parents = frames.runs.filter(pl.col("run").is_in(runs["parent"].implode()))
    if len(parents):
        return int(parents["updates"].max())  # pyright: ignore[reportArgumentType]
    snapshot, updates = runs["snapshot"][0], runs["updates"][0]
    return round(updates / max(1 - (snapshot or 0), 1e-6))
