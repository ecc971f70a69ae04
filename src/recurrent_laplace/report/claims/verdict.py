"""Claims, comparisons, and the verdicts that follow from them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from recurrent_laplace.evaluation.statistics import Interval, State, all_hold, mean_interval
from recurrent_laplace.report.frames import Frames

Outcome = Literal["reproduced", "not reproduced", "not decided"]
OUTCOMES: dict[State, Outcome] = {"holds": "reproduced", "fails": "not reproduced", "open": "not decided"}
"""Verdict on a claim when all comparisons hold, one fails, or one is open."""

Seeds = dict[int, float]
"""Values by seed, NaN where a seed has none; seeds are the units of every interval."""

ENOUGH_SEEDS = 2
"""Minimum number of seeds for an interval."""
CROSS_ENTROPY_MARGIN = 0.1
"""Margin for on par, in nats."""
RETURN_MARGIN = 0.05
"""Margin for on par, as a fraction of the RNN's return."""
NAMED = 3
"""Maximum number of comparisons of a kind that the evidence spells out."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim, its decision rule, and the outcome."""

    id: str
    claim: str
    rule: str
    """Decision rule, fixed before any data is seen."""
    verdict: Outcome
    evidence: str
    figure: int
    """Number of the figure that shows the evidence."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison of a claim."""

    state: State
    words: str
    """Measured values and claimed bounds, in words."""
    slack: float
    """Distance to the bound, in half-widths of the interval; small if the decision was close."""
    is_exact: bool = False
    """Whether the values are counts or times, without an interval."""


