"""Closing of comparisons: as they hold, are on par, or fail at a look."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from recurrent_laplace.evaluation.statistics import holm
from recurrent_laplace.report.claims.comparison import AbstractComparison, Reading
from recurrent_laplace.report.claims.looks import LEVEL, LOOKS

State = Literal["holds", "on par", "fails", "open"]
"""Outcome of a comparison: as claimed, within the margin, otherwise, or not known yet."""


class Closed(NamedTuple):
    """State of a comparison after the last look, with the reading that decided it or the latest."""

    state: State
    reading: Reading


def close(comparisons: Sequence[AbstractComparison]) -> list[Closed]:
    """Make the comparisons of a claim at each look for which there are seeds.

    A comparison closes at the first look at which it holds, is on par, or fails after Holm's correction over
    all comparisons of the claim; more seeds do not open it again. Where there are fewer seeds than the first
    look needs, it takes those that there are.
    """
    states: list[State] = ["open"] * len(comparisons)
    readings = [comparison.read(_available(comparison, LOOKS[0])) for comparison in comparisons]
    for look in LOOKS:
        still_open = [i for i, state in enumerate(states) if state == "open"]
        for i in still_open:
            readings[i] = comparisons[i].read(_available(comparisons[i], look))
        failed = holm(np.array([reading.fails for reading in readings]), LEVEL)
        for i in still_open:
            if failed[i]:
                states[i] = "fails"
            elif readings[i].holds < LEVEL:
                states[i] = "holds"
            elif readings[i].on_par < LEVEL:
                states[i] = "on par"
    return [Closed(state, reading) for state, reading in zip(states, readings, strict=True)]


def _available(comparison: AbstractComparison, look: int) -> int:
    """Seeds of the latest look that a comparison has seeds for, up to `look`."""
    passed = [number for number in LOOKS if number <= min(look, comparison.seeds)]
    return max(passed, default=comparison.seeds)
