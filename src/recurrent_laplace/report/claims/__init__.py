"""The paper's claims, and a verdict on each from the tables of runs."""

import dataclasses
from collections.abc import Iterable

import polars as pl

from recurrent_laplace.report.claims import gridworld, model, regression, training
from recurrent_laplace.report.claims.verdict import Claim, Outcome, Verdict
from recurrent_laplace.report.frames import Frames

__all__ = ["CLAIMS", "Claim", "Outcome", "Verdict", "judge"]

CLAIMS = tuple(
    value
    for module in (regression, gridworld, training, model)
    for value in vars(module).values()
    if isinstance(value, Claim)
)
"""All claims, in the order of their definition, which is that of the page."""

TRAINING_METRICS = ("loss", "return", "kl")
TEST_METRICS = ("cross_entropy", "entropy", "kl", "return", "cumulative_regret")
"""Metrics that claims use."""


def judge(frames: Frames, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Judge every claim; those from outside of the package are added as in `(*CLAIMS, own)`."""
    reduced = _reduced(frames)
    return [claim.judge(reduced) for claim in claims]


def _reduced(frames: Frames) -> Frames:
    """The tables with only the metrics of claims, averaged over test tasks once for all claims."""
    tests = frames.evaluation.filter(pl.col("metric").is_in(TEST_METRICS))
    means = tests.group_by("run", "configuration", "seed", "t", "metric").agg(pl.col("value").mean())
    metrics = frames.metrics.filter(pl.col("metric").is_in(TRAINING_METRICS))
    return dataclasses.replace(frames, metrics=metrics, evaluation=means)
