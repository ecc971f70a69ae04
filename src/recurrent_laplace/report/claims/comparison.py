"""Comparisons of a claim: what is claimed of a number, and the evidence at a number of seeds."""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from scipy.special import fdtr, fdtrc, fdtri
from scipy.stats import binomtest

from recurrent_laplace.evaluation.statistics import Interval, estimate
from recurrent_laplace.report.claims.looks import CONFIDENCE, LOOKS
from recurrent_laplace.report.claims.samples import Sample


class Reading(NamedTuple):
    """Evidence of a comparison at a look: p-values against what would be wrong to conclude.

    A comparison is concluded to hold where `holds` is small, and so for the others.
    """

    holds: float
    on_par: float
    fails: float
    differs: float
    """That of `fails`, where on par is not as claimed either."""
    words: str
    """Measured values and claimed bounds, in words."""


class Tails(Protocol):
    """One-sided tests of a number."""

    def p_above(self, edge: float) -> float:
        """p-value against the hypothesis that the number is at most `edge`."""
        ...

    def p_below(self, edge: float) -> float:
        """p-value against the hypothesis that the number is at least `edge`."""
        ...


@dataclasses.dataclass(frozen=True)
class Region:
    """Claimed range of a number, and the range in which it is on par, if the claim has one.

    Beyond both, the claim fails.
    """

    low: float = -math.inf
    high: float = math.inf
    par: tuple[float, float] | None = None

    @staticmethod
    def above(bound: float, margin: float) -> "Region":
        """Above a bound by more than the margin; on par within the margin of it."""
        return Region(low=bound + margin, par=(bound - margin, bound + margin) if margin else None)

    @staticmethod
    def below(bound: float, margin: float) -> "Region":
        """Below a bound by more than the margin; on par within the margin of it."""
        return Region(high=bound - margin, par=(bound - margin, bound + margin) if margin else None)

    def test(self, number: Tails, words: str) -> Reading:
        """Reading of a number."""
        outer = (self.low, self.high)
        par = 1.0
        if self.par is not None:
            par = _inside(number, *self.par)
            outer = min(self.low, self.par[0]), max(self.high, self.par[1])
        holds = _inside(number, self.low, self.high)
        fails, differs = _outside(number, *outer), _outside(number, self.low, self.high)
        return Reading(holds, par, fails, differs, f"{words}, claimed {self.words}")

    @property
    def words(self) -> str:
        """Claimed range as text."""
        if math.isinf(self.low):
            text = f"below {shown(self.high)}"
        elif math.isinf(self.high):
            text = f"above {shown(self.low)}"
        else:
            text = f"between {shown(self.low)} and {shown(self.high)}"
        if self.par is not None:
            text += f" (on par from {shown(self.par[0])} to {shown(self.par[1])})"
        return text


class AbstractComparison(abc.ABC):
    """One comparison of a claim."""

    configurations: frozenset[str]
    """Configurations that take part."""
    seeds: int
    """Number of seeds that all runs have."""
    is_exact = False
    """Whether the values are counts or times, without an interval."""

    @abc.abstractmethod
    def read(self, seeds: int) -> Reading:
        """Evidence of the first `seeds` seeds."""


class MeanComparison(AbstractComparison):
    """Comparison of a mean over seeds and test tasks with a region."""

    def __init__(self, subject: str, sample: Sample, region: Region, unit: str):
        self.subject, self.sample, self.region, self.unit = subject, sample, region, unit
        self.configurations, self.seeds = sample.configurations, len(sample.values)

    def read(self, seeds: int) -> Reading:
        found = estimate(self.sample.array(seeds))
        return self.region.test(found, _told(self.subject, found.interval(CONFIDENCE), self.unit, "seeds"))


class ShareComparison(AbstractComparison):
    """Comparison of a share of repetitions with a region, by exact binomial tests."""

    def __init__(
        self,
        subject: str,
        repetitions: Mapping[int, Sequence[bool]],
        region: Region,
        configurations: frozenset[str],
    ):
        self.subject, self.repetitions, self.region = subject, repetitions, region
        self.configurations, self.seeds = configurations, len(repetitions)

    def read(self, seeds: int) -> Reading:
        chosen = sorted(self.repetitions)[:seeds]
        found = [repetition for seed in chosen for repetition in self.repetitions[seed]]
        share = Binomial(sum(found), len(found))
        return self.region.test(share, _told(self.subject, share.interval(CONFIDENCE), "", "repetitions"))


class SpreadComparison(AbstractComparison):
    """Comparison of the ratio of two standard deviations over seeds with a region, by F tests."""

    def __init__(self, subject: str, first: Sample, second: Sample, region: Region):
        self.subject, self.first, self.second, self.region = subject, first, second, region
        self.configurations = first.configurations | second.configurations
        self.seeds = min(len(first.values), len(second.values))

    def read(self, seeds: int) -> Reading:
        first, second = (
            float(sample.array(seeds).mean(axis=1).std(ddof=1)) for sample in (self.first, self.second)
        )
        ratio = Spread(first, second, seeds)
        return self.region.test(ratio, _told(self.subject, ratio.interval(CONFIDENCE), "", "seeds"))


