"""Table and page of the shift-detection benchmark."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.box import SIMPLE_HEAD
from rich.table import Table

from recurrent_laplace.evaluation.shifts.study import ALARMS
from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.files import write_text
from recurrent_laplace.report.page import render_template
from recurrent_laplace.tasks.shifts import SHIFTS

SHORT = dict(zip(ALARMS, ("alarm", "no\nrewards"), strict=True))
"""Short names of the alarms for the printed table."""
CEILING, CHANCE = "exact surprise", "random"

NO_ALARM = ("new_task",)
"""Shifts that should not raise an alarm."""


def summarise(frame: pl.DataFrame) -> pl.DataFrame:
    """AUROC by score and shift, averaged over agents; sorted by the mean over real shifts."""
    wide = (
        frame.group_by("score", "shift")
        .agg(pl.col("auroc").mean())
        .pivot("shift", index="score", values="auroc")
    )
    real = [name for name in wide.columns if name not in ("score", *NO_ALARM)] or wide.columns[1:]
    order = wide.with_columns(order=pl.mean_horizontal(real)).sort("order", "score", descending=[True, False])
    return order.drop("order")


def overview_table(frame: pl.DataFrame) -> Table:
    """Summary table in 80 columns, a row per shift; the page has all scores.

    Columns are the AUROC of the alarms, the median delay and the missed fraction of the first alarm, and the
    AUROC of exact surprise, which is the ceiling, and of the best other score. Means are over networks.
    """
    alarms = {name: words for name, words in SHORT.items() if name in frame["score"]}
    first = frame.filter(pl.col("score") == next(iter(alarms)))
    table = Table(
        title="AUROC, mean over networks",
        caption=f"0.5 is chance. False alarms: {first['false_alarms'].mean():.1%} of clean episodes.\n"
        f"All {frame['score'].n_unique()} scores are on the page.",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("shift", no_wrap=True)
    for words in (*alarms.values(), "delay", "missed", "exact"):
        table.add_column(words, justify="right", no_wrap=True)
    table.add_column("best other score")
    for (shift,), rows in frame.group_by("shift", maintain_order=True):
        shift = str(shift)
        aurocs = dict(rows.group_by("score").agg(pl.col("auroc").mean()).iter_rows())
        others = {name: auroc for name, auroc in aurocs.items() if name not in (*SHORT, CEILING, CHANCE)}
        best = max(others, key=lambda name: others[name])
        alarm = first.filter(pl.col("shift") == shift)
        table.add_row(
            shift.replace("_", " "),
            *(f"{aurocs[name]:.2f}" for name in alarms),
            _delay(alarm),
            _missed(alarm),
            f"{aurocs[CEILING]:.2f}",
            "target 0.5" if shift in NO_ALARM else f"{others[best]:.2f} {best.replace('_', ' ')}",
        )
    return table


def write_shift_page(out: Path, frame: pl.DataFrame, *, task: str, agents: int, command: str) -> None:
    """Write the page: AUROC of all scores on all shifts, then the details of each shift."""
    shifts = frame["shift"].unique(maintain_order=True).to_list()
    overview = [
        {"score": row["score"], "cells": [_heat(row[shift], shift) for shift in shifts]}
        for row in summarise(frame).iter_rows(named=True)
    ]
    html = render_template(
        "shiftbench",
        task=task,
        agents=agents,
        shifts=shifts,
        words={shift: SHIFTS.get(shift, "a task-specific shift") for shift in shifts},
        overview=overview,
        combined=list(ALARMS),
        details={shift: details_of(frame.filter(pl.col("shift") == shift)) for shift in shifts},
        gains=reset_gains(frame),
        command=command,
    )
    write_text(out, html)


def _heat(auroc: float, shift: str) -> dict[str, Any]:
    """Cell of the overview: its text and the strength of its colour."""
    return {"text": f"{auroc:.2f}", "share": 0.0 if shift in NO_ALARM else max(0.0, 2 * auroc - 1)}


def details_of(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of one shift: means over agents, with intervals."""
    rows = []
    for (score,), group in frame.group_by("score", maintain_order=True):
        auroc = mean_interval(group["auroc"].to_numpy())
        low, high = auroc.low, auroc.high
        if np.isnan(low):
            # With one agent, the interval is a bootstrap over its episodes.
            low, high = group["auroc_low"][0], group["auroc_high"][0]
        rows.append(
            {
                "score": str(score),
                "order": auroc.mean,
                "auroc": f"{auroc.mean:.3f} ({max(low, 0):.3f} to {min(high, 1):.3f})",
                "aupr": f"{group['aupr'].mean():.3f}",
                "fpr95": f"{group['fpr95'].mean():.2f}",
                "delay": _delay(group),
                "missed": _missed(group),
                "false_alarms": f"{group['false_alarms'].mean():.1%}",
            }
        )
    return sorted(rows, key=lambda row: -row["order"])


def _delay(rows: pl.DataFrame) -> str:
    """Median delay over networks; a dash if too few changes are detected, or if there is no change."""
    median = np.median(rows["delay"].to_numpy())
    is_some = np.isfinite(median) and rows["shift"][0] not in NO_ALARM
    return f"{median:.0f}" if is_some else "-"


def _missed(rows: pl.DataFrame) -> str:
    """Mean missed fraction over networks; a dash if no change was detectable, or if there is no change."""
    fraction = rows["missed"].fill_nan(None).mean()
    is_none = fraction is None or rows["shift"][0] in NO_ALARM
    return "-" if is_none else f"{fraction:.0%}"


def reset_gains(frame: pl.DataFrame) -> list[dict[str, str]]:
    """Return after the shift, with the belief kept and with the belief reset at the first alarm."""
    if "return_kept" not in frame.columns:
        return []
    rows = []
    known = frame.filter(pl.col("return_kept").is_not_null())
    for (shift, score), group in known.group_by("shift", "score", maintain_order=True):
        gain = mean_interval((group["return_reset"] - group["return_kept"]).to_numpy())
        between = "" if np.isnan(gain.low) else f" ({gain.low:+.2f} to {gain.high:+.2f})"
        rows.append(
            {
                "shift": str(shift),
                "score": str(score),
                "kept": f"{group['return_kept'].mean():.2f}",
                "reset": f"{group['return_reset'].mean():.2f}",
                "gain": f"{gain.mean:+.2f}{between}",
            }
        )
    return rows
