"""Panels of curves: a metric of a task, a line per method, with intervals over seeds."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import matplotlib
import numpy as np
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import (
    COLOURS,
    NAMES,
    ORIGINS,
    STYLES,
    VARIANTS,
    Variant,
    join_labels,
)
from recurrent_laplace.report.oracles import exact_tests, exact_training
from recurrent_laplace.report.selection import cutoff_of, main_runs
from recurrent_laplace.report.style import STYLE
from recurrent_laplace.tasks.held_out import LENGTHS

POINTS = 120
"""Maximum number of points of a training curve; more updates are averaged in groups."""

COMPRESSED_ABOVE = 10.0
"""Largest value on a linear axis; larger values get a symlog axis."""

BAND_ROOM = 0.5
"""How far bands may extend an axis, as a fraction of the range of the lines; wider bands are clipped."""

EXACT_STYLE: dict[str, Any] = {"color": "#8e44ad", "linewidth": 1.0, "linestyle": (0, (5, 2)), "zorder": 4}

MARK = "_mark"
MARK_STYLE: dict[str, Any] = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (3, 3)), "zorder": 0}

T_TICKS = (0, 1, 5, 10, 20, 50, 100, 200)

Scale = Literal["linear", "log", "compressed"]


class Metric(NamedTuple):
    """Label and scale of the axis of a metric."""

    label: str
    scale: Scale


METRICS = {
    "cross_entropy": Metric("cross-entropy, nats", "compressed"),
    "squared_error": Metric("squared error", "log"),
    "entropy": Metric("entropy, nats", "linear"),
    "kl": Metric("consecutive KL, nats", "log"),
    "return": Metric("return of a task", "linear"),
    "cumulative_regret": Metric("cumulative regret", "linear"),
}

X_LABELS = {"t": "steps seen, t", "update": "updates"}


class Drawing(Figure):
    """A figure that records the runs behind it, and the lines without runs."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.runs: set[str] = set()
        self._missing: list[tuple[Axes, str]] = []

    def record_missing(self, axes: Axes, words: str) -> None:
        """Record lines of a panel that have no runs."""
        self._missing.append((axes, words))

    @property
    def missing(self) -> list[str]:
        """Lines without runs, by panel; panels that lack the same ones are named together."""
        panels: dict[str, list[str]] = {}
        for axes, words in self._missing:
            panels.setdefault(words, []).append(axes.get_title())
        return [f"{'; '.join(dict.fromkeys(titles))}: {words}" for words, titles in panels.items()]