class Findings:
    """Comparisons of a claim, and the runs or values that were missing."""

    def __init__(self):
        self.checks: list[Check] = []
        self.missing: list[str] = []
        self.lacking: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def below(self, subject: str, values: Seeds, bound: float, unit: str) -> None:
        """Claim that the mean over seeds is below `bound`."""
        self.between(subject, values, -math.inf, bound, unit)

    def above(self, subject: str, values: Seeds, bound: float, unit: str) -> None:
        """Claim that the mean over seeds is above `bound`."""
        self.between(subject, values, bound, math.inf, unit)

    def between(self, subject: str, values: Seeds, low: float, high: float, unit: str) -> None:
        """Claim that the mean over seeds is between `low` and `high`."""
        if (check := self.check(subject, values, low, high, unit)) is not None:
            self.checks.append(check)

    def check(self, subject: str, values: Seeds, low: float, high: float, unit: str) -> Check | None:
        """Make the comparison of `between`; None, and recorded as missing, if seeds or values are missing."""
        if len(values) < ENOUGH_SEEDS:
            available = f"only seed {min(values)}" if values else "no seed"
            return self._record_missing(subject, f"{available}, where an interval needs {ENOUGH_SEEDS},")
        lost = [str(seed) for seed, value in sorted(values.items()) if not math.isfinite(value)]
        if lost:
            # Leaving them out would bias the verdict towards successful seeds.
            seeds = "seed" if len(lost) == 1 else "seeds"
            return self._record_missing(subject, f"no finite value for {seeds} {', '.join(lost)}")
        interval = mean_interval(np.array([values[seed] for seed in sorted(values)]))
        numbers = f"{_number(interval.mean)} {unit} (99% interval {_number(interval.low)} to "
        numbers += f"{_number(interval.high)}, {interval.units} seeds)"
        return _compare(f"{subject} is {numbers}", interval, low, high)

    def exact(self, subject: str, value: float, other: str, bound: float, unit: str) -> None:
        """Claim that a value is below `bound`, the value of `other`; both are known exactly."""
        words = f"{subject} has {_number(value)} {unit} and {other} {_number(bound)}"
        state = "holds" if value < bound else "fails"
        self.checks.append(Check(state, words, (bound - value) / max(abs(bound), 1e-12), is_exact=True))

    def otherwise(self, subject: str, checks: list[Check | None]) -> None:
        """Claim that not all of these comparisons hold: `subject` is the exception of the claim."""
        known = [check for check in checks if check is not None]
        if len(known) < len(checks):
            return
        states = [check.state for check in known]
        words = "; ".join(check.words for check in known)
        state = "holds" if "fails" in states else "open" if "open" in states else "fails"
        word = {"holds": "is the exception", "open": "may be the exception", "fails": "is no exception"}
        self.checks.append(Check(state, f"{subject} {word[state]} ({words})", math.inf))

    @property
    def verdict(self) -> Outcome:
        """Reproduced if all comparisons hold, not if one fails, undecided if something is missing or open."""
        if self.missing or self.lacking or not self.checks:
            return "not decided"
        return OUTCOMES[all_hold(check.state for check in self.checks)]

    @property
    def evidence(self) -> str:
        """Decisive comparisons in words."""
        parts = []
        absent = [*dict.fromkeys(self.missing), *self._reasons()]
        if absent:
            parts.append(f"Missing: {'; '.join(absent)}")
        elif not self.checks:
            parts.append("There is nothing to compare")
        count = len(self.checks)
        failed = [check for check in self.checks if check.state == "fails"]
        unclear = [check for check in self.checks if check.state == "open"]
        if failed:
            parts.append(f"{len(failed)} of {count} comparisons fail: {_spelled(failed)}")
        if unclear and (failed or absent):
            parts.append(f"{len(unclear)} of {count} comparisons are open")
        elif unclear:
            parts.append(f"{len(unclear)} of {count} comparisons are open: {_spelled(unclear)}")
        if self.checks and not failed and not unclear:
            held = "The one comparison holds" if count == 1 else f"All {count} comparisons hold; the closest"
            parts.append(f"{held}: {'; '.join(check.words for check in self._closest())}")
        return ". ".join([*parts, *self.notes]) + "."

    def _record_missing(self, subject: str, reason: str) -> None:
        self.lacking.setdefault(reason, []).append(subject)

    def _reasons(self) -> list[str]:
        """Reasons why comparisons could not be made; a reason that applies to all is given once."""
        tried = sum(not check.is_exact for check in self.checks) + sum(map(len, self.lacking.values()))
        return [
            f"{reason} in all {tried} comparisons of seeds"
            if len(subjects) == tried > NAMED
            else f"{reason} for {'; '.join(subjects)}"
            for reason, subjects in self.lacking.items()
        ]

    def _closest(self) -> list[Check]:
        """The closest comparison with an interval, and the closest without."""
        kinds = ([check for check in self.checks if check.is_exact == exact] for exact in (False, True))
        return [min(checks, key=lambda check: check.slack) for checks in kinds if checks]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper with its decision rule."""

    id: str
    text: str
    rule: str
    figure: int
    decide: Callable[[Frames, Findings], None]
    """Function that makes the comparisons."""

    def judge(self, frames: Frames) -> Verdict:
        """Judge the claim on the tables of runs."""
        found = Findings()
        self.decide(frames, found)
        return Verdict(self.id, self.text, self.rule, found.verdict, found.evidence, self.figure)


def claim(id: str, text: str, *, rule: str, figure: int) -> Callable[..., Claim]:
    """Decorator that turns the function with the comparisons into a claim."""
    return lambda decide: Claim(id, text, rule, figure, decide)


def minus(first: Seeds, second: Seeds) -> Seeds:
    """Differences by seed, for the seeds that both have; a seed has the same test tasks in both."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}


def mean(values: Seeds) -> float:
    """Mean of the finite values over seeds; 0 if there are none."""
    finite = [value for value in values.values() if math.isfinite(value)]
    return float(np.mean(finite)) if finite else 0.0


def _spelled(checks: list[Check]) -> str:
    """The clearest comparisons in words."""
    chosen = sorted(checks, key=lambda check: check.slack)
    more = [f"and {len(chosen) - NAMED} more"] if len(chosen) > NAMED else []
    return "; ".join([*(check.words for check in chosen[:NAMED]), *more])


def _compare(words: str, interval: Interval, low: float, high: float) -> Check:
    half = max((interval.high - interval.low) / 2, 1e-12)
    slack = min(interval.low - low, high - interval.high) / half
    if slack > 0:
        state = "holds"
    elif interval.high <= low or interval.low >= high:
        state = "fails"
    else:
        state = "open"
    if math.isinf(low):
        needed = f"below {_number(high)}"
    elif math.isinf(high):
        needed = f"above {_number(low)}"
    else:
        needed = f"between {_number(low)} and {_number(high)}"
    return Check(state, f"{words}, claimed {needed}", slack)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value + 0.0:.3g}"
