"""Columns of verdicts: a claim is judged as the published code was released and as the paper is written."""

import dataclasses

import polars as pl

from recurrent_laplace.report.arms import Arm
from recurrent_laplace.report.frames import Frames

BETA = 1e-2
"""Weight of the KL in the paper's main figures."""
WEAKER_BETA = 1e-4
"""Weight of the KL in the third line of claims about control."""


@dataclasses.dataclass(frozen=True)
class Column:
    """Runs on which a claim is judged."""

    name: str
    arm: Arm | None
    """Arm of the runs; None for all."""
    beta: float = BETA
    """Weight of the KL of trained Bayesian agents."""

    def restrict(self, frames: Frames) -> Frames:
        """Tables with the runs of this column; those of both arms belong to each."""
        if self.arm is None:
            return frames
        runs = frames.runs.filter(pl.col("arm").is_null() | (pl.col("arm") == self.arm))
        return dataclasses.replace(frames, runs=runs)

    def beta_of(self, frames: Frames) -> float:
        """Weight of the KL that is judged: the column's, or that of most seeds if no run has it."""
        trained = trained_beliefs(frames.runs)
        if self.name == WEAKER.name or trained.is_empty() or self.beta in trained["beta"]:
            return self.beta
        counts = trained.group_by("beta").agg(pl.col("seeds").sum()).sort("seeds", "beta")
        return counts["beta"][-1]


RELEASED = Column("released", "released")
WRITTEN = Column("written", "written")
BOTH = Column("both", None)
WEAKER = Column("written, beta 1e-4", "written", WEAKER_BETA)
TWO = (RELEASED, WRITTEN)
"""Columns of claims about regression."""
CONTROL = (*TWO, WEAKER)
"""Columns of claims about control; the third where there are such runs."""


def trained_beliefs(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs that were trained with a belief, for which the weight of the KL has an effect."""
    return runs.filter((pl.col("method") != "rnn") & (pl.col("updates") > 0))


def of_beta(runs: pl.DataFrame, beta: float) -> pl.DataFrame:
    """Runs with this weight of the KL, and those on which it has no effect."""
    return runs.filter((pl.col("method") == "rnn") | (pl.col("updates") == 0) | (pl.col("beta") == beta))