class Curve(NamedTuple):
    """Mean over units (usually seeds) at each x, with its 99% interval."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    units: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """Content of a panel.

    - `metric` of `task`, against `x`: steps of test tasks, or training updates;
    - `origin`: from scratch, fine-tuned or post hoc;
    - `variants`: the expected lines;
    - `samples`: required number of samples in the loss, if any;
    - `choose`: selects the runs of a variant; with a function other than `main_runs`, every seed of every
      run is a separate unit, an agent;
    - `keep`: selects the rows of `unit, x, value` that are averaged; all by default.
    """

    metric: str
    task: str
    origin: str = "scratch"
    x: Literal["t", "update"] = "t"
    variants: tuple[Variant, ...] = VARIANTS
    samples: int | None = None
    choose: Callable[..., pl.DataFrame] = main_runs
    keep: Callable[[pl.DataFrame], pl.DataFrame] | None = None

    def curve(self, frames: Frames, variant: Variant) -> tuple[pl.DataFrame, Curve | None]:
        """Runs of a variant, and their curve; None if they have no values."""
        chosen = {} if self.samples is None else {"samples": self.samples}
        runs = self.choose(frames, self.task, self.origin, variant, **chosen)
        rows = unit_rows(frames, runs, self.metric, self.x, by_run=self.choose is not main_runs)
        if self.keep is not None:
            rows = self.keep(rows)
        return runs, curve_of(average_updates(rows) if self.x == "update" else rows)

    def draw(self, axes: Axes, frames: Frames) -> None:
        """Draw all lines, and name the missing ones."""
        missing, units, drawn = [], set(), []
        for variant in self.variants:
            runs, curve = self.curve(frames, variant)
            if curve is None:
                missing.append(variant)
                continue
            drawn.append(runs)
            units.add(curve.units)
            draw_curve(axes, curve, variant)
        title = ORIGINS[self.origin]
        if not drawn:
            show_empty(axes)
        else:
            runs = pl.concat(drawn)
            record_runs(axes, runs)
            draw_exact(axes, frames, runs, self.metric, self.x)
            if self.x == "t" and (cutoff := cutoff_of(runs)) is not None:
                mark(axes, cutoff)
            title += f", {count_words(units, 'seed' if self.choose is main_runs else 'agent')}"
            show_missing(axes, missing)
        axes.set_title(title)


def unit_rows(
    frames: Frames, runs: pl.DataFrame, metric: str, x: Literal["t", "update"], *, by_run: bool = False
) -> pl.DataFrame:
    """Values of a metric as rows of `unit, x, value`.

    A unit is a seed, or with `by_run` a seed of a run. Values are averaged over test tasks, and over runs
    with the same seed.
    """
    table = frames.evaluation if x == "t" else frames.metrics
    rows = table.filter(pl.col("run").is_in(runs["run"].implode()) & (pl.col("metric") == metric))
    rows = rows.drop_nulls("value").group_by("run", "seed", x).agg(pl.col("value").mean())
    unit = pl.concat_str("run", "seed", separator=" ") if by_run else pl.col("seed").cast(pl.String)
    rows = rows.with_columns(unit.alias("unit"), pl.col(x).cast(pl.Float64).alias("x"))
    return rows.group_by("unit", "x").agg(pl.col("value").mean()).sort("unit", "x")


def average_updates(rows: pl.DataFrame, points: int = POINTS) -> pl.DataFrame:
    """Average consecutive updates in groups, so that at most `points` remain, each at its group's mean x."""
    updates = rows["x"].n_unique()
    size = -(-updates // points)
    if size <= 1:
        return rows
    group = (pl.col("x") - pl.col("x").min()) // size
    means = rows.with_columns(group.alias("group")).group_by("unit", "group").agg(pl.col("value").mean())
    middles = rows.with_columns(group.alias("group")).group_by("group").agg(pl.col("x").mean())
    return means.join(middles, on="group").drop("group")


def curve_of(rows: pl.DataFrame) -> Curve | None:
    """Mean over units at each x, with its interval; None without rows."""
    if rows.is_empty():
        return None
    points = [
        (float(str(x)), mean_interval(group["value"].to_numpy()))
        for (x,), group in rows.group_by("x", maintain_order=True)
    ]
    points.sort(key=lambda point: point[0])
    x, intervals = zip(*points, strict=True)
    mean, low, high, _ = (np.array(column) for column in zip(*intervals, strict=True))
    return Curve(np.array(x), mean, low, high, rows["unit"].n_unique())


def draw_curve(axes: Axes, curve: Curve, variant: Variant) -> Line2D:
    """Draw a line, with a band if there is more than one unit."""
    if curve.units > 1:
        axes.fill_between(
            curve.x, curve.low, curve.high, color=variant.colour, alpha=0.13, linewidth=0, zorder=1
        )
    (line,) = axes.plot(
        curve.x,
        curve.mean,
        color=variant.colour,
        linestyle=variant.style,
        linewidth=1.5,
        marker="o" if len(curve.x) == 1 else "",
        label=variant.label,
        zorder=3 if variant.covariance else 2.5,
    )
    return line


def draw_exact(
    axes: Axes, frames: Frames, runs: pl.DataFrame, metric: str, x: Literal["t", "update"]
) -> None:
    """Draw the performance of exact Bayes on the tasks of these runs as a thin line, if it is known."""
    if x == "update":
        level = exact_training(frames, runs, metric)
        if level is not None:
            axes.axhline(level, label=EXACT, **EXACT_STYLE)
        return
    rows = exact_tests(frames, runs, metric)
    if len(rows):
        axes.plot(rows["t"], rows["value"], label=EXACT, **EXACT_STYLE)


def mark(axes: Axes, x: float) -> None:
    """Draw a dashed vertical line at a change point."""
    axes.axvline(x, label=MARK, **MARK_STYLE)


def mark_handle(label: str) -> Line2D:
    """Legend entry of a mark."""
    return Line2D([], [], label=label, **MARK_STYLE)


def show_empty(axes: Axes, text: str = "no runs") -> None:
    """Label a panel without content."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color="0.4")
    # Hidden rather than removed, since panels may share ticks.
    axes.tick_params(which="both", left=False, bottom=False, labelleft=False, labelbottom=False)


def show_missing(axes: Axes, missing: Sequence[Variant]) -> None:
    """Count the missing lines below a panel, and record them in the figure: the page names them."""
    if not missing:
        return
    figure = axes.get_figure(root=True)
    if isinstance(figure, Drawing):
        figure.record_missing(axes, join_labels(missing))
    axes.annotate(
        f"{len(missing)} line{'' if len(missing) == 1 else 's'} missing",
        xy=(0.5, 0),
        xycoords=axes.xaxis.label,
        xytext=(0, -2),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=6.5,
        color="0.4",
    )


def count_words(units: Iterable[int], noun: str) -> str:
    """A count or range of counts with its noun: `5 seeds`, `2 to 5 seeds`."""
    least, most = min(units := set(units)), max(units)
    span = f"{least}" if least == most else f"{least} to {most}"
    return f"{span} {noun}{'' if most == 1 else 's'}"


def record_runs(axes: Axes, runs: pl.DataFrame) -> None:
    """Record in the figure that these runs are behind it."""
    figure = axes.get_figure(root=True)
    if isinstance(figure, Drawing):
        figure.runs |= set(runs["run"])


def draw_grid(
    frames: Frames,
    panels: Sequence[Sequence[Panel]],
    *,
    x: Literal["root", "linear"] = "root",
    share: Literal["row", "column"] = "row",
    title: Callable[[Panel], str] | None = None,
) -> Drawing:
    """Draw a figure of panels, in rows.

    The panels of a row (or of a column, by `share`) have the same y range. `x` is the scale of steps: square
    root, since most lengths are short, or linear. `title` gives a prefix for a panel's own title.
    """
    rows, columns = len(panels), len(panels[0])
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(1 + 2.9 * columns, 1.1 + 2.3 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, panel in zip(grid.flat, itertools.chain(*panels), strict=True):
            finish_axes(axes, METRICS[panel.metric].label, X_LABELS[panel.x])
            panel.draw(axes, frames)
            if title is not None:
                axes.set_title(f"{title(panel)}{axes.get_title()}")
            if axes.lines and panel.x == "t":
                spread_steps(axes, x)
        groups = grid if share == "row" else grid.T
        for group, panel in zip(groups, panels if share == "row" else panels[0], strict=True):
            first = panel if isinstance(panel, Panel) else panel[0]
            fit_y(list(group), METRICS[first.metric].scale)
        variants = [variant for panel in itertools.chain(*panels) for variant in panel.variants]
        tests = any(panel.x == "t" for panel in itertools.chain(*panels))
        others = [mark_handle("training length T")] if tests else []
        if any(_is_exact(line) for axes in grid.flat for line in axes.lines):
            others.append(Line2D([], [], label=EXACT, **EXACT_STYLE))
        add_legend(figure, variants, *others)
    return figure


def finish_axes(axes: Axes, ylabel: str, xlabel: str) -> None:
    """Set the labels, and remove the upper and right spines."""
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)


def spread_steps(axes: Axes, scale: Literal["root", "linear"]) -> None:
    """Set the x axis of test tasks: square root or linear scale."""
    if scale == "root":
        axes.set_xscale("function", functions=(lambda t: np.sqrt(np.maximum(t, 0)), np.square))
        axes.set_xticks(T_TICKS, [str(t) for t in T_TICKS])
        axes.minorticks_off()
    axes.set_xlim(0, max(LENGTHS))


def fit_y(group: Sequence[Axes], scale: Scale) -> None:
    """Set one y range for a group of panels, which contains all lines and clips bands that are much wider."""
    drawn = [axes for axes in group if any(map(_is_curve, axes.lines))]
    lines = [line.get_ydata() for axes in drawn for line in axes.lines if _is_curve(line)]
    exact = [line.get_ydata() for axes in drawn for line in axes.lines if _is_exact(line)]
    bands = [
        np.asarray(path.vertices)[:, 1]
        for axes in drawn
        for band in axes.collections
        for path in band.get_paths()
    ]
    # Without noise a function can be known exactly, and its cross-entropy is unbounded below.
    lines, bands = (lines, [*bands, *exact]) if scale == "compressed" else ([*lines, *exact], bands)
    lines, bands = _finite(lines), _finite(bands)
    if not len(lines):
        return
    if scale == "compressed" and np.abs(lines).max() > COMPRESSED_ABOVE:
        settings: dict[str, Any] = {"value": "symlog", "linthresh": 2.0}
    elif scale == "log" and (lines > 0).any():
        settings = {"value": "log"}
        lines, bands = lines[lines > 0], np.maximum(bands, lines[lines > 0].min() / 10)
    else:
        settings = {"value": "linear"}
    for axes in drawn:
        axes.set_yscale(**settings)
        forward, inverse = axes.yaxis.get_transform(), axes.yaxis.get_transform().inverted()
        low, high = np.sort(forward.transform(np.array([lines.min(), lines.max()])))
        extent = max(high - low, 1e-9)
        if len(bands):
            ends = forward.transform(np.array([bands.min(), bands.max()]))
            low = max(min(low, ends[0]), low - BAND_ROOM * extent)
            high = min(max(high, ends[1]), high + BAND_ROOM * extent)
        margin = 0.05 * max(high - low, 1e-9)
        axes.set_ylim(*inverse.transform(np.array([low - margin, high + margin])))


def add_legend(figure: Figure, variants: Iterable[Variant], *others: Artist) -> None:
    """Add one legend of the colours and line styles in all panels, followed by `others` with their labels."""
    drawn = {line.get_label() for axes in figure.axes for line in axes.lines}
    variants = [variant for variant in variants if variant.label in drawn]
    methods = [method for method in COLOURS if any(variant.method == method for variant in variants)]
    handles: list[Any] = [Line2D([], [], color=COLOURS[m], linewidth=2, label=NAMES[m]) for m in methods]
    handles += [
        Line2D([], [], color="0.3", linestyle=STYLES[kind], linewidth=1.2, label=f"{kind} covariance")
        for kind in ("diagonal", "dense")
        if any(variant.covariance == kind for variant in variants)
    ]
    if any(axes.collections for axes in figure.axes):
        handles.append(Patch(color="0.3", alpha=0.15, linewidth=0, label="99% interval"))
    handles += others
    if not handles:
        return
    fitting = max(2, int(figure.get_figwidth() / 1.75))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=min(len(handles), fitting),
        frameon=False,
    )


def _is_curve(line: Line2D) -> bool:
    """Whether a line shows values of runs, unlike marks and exact Bayes."""
    return line.get_label() not in (MARK, EXACT)


def _is_exact(line: Line2D) -> bool:
    return line.get_label() == EXACT


def _finite(arrays: list[Any]) -> np.ndarray:
    values = np.concatenate([np.asarray(array, dtype=float).ravel() for array in arrays] or [np.zeros(0)])
    return values[np.isfinite(values)]
