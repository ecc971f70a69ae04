"""Figure 15: time per update, relative to the RNN's."""

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import COLOURS, VARIANTS, Variant, join_labels
from recurrent_laplace.report.panels import Drawing, finish_axes, record_runs, show_empty
from recurrent_laplace.report.selection import bandit_of
from recurrent_laplace.report.style import STYLE

Key = tuple[str, str | None, str | None, int]

KEYS = ("method", "covariance", "window", "samples")
"""Columns that identify a row of the figure."""


def figure_15(frames: Frames) -> Drawing:
    """Draw the time per update of every variant, relative to the RNN's on the same task."""
    tables = {task: times(frames, task) for task in ("regression", bandit_of(frames), "gridworld")}
    rows = ordered_rows(pl.concat(tables.values()))
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(9.7, 1.5 + 0.2 * len(rows)), layout="constrained")
        panels = figure.subplots(1, len(tables), sharey=True)
        for axes, (task, table) in zip(panels, tables.items(), strict=True):
            finish_axes(axes, "", "time per update, RNN = 1")
            axes.set_title(task.replace("_", " "))
            _draw(axes, table, rows)
        panels[0].set_yticks(range(len(rows)), [row_label(row) for row in rows], fontsize=7)
        panels[0].set_ylim(len(rows) - 0.4, -0.6)
        absent = [variant for variant in VARIANTS if variant not in {Variant(*row[:2]) for row in rows}]
        if absent:
            for axes in panels:
                figure.record_missing(axes, join_labels(absent))
    return figure


def times(frames: Frames, task: str) -> pl.DataFrame:
    """Runs from scratch with `seconds` per update and seed, and their `ratio` to the RNN's."""
    runs = select(frames.runs, task=task, origin="scratch").drop_nulls("update_seconds")
    runs = runs.with_columns(
        (pl.col("update_seconds") / pl.col("seeds")).alias("seconds"),
        # Options without effect on a method must not split its row.
        pl.when(pl.col("method").is_in(["rnn", "vrnn"]))
        .then(pl.lit("1"))
        .otherwise("window")
        .alias("window"),
        pl.when(pl.col("method") == "rnn").then(1).otherwise("samples").cast(pl.Int64).alias("samples"),
    )
    rnn = select(runs, method="rnn")["seconds"].median()
    return runs.with_columns((pl.col("seconds") / pl.lit(rnn, pl.Float64)).alias("ratio"))


def ordered_rows(table: pl.DataFrame) -> list[Key]:
    """Variants of all tasks, in the order of the other figures."""
    order = {variant: place for place, variant in enumerate(VARIANTS)}
    return sorted(
        set(table.select(KEYS).iter_rows()),  # pyright: ignore[reportArgumentType]
        key=lambda row: (
            order.get(Variant(*row[:2]), len(order)),  # Methods that are not in the paper come last.
            Variant(*row[:2]).label,
            float("inf") if row[2] in ("all", None) else float(row[2]),
            row[3],
        ),
    )


def _draw(axes: Axes, table: pl.DataFrame, rows: list[Key]) -> None:
    known = table.drop_nulls("ratio")
    if known.is_empty():
        show_empty(axes, "no runs" if table.is_empty() else "no RNN to compare with")
        return
    record_runs(axes, known)
    for place, row in enumerate(rows):
        variant = Variant(*row[:2])
        own = known.filter(
            pl.all_horizontal(pl.col(key).eq_missing(value) for key, value in zip(KEYS, row, strict=True))
        )
        if own.is_empty():
            axes.annotate(
                "no runs",
                (1, place),
                fontsize=6.5,
                color="0.4",
                va="center",
                xytext=(6, 0),
                textcoords="offset points",
            )
            continue
        ratios, mean = own["ratio"].to_numpy(), float(own["ratio"].to_numpy().mean())
        axes.hlines(place, 1, mean, color=variant.colour, linestyle=variant.style, linewidth=1.2)
        axes.plot(
            ratios, [place] * len(ratios), "o", color=variant.colour, markersize=4, label=row_label(row)
        )
        seconds = float(own["seconds"].to_numpy().mean())
        axes.annotate(
            f"{mean:.2g}x, {_format(seconds)}",
            (max(1.0, *ratios), place),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
        )
    axes.axvline(1, color=COLOURS["rnn"], linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    low, high = np.log10([known["ratio"].to_numpy().min(), known["ratio"].to_numpy().max()])
    span = max(high - low, 0.3)
    # Space for the numbers next to the last dot.
    axes.set_xlim(10 ** (low - 0.08 * span), 10 ** (high + 0.55 * span))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def row_label(row: Key) -> str:
    """Description of a row: method, covariance, window and samples."""
    method, covariance, window, samples = row
    words = [Variant(method, covariance).label]
    if method not in ("rnn", "vrnn") and window is not None:
        words.append(f"window {window}")
    if samples != 1:
        words.append(f"{samples} samples" if samples else "mean of the belief")
    return ", ".join(words)


def _format(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
