"""Selection of the runs that represent a method."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import RNN, Variant

BANDITS = ("bandit", "beta_bandit", "two_arm_bandit")

SNAPSHOTS = (0.5, 0.75, 1.0)
"""Snapshots, as fractions of the parent's updates."""

PREFERRED_WINDOWS = {
    "stationary": ("10", "all"),
    "precision": ("1",),
    "mean_and_precision": ("1",),
}


def nearest_snapshot(fraction: float) -> float:
    """Nominal snapshot of an actual fraction: half of 3 updates is 1 update, a third of them."""
    return min(SNAPSHOTS, key=lambda snapshot: abs(snapshot - fraction))


def bandit_of(frames: Frames) -> str:
    """Name of the bandit task of the runs."""
    tasks = set(frames.runs["task"])
    return next((name for name in BANDITS if name in tasks), BANDITS[0])


def all_runs(frames: Frames, task: str, origin: str, variant: Variant) -> pl.DataFrame:
    """All runs of a variant; the RNN of fine-tuned and post-hoc runs is their parent."""
    origin = "scratch" if variant == RNN else origin
    return select(frames.runs, task=task, origin=origin, method=variant.method, covariance=variant.covariance)


def main_runs(
    frames: Frames,
    task: str,
    origin: str,
    variant: Variant,
    *,
    samples: int | None = None,
    snapshot: float | None = None,
) -> pl.DataFrame:
    """Runs of one configuration of a variant, which may be several with a few seeds each.

    The preferred configuration is as the paper is written, with as many samples in the loss of control agents
    as in acting, else one, beta 1e-2, window 1 for sums and 10 for the stationary posterior, and for
    fine-tuning the earliest snapshot. A missing value, or one without a preference, is replaced by that of
    most seeds. Given values of `samples` and `snapshot` are required, not preferred.
    """
    runs = all_runs(frames, task, origin, variant)
    if variant != RNN:
        kept = pl.col("snapshot").map_elements(nearest_snapshot, return_dtype=pl.Float64)
        runs = runs.with_columns(kept.alias("kept"))
        if samples is not None:
            runs = select(runs, samples=samples)
        if snapshot is not None:
            runs = select(runs, kept=snapshot)
        runs = narrow(runs, "arm", ("written",))
        if samples is None:
            runs = with_equal_samples(runs)
        runs = narrow(runs, "samples", (1,))
        runs = narrow(runs, "beta", (1e-2,))
        runs = narrow(runs, "window", PREFERRED_WINDOWS.get(variant.method, ()))
        runs = narrow(runs, "kept", (0.5, 0.75) if origin == "finetuned" else (1.0,))
    if variant == RNN:
        runs = narrow(runs, "arm", ("written",))
    for column in ("features", "steps", "updates"):
        runs = narrow(runs, column, ())
    if origin == "scratch" or variant == RNN:
        # Configurations of fine-tuned and post-hoc runs name the parent, so they differ between seeds.
        runs = narrow(runs, "configuration", ())
    return runs.select(frames.runs.columns)


def with_equal_samples(runs: pl.DataFrame) -> pl.DataFrame:
    """Control runs with as many samples in the loss as in acting; all runs if there are none."""
    same = runs.filter((pl.col("task") != "regression") & (pl.col("samples") == pl.col("acting_samples")))
    return runs if same.is_empty() else same


def cutoff_of(runs: pl.DataFrame) -> int | None:
    """Training length of most runs."""
    return None if runs.is_empty() else runs["steps"].mode().min()  # pyright: ignore[reportReturnType]


def narrow(runs: pl.DataFrame, column: str, preferred: Sequence[Any]) -> pl.DataFrame:
    """Runs with the first preferred value that occurs, else with the value of most seeds."""
    known = runs.drop_nulls(column)
    if known.is_empty():
        return runs
    values = set(known[column])
    value = next((value for value in preferred if value in values), None)
    if value is None:
        counts = known.group_by(column).agg(pl.col("seeds").sum())
        value = counts.sort(["seeds", column], descending=[True, False])[column][0]
    return select(runs, **{column: value})
