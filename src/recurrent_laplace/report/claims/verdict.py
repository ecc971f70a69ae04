"""What a claim, a comparison and a verdict are, and how comparisons become a verdict."""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.report.frames import Frames

Outcome = Literal["reproduced", "not reproduced", "not decided"]

Seeds = dict[int, float]
"""A number for each seed, NaN where a seed has none: seeds are the units of every interval."""

ENOUGH_SEEDS = 2
"""The fewest seeds that tell something of their spread."""
CROSS_ENTROPY_MARGIN = 0.1
"""In nats: what counts as on par."""
RETURN_MARGIN = 0.05
"""As a share of the RNN's return: what counts as on par."""
NAMED = 3
"""How many comparisons of a kind the evidence spells out."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim, how it is decided, and what came out."""

    id: str
    claim: str
    rule: str
    """Fixed before any data is seen."""
    verdict: Outcome
    evidence: str
    figure: int
    """The figure of the page that shows it."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One comparison that a claim makes."""

    state: Literal["holds", "fails", "open"]
    words: str
    """The numbers, and what they should have been."""
    slack: float
    """Distance to what would not hold, in halves of the interval: small where it was close."""
    is_exact: bool = False
    """Whether it was counted or timed, without an interval."""


class Findings:
    """What a claim has found: comparisons, and what was not there to compare."""

    def __init__(self):
        self.checks: list[Check] = []
        self.missing: list[str] = []
        self.lacking: dict[str, list[str]] = {}
        self.notes: list[str] = []

    def below(self, subject: str, values: Seeds, bound: float, unit: str) -> None:
        """The claim says that this is below `bound`, in the mean over seeds."""
        self.between(subject, values, -math.inf, bound, unit)

    def above(self, subject: str, values: Seeds, bound: float, unit: str) -> None:
        """The claim says that this is above `bound`, in the mean over seeds."""
        self.between(subject, values, bound, math.inf, unit)

    def between(self, subject: str, values: Seeds, low: float, high: float, unit: str) -> None:
        """The claim says that this is between `low` and `high`, in the mean over seeds."""
        check = self.check(subject, values, low, high, unit)
        if check is not None:
            self.checks.append(check)

    def check(self, subject: str, values: Seeds, low: float, high: float, unit: str) -> Check | None:
        """The comparison that `between` makes; None, and noted as missing, where seeds or values are."""
        if len(values) < ENOUGH_SEEDS:
            there = f"only seed {min(values)}" if values else "no seed"
            return self._lacks(subject, f"{there}, where an interval needs {ENOUGH_SEEDS},")
        lost = [str(seed) for seed, value in sorted(values.items()) if not math.isfinite(value)]
        if lost:
            # To leave them out would be to judge only what went well.
            seeds = "seed" if len(lost) == 1 else "seeds"
            return self._lacks(subject, f"no finite value for {seeds} {', '.join(lost)}")
        interval = mean_interval(np.array([values[seed] for seed in sorted(values)]))
        numbers = f"{_number(interval.mean)} {unit} (99% interval {_number(interval.low)} to "
        numbers += f"{_number(interval.high)}, {interval.units} seeds)"
        return _compare(f"{subject} is {numbers}", interval, low, high)

    def exact(self, subject: str, value: float, other: str, bound: float, unit: str) -> None:
        """The claim says that this is below `bound`, which is that of `other`; both are known exactly."""
        words = f"{subject} has {_number(value)} {unit} and {other} {_number(bound)}"
        state = "holds" if value < bound else "fails"
        self.checks.append(Check(state, words, (bound - value) / max(abs(bound), 1e-12), is_exact=True))

    def otherwise(self, subject: str, checks: list[Check | None]) -> None:
        """The claim says that not all of these hold: `subject` is its exception."""
        if any(check is None for check in checks):
            return
        states = [check.state for check in checks if check is not None]
        words = "; ".join(check.words for check in checks if check is not None)
        state = "holds" if "fails" in states else "open" if "open" in states else "fails"
        word = {"holds": "is the exception", "open": "may be the exception", "fails": "is no exception"}
        self.checks.append(Check(state, f"{subject} {word[state]} ({words})", math.inf))

    @property
    def verdict(self) -> Outcome:
        """Reproduced if all hold, not if one fails, and nothing where something is missing or open."""
        states = {check.state for check in self.checks}
        if self.missing or self.lacking or not states:
            return "not decided"
        if "fails" in states:
            return "not reproduced"
        return "not decided" if "open" in states else "reproduced"

    @property
    def evidence(self) -> str:
        """The deciding comparisons in words."""
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

    def _lacks(self, subject: str, reason: str) -> None:
        self.lacking.setdefault(reason, []).append(subject)

    def _reasons(self) -> list[str]:
        """Why comparisons could not be made; said once where it is the same for all."""
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
    """A statement of the paper with its rule of decision."""

    id: str
    text: str
    rule: str
    figure: int
    decide: Callable[[Frames, Findings], None]
    """Makes the comparisons."""

    def judge(self, frames: Frames) -> Verdict:
        """The verdict on the claim."""
        found = Findings()
        self.decide(frames, found)
        return Verdict(self.id, self.text, self.rule, found.verdict, found.evidence, self.figure)


def claim(id: str, text: str, *, rule: str, figure: int) -> Callable[..., Claim]:
    """Make a claim of the function that makes its comparisons."""
    return lambda decide: Claim(id, text, rule, figure, decide)


def minus(first: Seeds, second: Seeds) -> Seeds:
    """Differences of the seeds that both have: same seed, same test tasks."""
    return {seed: value - second[seed] for seed, value in first.items() if seed in second}


def mean(values: Seeds) -> float:
    """Mean over seeds; 0 of none, where no interval is made either."""
    finite = [value for value in values.values() if math.isfinite(value)]
    return float(np.mean(finite)) if finite else 0.0


def _spelled(checks: list[Check]) -> str:
    """The clearest of them in words."""
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
