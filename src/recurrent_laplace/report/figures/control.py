"""Figures of bandit and gridworld: training returns, test regret, and beliefs."""

import polars as pl

from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import BAYESIAN, ORIGINS, Variant, without_summed_means
from recurrent_laplace.report.panels import Drawing, Panel, draw_grid
from recurrent_laplace.report.selection import all_runs, bandit_of

SAMPLES = (1, 5)
"""Samples in the loss in the paper's figure 3."""


def figure_02(frames: Frames) -> Drawing:
    """Draw consecutive KL and entropy on the gridworld, without the sum of means."""
    return _beliefs(frames, without_summed_means(BAYESIAN))


def figure_03(frames: Frames) -> Drawing:
    """Draw the training return, with a row per number of samples in the loss."""
    panels = [
        [
            Panel(metric="return", task=task, x="update", samples=samples)
            for task in (bandit_of(frames), "gridworld")
        ]
        for samples in sample_counts(frames)
    ]
    return draw_grid(frames, panels, share="column", title=_task_and_samples)


def sample_counts(frames: Frames) -> tuple[int, ...]:
    """Numbers of samples in the loss of Bayesian control runs from scratch; the paper's without any run."""
    runs = select(frames.runs, task=(bandit_of(frames), "gridworld"), origin="scratch")
    found = runs.filter(pl.col("method") != "rnn")["samples"].unique().sort()
    return tuple(found) or SAMPLES


def figure_10(frames: Frames) -> Drawing:
    """Draw the cumulative regret on the bandit, of all agents and of the better half of each line."""
    panels = [
        [
            Panel(
                metric="cumulative_regret", task=bandit_of(frames), origin=origin, choose=all_runs, keep=keep
            )
            for origin in ORIGINS
        ]
        for keep in (None, better_half)
    ]
    return draw_grid(frames, panels, x="linear", title=_all_or_half)


def figure_12(frames: Frames) -> Drawing:
    """Draw the cumulative regret on the gridworld."""
    panels = [Panel(metric="cumulative_regret", task="gridworld", origin=origin) for origin in ORIGINS]
    return draw_grid(frames, [panels], x="linear")


def figure_13(frames: Frames) -> Drawing:
    """Draw consecutive KL and entropy on the gridworld, with all lines."""
    return _beliefs(frames, BAYESIAN)


def better_half(rows: pl.DataFrame) -> pl.DataFrame:
    """Units whose last value is at most the median."""
    last = rows.filter(pl.col("x") == pl.col("x").max())
    better = last.filter(pl.col("value") <= pl.col("value").median())
    return rows.filter(pl.col("unit").is_in(better["unit"].implode()))


def _beliefs(frames: Frames, variants: tuple[Variant, ...]) -> Drawing:
    panels = [
        [Panel(metric=metric, task="gridworld", origin=origin, variants=variants) for origin in ORIGINS]
        for metric in ("kl", "entropy")
    ]
    return draw_grid(frames, panels)


def _task_and_samples(panel: Panel) -> str:
    words = f"{panel.samples} sample{'' if panel.samples == 1 else 's'}" if panel.samples else "mean"
    return f"{panel.task.replace('_', ' ')}, {words}, "


def _all_or_half(panel: Panel) -> str:
    return "all, " if panel.keep is None else "better half, "
