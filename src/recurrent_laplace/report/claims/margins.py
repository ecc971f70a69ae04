"""Margins within which two results are on par, and the reference levels that they are shares of."""

import math

import polars as pl

from recurrent_laplace.report.claims.groups import CUTOFF, Group, groups
from recurrent_laplace.report.claims.verdict import Findings
from recurrent_laplace.report.frames import MEMORYLESS, Frames
from recurrent_laplace.report.oracles import exact_tests, exact_training

RETURN_SHARE = 0.02
"""Margin of returns, as a share of the return of exact Bayes."""
CROSS_ENTROPY_SHARE = 0.1
"""Margin of cross-entropies, as a share of the RNN's gain over its prediction without observations."""
REGRET_SHARE = 0.05
"""Margin of regrets, as a share of the RNN's regret."""
KL_MARGIN = 0.005
"""Margin of consecutive KLs, in nats per feature."""
ENTROPY_MARGIN = 0.02
"""Margin of entropies, in nats per feature."""
SLOPE_MARGIN = 0.05
"""Margin of the growth exponent of regret."""


def exact_level(group: Group, metric: str) -> float | None:
    """Test performance of exact Bayes at the cut-off of a group; None if it is not known."""
    rows = exact_tests(group.frames, group.runs, metric).filter(pl.col("t") <= group.runs["steps"].min())
    return None if rows.is_empty() else float(rows["value"][-1])


def memoryless_level(group: Group) -> float | None:
    """Return of the best memoryless walk at the cut-off of a group; None if it is not known."""
    rows = group.frames.oracle.filter(
        (pl.col("run") == MEMORYLESS)
        & (pl.col("metric") == "return")
        & pl.col("configuration").is_in(group.runs["task_id"].implode())
        & (pl.col("t") <= group.runs["steps"].min())
    ).sort("t")
    return None if rows.is_empty() else float(rows["value"][-1])


def return_margin(found: Findings, group: Group, *, training: bool = False) -> float:
    """Margin of returns on the task of a group, in tests at the cut-off or in training."""
    exact = exact_training(group.frames, group.runs, "return") if training else exact_level(group, "return")
    if exact is None:
        found.missing.append(f"exact Bayes on {group.runs['task'][0]}")
        return 0.0
    return RETURN_SHARE * exact


def regret_margin(frames: Frames, found: Findings, task: str) -> float:
    """Margin of cumulative regrets at the cut-off of tests."""
    for rnn in groups(frames, found, task, "scratch", ("rnn",)):
        return REGRET_SHARE * rnn.test("cumulative_regret", CUTOFF).level()
    return 0.0


def regression_gain(frames: Frames, found: Findings) -> float:
    """Cross-entropy that the RNN gains from the pairs up to the cut-off."""
    for rnn in groups(frames, found, "regression", "scratch", ("rnn",)):
        gain = (rnn.test("cross_entropy", 0) - rnn.test("cross_entropy", CUTOFF)).level()
        if math.isnan(gain):
            found.missing.append("the gain of RNN from scratch on regression")
            return 0.0
        return max(gain, 0.0)
    return 0.0


def cross_entropy_margin(frames: Frames, found: Findings) -> float:
    """Margin of cross-entropies on regression."""
    return CROSS_ENTROPY_SHARE * regression_gain(frames, found)
