"""The paper's claims, and a verdict on each from the tables of runs."""

from collections.abc import Iterable

from recurrent_laplace.report.claims import gridworld, model, regression, training
from recurrent_laplace.report.claims.columns import BOTH, RELEASED, WEAKER, WRITTEN, trained_beliefs
from recurrent_laplace.report.claims.gates import Gate, gates_of
from recurrent_laplace.report.claims.verdict import OUTCOMES, Claim, Outcome, Verdict
from recurrent_laplace.report.frames import Frames

__all__ = [
    "CLAIMS",
    "COLUMNS",
    "OUTCOMES",
    "RULES_DATE",
    "Claim",
    "Gate",
    "Outcome",
    "Verdict",
    "judge",
    "judge_gates",
]

RULES_DATE = "2026-11-19"
"""Date of the rules: of gates, columns, margins, looks and claims."""
COLUMNS = (RELEASED, WRITTEN, WEAKER, BOTH)
"""Columns, in the order of the page."""
CLAIMS = tuple(
    value
    for module in (regression, gridworld, training, model)
    for value in vars(module).values()
    if isinstance(value, Claim)
)
"""All claims, in the order of their definition, which is that of the page."""


def judge(frames: Frames, claims: Iterable[Claim] = CLAIMS) -> list[Verdict]:
    """Judge every claim in each of its columns, in the order of the claims.

    Claims from outside of the package are added as in `(*CLAIMS, own)`. The third column of a claim, a
    smaller weight of the KL, is left out where there are no such runs.
    """
    gates = {column: gates_of(frames, column) for column in COLUMNS}
    verdicts = [claim.judge(frames, column, gates[column]) for claim in claims for column in claim.columns]
    return [verdict for verdict in verdicts if verdict is not None]


def judge_gates(frames: Frames) -> list[Gate]:
    """Gates of each column: whether the agents have learned enough to be judged."""
    runs = trained_beliefs(WEAKER.restrict(frames).runs)
    columns = (RELEASED, WRITTEN, WEAKER) if WEAKER.beta in runs["beta"] else (RELEASED, WRITTEN)
    return [gate for column in columns for gate in gates_of(frames, column)]
