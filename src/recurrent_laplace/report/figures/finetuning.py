"""Zooms on fine-tuning: what happens when an RNN becomes Bayesian in the middle of its training."""

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import BAYESIAN, RNN, VARIANTS, Variant, join_labels
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
    remember,
    say_empty,
    say_missing,
    unit_rows,
)
from recurrent_laplace.report.selection import bandit_of, main_runs
from recurrent_laplace.report.tasks import STYLE

SHARES = {0.5: "after a half", 0.75: "after three quarters"}

BEFORE, AFTER = 0.1, 0.25
"""How much is shown on both sides of the snapshot, as shares of the parent's updates."""

LAST = 0.1
"""The share of the updates whose mean is the level that training from scratch ends at."""


def figure_06(frames: Frames) -> Drawing:
    """Regression: squared error."""
    return _zoom(frames, "squared_error", "regression")


def figure_09(frames: Frames) -> Drawing:
    """Bandit: return."""
    return _zoom(frames, "return", bandit_of(frames))


def figure_11(frames: Frames) -> Drawing:
    """Gridworld: return."""
    return _zoom(frames, "return", "gridworld")


def _zoom(frames: Frames, metric: str, task: str) -> Drawing:
    level = Line2D([], [], color="0.3", marker="<", linestyle="", label="where training from scratch ends")
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(8.2, 3.8), layout="constrained")
        panels = list(figure.subplots(1, 2))
        for axes, share in zip(panels, SHARES, strict=True):
            finish_axes(axes, METRICS[metric].label, "updates, the RNN's included")
            _draw(axes, frames, metric, task, share)
        fit_y(panels, METRICS[metric].scale)
        add_legend(figure, VARIANTS, mark_handle("snapshot"), level)
    return figure


def _draw(axes: Axes, frames: Frames, metric: str, task: str, share: float) -> None:
    axes.set_title(f"fine-tuned {SHARES[share]}")
    chosen = {v: main_runs(frames, task, "finetuned", v, snapshot=share) for v in BAYESIAN}
    if all(runs.is_empty() for runs in chosen.values()):
        say_empty(axes)
        return
    total = max(_parent_updates(frames, runs) for runs in chosen.values() if not runs.is_empty())
    begin = int(share * total)
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
        remember(axes, runs)
        if variant != RNN:
            _draw_level(axes, frames, metric, task, variant)
    mark(axes, begin)
    axes.set_xlim(low, high)
    axes.set_title(f"fine-tuned {SHARES[share]}, {count_words(units, 'seed')}")
    say_missing(axes, join_labels(missing), width=66)


def _draw_level(axes: Axes, frames: Frames, metric: str, task: str, variant: Variant) -> None:
    """A mark at the right edge, where training from scratch ends."""
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
    remember(axes, runs)


def _parent_updates(frames: Frames, runs: pl.DataFrame) -> int:
    """How many updates the RNN makes in all: those before the snapshot, and as many as are made after it."""
    parents = frames.runs.filter(pl.col("run").is_in(runs["parent"].implode()))
    if len(parents):
        return int(parents["updates"].max())  # pyright: ignore[reportArgumentType]
    share, updates = runs["snapshot"][0], runs["updates"][0]
    return round(updates / max(1 - (share or 0), 1e-6))
