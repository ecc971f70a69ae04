"""Which beliefs are faithful: a rule, the tables and the figure that show why, and plain words."""

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import matplotlib
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from rich.box import SIMPLE_HEAD
from rich.table import Table

from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.report.panels import Drawing, count_words, finish_axes
from recurrent_laplace.report.tasks import STYLE

TABLES = {
    "What the mean knows: R² of the exact belief, decoded": {
        "linear_r2": "linear",
        "linear_r2_beyond_t": "beyond t",
        "mlp_r2": "MLP",
        "mlp_r2_beyond_t": "beyond t",
    },
    "KL from the exact belief to the decoded one, nats; simulation, share": {
        "linear_kl": "linear",
        "mlp_kl": "MLP",
        "uninformed_kl": "no agent",
        "exact_from_agent": "to exact",
        "agent_from_exact": "from exact",
    },
    "What the spread claims": {
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
"""The printed tables: titles, measures, and what stands above them."""


EXACT = "#1b9e4b"


class Criterion(NamedTuple):
    """A measure must be in an interval; or its difference from that of another row of the same agent."""

    measure: str
    words: str
    short: str
    part: Literal["knowledge", "uncertainty", "consistency"]
    low: float = -math.inf
    high: float = math.inf
    less: Literal["exact", "untrained"] | None = None

    @property
    def needs(self) -> str:
        """In words."""
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if math.isinf(self.low) else f"{self.low:g} to {self.high:g}"


CRITERIA = (
    Criterion("mlp_r2_beyond_t", "decoded R² beyond t", "R²", "knowledge", low=0.8),
    Criterion(
        "mlp_r2", "decoded R² less the untrained network's", "over", "knowledge", low=0.0, less="untrained"
    ),
    Criterion("exact_from_agent", "simulation of the exact belief", "to", "knowledge", low=0.8),
    Criterion("agent_from_exact", "simulation of the agent", "from", "knowledge", low=0.8),
    Criterion("rank_agreement", "rank agreement of entropies", "rank", "uncertainty", low=0.5),
    Criterion(
        "coverage_50",
        "coverage at 50% less the exact belief's",
        "50%",
        "uncertainty",
        low=-0.1,
        high=0.1,
        less="exact",
    ),
    Criterion(
        "coverage_90",
        "coverage at 90% less the exact belief's",
        "90%",
        "uncertainty",
        low=-0.1,
        high=0.1,
        less="exact",
    ),
    Criterion("drift", "drift R²", "drift", "consistency", high=0.1),
    Criterion("kl_late_over_early", "consecutive KL, late over early", "KL", "consistency", high=0.5),
)
"""The rule, fixed before any run was measured: a belief is faithful if all of these hold.

Coverage is compared with what the exact belief reaches when its mean and variance are read as a Gaussian's,
which is the level itself where it is one.
"""


class Check(NamedTuple):
    """A criterion on one posterior."""

    criterion: Criterion
    interval: Interval
    state: Literal["holds", "fails", "open"]


class Verdict(NamedTuple):
    """On one posterior."""

    method: str
    posterior: str
    word: Literal["faithful", "not faithful", "not decided"]
    checks: list[Check]
    seeds: int

    @property
    def name(self) -> str:
        """The method, and the posterior if it was put on afterwards."""
        return self.method if self.posterior == "its own" else f"{self.method} + {self.posterior}"


def judge(frame: pl.DataFrame) -> list[Verdict]:
    """A verdict on each trained posterior.

    A criterion holds if all of the 99% interval over seeds meets it, fails if none of it does, and is
    open otherwise. With one seed there is no interval, and the number itself is taken.
    """
    verdicts = []
    trained = frame.filter(pl.col("network") == "trained")
    for (method, posterior), rows in trained.group_by("method", "posterior", maintain_order=True):
        others = {
            "exact": _rows(frame, "exact", method, "exact belief"),
            "untrained": _rows(frame, "untrained", method, posterior),
        }
        checks = [_check(one, rows.sort("agent"), others) for one in CRITERIA]
        states = {check.state for check in checks}
        word = "not faithful" if "fails" in states else "not decided" if "open" in states else "faithful"
        verdicts.append(Verdict(str(method), str(posterior), word, checks, len(rows)))
    return verdicts


def _rows(frame: pl.DataFrame, network: str, method: object, posterior: object) -> pl.DataFrame:
    return frame.filter(
        (pl.col("network") == network) & (pl.col("method") == method) & (pl.col("posterior") == posterior)
    ).sort("agent")


def _check(criterion: Criterion, rows: pl.DataFrame, others: dict[str, pl.DataFrame]) -> Check:
    values = rows[criterion.measure].to_numpy()
    if criterion.less is not None:
        values = values - others[criterion.less][criterion.measure].to_numpy()
    interval = mean_interval(values)
    low, high = (interval.mean,) * 2 if np.isnan(interval.low) else (interval.low, interval.high)
    if criterion.low <= low and high <= criterion.high:
        state = "holds"
    elif high < criterion.low or low > criterion.high or np.isnan(interval.mean):
        state = "fails"
    else:
        state = "open"
    return Check(criterion, interval, state)


def in_words(verdicts: Sequence[Verdict]) -> str:
    """The rule, then which posteriors are faithful and which are not, with what was found of each part."""
    lines = [f"Faithful means: {'; '.join(f'{one.words} {one.needs}' for one in CRITERIA)}.", ""]
    for word in ("faithful", "not faithful", "not decided"):
        alike: dict[str, list[str]] = {}
        for verdict in verdicts:
            if verdict.word == word:
                alike.setdefault(_found(verdict), []).append(verdict.name)
        lines += [f"{word.capitalize()}: {'; '.join(names)} ({found})." for found, names in alike.items()]
        if not alike and word != "not decided":
            lines.append(f"{word.capitalize()}: none.")
    return "\n".join(lines)


def _found(verdict: Verdict) -> str:
    """How many seeds, and of each part the worst that was found."""
    found: dict[str, list[str]] = {"fails": [], "open": [], "holds": []}
    for part in ("knowledge", "uncertainty", "consistency"):
        states = {check.state for check in verdict.checks if check.criterion.part == part}
        found[next(state for state in found if state in states)].append(part)
    words = [
        f"{', '.join(parts)} {verb}"
        for parts, verb in zip(found.values(), ("failed", "open", "sound"), strict=True)
        if parts
    ]
    seeds = "one seed, no interval" if verdict.seeds == 1 else f"{verdict.seeds} seeds"
    return "; ".join([seeds, *words])


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Which criteria each posterior meets."""
    table = _empty_table("Does it hold? (? where seeds leave it open; over: the untrained network)")
    for one in CRITERIA:
        table.add_column(one.short, justify="right", no_wrap=True)
    for (method, seeds), some in itertools.groupby(verdicts, key=lambda one: (one.method, one.seeds)):
        table.add_row(f"{method}, {count_words([seeds], 'seed')}", style="bold")
        for verdict in some:
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
    """Narrow tables, each of a few measures, and the last of which criteria hold.

    Cells are means over seeds, with half of the 99% interval. Posteriors with the same numbers share a row,
    in which the first is named and the others are counted.
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
    """A panel for each criterion: every posterior trained and untrained, the exact belief, what is needed."""
    rows = list(
        frame.filter(pl.col("network") == "trained")
        .select("method", "posterior")
        .unique(maintain_order=True)
        .iter_rows()
    )
    shown = [one for one in CRITERIA if one.less != "untrained"]
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
            Patch(color=EXACT, alpha=0.12, linewidth=0, label="needed"),
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
            interval = mean_interval(_rows(frame, network, method, posterior)[measure].to_numpy())
            if not np.isnan(interval.low):
                axes.plot([interval.low, interval.high], [place, place], color=colour, linewidth=1)
            axes.plot([interval.mean], [place], "o", color=colour, markerfacecolor=face, markersize=4)
    needed = (criterion.low + middle, criterion.high + middle)
    is_ratio = measure == "kl_late_over_early"
    if is_ratio:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    # What is needed is in the panel, however far away the numbers are.
    bounds = [bound for bound in needed if math.isfinite(bound)]
    axes.plot(bounds, [0.0] * len(bounds), alpha=0)
    low, high = axes.get_xlim()
    axes.axvspan(max(needed[0], low), min(needed[1], high), color=EXACT, alpha=0.12, linewidth=0)
    if exact > 0 or not (is_ratio or np.isnan(exact)):
        axes.axvline(exact, color=EXACT, linewidth=1.2, zorder=0)
    axes.set_xlim(low, high)
