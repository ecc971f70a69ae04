"""Tables and figure of faithfulness: the measures of each posterior, and the criteria that they meet."""

import itertools
import math
from collections.abc import Sequence

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.box import SIMPLE_HEAD
from rich.table import Table

from recurrent_laplace.evaluation.faithfulness.rule import CRITERIA, Criterion, Verdict, judge, rows_of
from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.report.panels import Drawing, count_words, finish_axes
from recurrent_laplace.report.style import STYLE

TABLES = {
    "Information in the mean: R² of the decoded exact belief": {
        "linear_r2": "linear",
        "linear_r2_beyond_t": "beyond t",
        "mlp_r2": "MLP",
        "mlp_r2_beyond_t": "beyond t",
    },
    "KL from the exact belief to the decoded one, nats; simulation, fraction": {
        "linear_kl": "linear",
        "mlp_kl": "MLP",
        "uninformed_kl": "no agent",
        "exact_from_agent": "to exact",
        "agent_from_exact": "from exact",
    },
    "Calibration of the spread": {
        "rank_agreement": "rank",
        "coverage_50": "covers 50%",
        "coverage_90": "covers 90%",
        "error_over_spread": "err/spread",
    },
    "Consistency": {
        "drift": "drift R²",
        "drift_in_errors": "drift z",
        "kl_late_over_early": "KL late/early",
    },
}
"""Printed tables by title: measures and their column headings."""

EXACT = "#1b9e4b"


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Table of the criteria that each posterior meets."""
    table = _empty_table("Criteria met (?: undecided by these seeds; over: the untrained network)")
    for criterion in CRITERIA:
        table.add_column(criterion.short, justify="right", no_wrap=True)
    by_method = itertools.groupby(verdicts, key=lambda verdict: (verdict.method, verdict.seeds))
    for (method, seeds), group in by_method:
        table.add_row(f"{method}, {count_words([seeds], 'seed')}", style="bold")
        for verdict in group:
            words = {"holds": "yes", "fails": "no", "open": "?"}
            table.add_row(f"  {verdict.posterior}", *(words[check.state] for check in verdict.checks))
    return table


def _half(interval: Interval) -> str:
    return "" if np.isnan(interval.low) else f"±{interval.mean - interval.low:.2f}"


def _empty_table(title: str) -> Table:
    return Table(
        "",
        title=title,
        title_justify="left",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def tables(frame: pl.DataFrame) -> list[Table]:
    """Tables of the measures by topic, and a last one of the criteria met.

    Cells are means over seeds with the half-width of the 99% interval. Posteriors with equal cells share a
    row, which names the first and counts the others.
    """
    return [*(_table(frame, title, names) for title, names in TABLES.items()), verdict_table(judge(frame))]


def _table(frame: pl.DataFrame, title: str, names: dict[str, str]) -> Table:
    table = _empty_table(title)
    for name in names.values():
        table.add_column(name, justify="right", no_wrap=True)
    for (method,), agents in frame.group_by("method", maintain_order=True):
        table.add_row(str(method), style="bold")
        for (network,), part in agents.group_by("network", maintain_order=True):
            shared: dict[tuple[str, ...], list[str]] = {}
            for (posterior,), rows in part.group_by("posterior", maintain_order=True):
                shared.setdefault(tuple(_cell(rows, name) for name in names), []).append(str(posterior))
            if network == "untrained":
                table.add_row(" untrained", style="italic")
            for cells, posteriors in shared.items():
                others = f" +{len(posteriors) - 1}" if len(posteriors) > 1 else ""
                if cells != ("-",) * len(names):
                    table.add_row(f"  {posteriors[0]}{others}", *cells)
    return table


def _cell(rows: pl.DataFrame, name: str) -> str:
    interval = mean_interval(rows[name].drop_nulls().to_numpy())
    return "-" if np.isnan(interval.mean) else f"{interval.mean:.2f}{_half(interval)}"


def draw_faithfulness(frame: pl.DataFrame) -> Drawing:
    """Draw a panel per criterion: posteriors of trained and untrained networks, exact belief, and target."""
    rows = list(
        frame.filter(pl.col("network") == "trained")
        .select("method", "posterior")
        .unique(maintain_order=True)
        .iter_rows()
    )
    shown = [criterion for criterion in CRITERIA if criterion.less != "untrained"]
    columns = 4
    lines = -(-len(shown) // columns)
    with matplotlib.rc_context(STYLE):
        figure = Drawing(figsize=(10.5, 0.8 + lines * (0.9 + 0.2 * len(rows))), layout="constrained")
        grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
        for axes, criterion in zip(grid.flat, shown, strict=True):
            _draw(axes, frame, criterion, rows)
            axes.tick_params(axis="y", labelsize=7)
        labels = [
            method if posterior == "its own" else f"{method} + {posterior}" for method, posterior in rows
        ]
        grid[0, 0].set_yticks(range(len(rows)), labels)
        grid[0, 0].set_ylim(len(rows) - 0.4, -0.6)
        handles = [
            Line2D([], [], marker="o", color="black", linewidth=1, label="trained, 99% interval"),
            Line2D([], [], marker="o", color="0.55", markerfacecolor="white", linewidth=1, label="untrained"),
            Line2D([], [], color=EXACT, linewidth=1.2, label="exact belief"),
            Patch(color=EXACT, alpha=0.12, linewidth=0, label="target"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw(axes: Axes, frame: pl.DataFrame, criterion: Criterion, rows: list[tuple[str, str]]) -> None:
    finish_axes(axes, "", criterion.words.removesuffix(" less the exact belief's"))
    measure = criterion.measure
    exact = mean_interval(frame.filter(pl.col("network") == "exact")[measure].drop_nulls().to_numpy()).mean
    middle = exact if criterion.less == "exact" else 0.0
    for network, colour, face in (("untrained", "0.55", "white"), ("trained", "black", "black")):
        for place, (method, posterior) in enumerate(rows):
            interval = mean_interval(rows_of(frame, network, method, posterior)[measure].to_numpy())
            if not np.isnan(interval.low):
                axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=1)
            axes.plot([interval.mean], [place], "o", color=colour, markerfacecolor=face, markersize=4)
    target = (criterion.low + middle, criterion.high + middle)
    is_ratio = measure == "kl_late_over_early"
    if is_ratio:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    # An invisible line keeps the target within the panel, however far away the values are.
    bounds = [bound for bound in target if math.isfinite(bound)]
    axes.plot(bounds, [0.0] * len(bounds), alpha=0)
    low, high = axes.get_xlim()
    axes.axvspan(max(target[0], low), min(target[1], high), color=EXACT, alpha=0.12, linewidth=0)
    if exact > 0 or not (is_ratio or np.isnan(exact)):
        axes.axvline(exact, color=EXACT, linewidth=1.2, zorder=0)
    axes.set_xlim(low, high)