class ExactComparison(AbstractComparison):
    """Comparison of a number that is known, such as a count, or measured without an interval."""

    is_exact = True
    configurations = frozenset()
    seeds = LOOKS[-1]

    def __init__(self, words: str, value: float, region: Region):
        self.reading = region.test(Known(value), words)

    def read(self, seeds: int) -> Reading:
        return self.reading


class HalfComparison(AbstractComparison):
    """Claim that at least half of some comparisons hold."""

    def __init__(self, subject: str, parts: Sequence[AbstractComparison]):
        self.subject, self.parts = subject, parts
        self.is_exact = all(part.is_exact for part in parts)
        self.configurations = frozenset().union(*(part.configurations for part in parts))
        self.seeds = min(part.seeds for part in parts)

    def read(self, seeds: int) -> Reading:
        readings = [part.read(seeds) for part in self.parts]
        needed = math.ceil(len(readings) / 2)
        holds = sorted(reading.holds for reading in readings)[needed - 1]
        on_par = sorted(min(reading.holds, reading.on_par) for reading in readings)[needed - 1]
        # It fails if so many fail that those left are fewer than half.
        fails = sorted(reading.fails for reading in readings)[len(readings) - needed]
        differs = sorted(reading.differs for reading in readings)[len(readings) - needed]
        closest = sorted(readings, key=lambda reading: reading.holds)[needed - 1]
        words = f"at least half of {len(readings)} comparisons of {self.subject}; the decisive one: "
        return Reading(holds, on_par, fails, differs, words + closest.words)


class ExceptionComparison(AbstractComparison):
    """Claim that one of some comparisons does not hold: the subject is the exception of the claim."""

    def __init__(self, subject: str, parts: Sequence[AbstractComparison]):
        self.subject, self.parts = subject, parts
        self.configurations = frozenset().union(*(part.configurations for part in parts))
        self.seeds = min(part.seeds for part in parts)

    def read(self, seeds: int) -> Reading:
        readings = [part.read(seeds) for part in self.parts]
        # Bonferroni's correction, since it was not said before which of them it is.
        holds = min(1.0, len(readings) * min(reading.differs for reading in readings))
        fails = max(reading.holds for reading in readings)
        words = "; ".join(reading.words for reading in readings)
        return Reading(holds, 1.0, fails, fails, f"{self.subject} as the exception ({words})")


@dataclasses.dataclass(frozen=True)
class Known:
    """A number without uncertainty."""

    value: float

    def p_above(self, edge: float) -> float:
        """0 or 1."""
        return float(self.value <= edge)

    def p_below(self, edge: float) -> float:
        """0 or 1."""
        return float(self.value >= edge)


@dataclasses.dataclass(frozen=True)
class Binomial:
    """Share of successes, with the tests and the interval of Clopper and Pearson."""

    successes: int
    trials: int

    def p_above(self, edge: float) -> float:
        """Probability of as many successes or more at `edge`."""
        return float(binomtest(self.successes, self.trials, edge, alternative="greater").pvalue)

    def p_below(self, edge: float) -> float:
        """Probability of as few successes or fewer at `edge`."""
        return float(binomtest(self.successes, self.trials, edge, alternative="less").pvalue)

    def interval(self, confidence: float) -> Interval:
        """Exact two-sided interval."""
        found = binomtest(self.successes, self.trials)
        low, high = found.proportion_ci(confidence, method="exact")
        return Interval(self.successes / self.trials, float(low), float(high), self.trials)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Ratio of two standard deviations of normal values."""

    first: float
    second: float
    count: int

    @property
    def ratio(self) -> float:
        """Ratio of the standard deviations."""
        return self.first / max(self.second, 1e-12)

    def p_above(self, edge: float) -> float:
        """Upper tail of the F distribution."""
        return float(fdtrc(self.count - 1, self.count - 1, (self.ratio / edge) ** 2))

    def p_below(self, edge: float) -> float:
        """Lower tail of the F distribution."""
        return float(fdtr(self.count - 1, self.count - 1, (self.ratio / edge) ** 2))

    def interval(self, confidence: float) -> Interval:
        """Two-sided interval of the ratio."""
        factor = math.sqrt(float(fdtri(self.count - 1, self.count - 1, 0.5 + confidence / 2)))
        return Interval(self.ratio, self.ratio / factor, self.ratio * factor, self.count)


def shown(value: float) -> str:
    """A number with three digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value + 0.0:.3g}"


def _inside(number: Tails, low: float, high: float) -> float:
    """p-value against the hypothesis that a number is outside of a range."""
    return max(
        number.p_above(low) if math.isfinite(low) else 0.0,
        number.p_below(high) if math.isfinite(high) else 0.0,
    )


def _outside(number: Tails, low: float, high: float) -> float:
    """p-value against the hypothesis that a number is inside of a range."""
    return min(
        number.p_below(low) if math.isfinite(low) else 1.0,
        number.p_above(high) if math.isfinite(high) else 1.0,
    )


def _told(subject: str, interval: Interval, unit: str, units: str) -> str:
    numbers = f"{shown(interval.mean)}{' ' * bool(unit)}{unit} ({CONFIDENCE:.2%} interval "
    return f"{subject} is {numbers}{shown(interval.low)} to {shown(interval.high)}, {interval.units} {units})"
