"""The paper's claims, and a verdict on each from tables of runs alone."""

import dataclasses

import polars as pl

from recurrent_laplace.report.claims import gridworld, model, regression, training
from recurrent_laplace.report.claims.verdict import Claim, Outcome, Verdict
from recurrent_laplace.report.frames import Frames

__all__ = ["CLAIMS", "Claim", "Outcome", "Verdict", "judge"]

CLAIMS: tuple[Claim, ...] = (*regression.CLAIMS, *gridworld.CLAIMS, *training.CLAIMS, *model.CLAIMS)
"""In the order of the page."""

TRAINING_METRICS = ("loss", "return", "kl")
TEST_METRICS = ("cross_entropy", "entropy", "kl", "return", "cumulative_regret")
"""All that the claims look at."""


def judge(frames: Frames) -> list[Verdict]:
    """A verdict on every claim."""
    small = _reduced(frames)
    return [claim.judge(small) for claim in CLAIMS]


def _reduced(frames: Frames) -> Frames:
    """The same tables without what no claim needs: test tasks are averaged once, and not for every claim."""
    tests = frames.evaluation.filter(pl.col("metric").is_in(TEST_METRICS))
    means = tests.group_by("run", "configuration", "seed", "t", "metric").agg(pl.col("value").mean())
    metrics = frames.metrics.filter(pl.col("metric").is_in(TRAINING_METRICS))
    return dataclasses.replace(frames, metrics=metrics, evaluation=means)
