"""Claims, their findings, and the verdicts that follow from them."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from recurrent_laplace.report.claims.closing import Closed, close
from recurrent_laplace.report.claims.columns import BETA, TWO, WEAKER, Column
from recurrent_laplace.report.claims.comparison import (
    AbstractComparison,
    ExactComparison,
    ExceptionComparison,
    HalfComparison,
    MeanComparison,
    Region,
)
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.frames import Frames

if TYPE_CHECKING:
    from recurrent_laplace.report.claims.gates import Gate
    from recurrent_laplace.report.claims.groups import Group

Outcome = Literal["reproduced", "not reproduced", "on par", "not decided", "agents not trained", "not judged"]
OUTCOMES: tuple[Outcome, ...] = (
    *("reproduced", "not reproduced", "on par", "not decided", "agents not trained", "not judged"),
)
"""Verdicts, in the order of the page."""

ENOUGH_SEEDS = 2
"""Minimum number of seeds for an interval."""
NAMED = 3
"""Maximum number of comparisons or missing runs of a kind that the evidence spells out."""

Values = Sample | Mapping[int, float]
"""Values by seed."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """A claim, its decision rule, and the outcome in one column."""

    id: str
    claim: str
    rule: str
    """Decision rule, fixed before any data is seen."""
    verdict: Outcome
    evidence: str
    figure: int
    """Number of the figure that shows the evidence."""
    column: str = "both"
    """`released`, `written`, `both`, or `written, beta 0.0001`."""
    open: tuple[str, ...] = ()
    """Configurations in comparisons that are open, for which more seeds may decide; independent of seeds."""
    gate: str | None = None
    """Name of the gate that failed."""
    summary: str = ""
    """The decisive part of the evidence, in one sentence."""


class Findings:
    """Comparisons of a claim, and the runs or values that were missing."""

    def __init__(self, beta: float = BETA):
        self.beta = beta
        self.comparisons: list[AbstractComparison] = []
        self.missing: list[str] = []
        self.lacking: dict[str, list[str]] = {}
        self.notes: list[str] = []
        self.groups: list[Group] = []
        """Groups of runs that were used, of which some have a gate to pass."""
        self._closed: list[Closed] | None = None

    def above(self, subject: str, values: Values, bound: float, unit: str, margin: float = 0.0) -> None:
        """Claim that the mean is above `bound` by more than the margin; it may be on par."""
        self.add(self.compare(subject, values, Region.above(bound, margin), unit))

    def below(self, subject: str, values: Values, bound: float, unit: str, margin: float = 0.0) -> None:
        """Claim that the mean is below `bound` by more than the margin; it may be on par."""
        self.add(self.compare(subject, values, Region.below(bound, margin), unit))

    def at_least(self, subject: str, values: Values, bound: float, unit: str, margin: float = 0.0) -> None:
        """Claim that the mean is above `bound` or on par with it."""
        self.add(self.compare(subject, values, Region(low=bound - margin), unit))

    def at_most(self, subject: str, values: Values, bound: float, unit: str, margin: float = 0.0) -> None:
        """Claim that the mean is below `bound` or on par with it."""
        self.add(self.compare(subject, values, Region(high=bound + margin), unit))

    def between(self, subject: str, values: Values, low: float, high: float, unit: str) -> None:
        """Claim that the mean is between `low` and `high`."""
        self.add(self.compare(subject, values, Region(low, high), unit))

    def compare(self, subject: str, values: Values, region: Region, unit: str) -> MeanComparison | None:
        """Make a comparison; None, and recorded as missing, if seeds or values are missing."""
        sample = Sample.of(values)
        if not self.complete(subject, sample):
            return None
        return MeanComparison(subject, sample, region, unit)

    def complete(self, subject: str, sample: Sample) -> bool:
        """Whether there are enough seeds, all with finite values; if not, it is recorded."""
        seeds = sample.seeds
        if len(seeds) < ENOUGH_SEEDS:
            available = f"only seed {seeds[0]}" if seeds else "no seed"
            self._record_missing(subject, f"{available}, where an interval needs {ENOUGH_SEEDS},")
        elif sample.lost:
            # Leaving them out would bias the verdict towards successful seeds.
            word = "seed" if len(sample.lost) == 1 else "seeds"
            self._record_missing(subject, f"no finite value for {word} {', '.join(map(str, sample.lost))}")
        else:
            return True
        return False

    def add(self, comparison: AbstractComparison | None) -> None:
        """Add a comparison to the claim."""
        if comparison is not None:
            self.comparisons.append(comparison)

    def exact(self, words: str, value: float, region: Region) -> None:
        """Claim that a number is in a region; it is known, or measured without an interval."""
        self.add(ExactComparison(words, value, region))

    def half(self, subject: str, parts: Sequence[AbstractComparison | None]) -> None:
        """Claim that at least half of these comparisons hold."""
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts):
            self.add(HalfComparison(subject, known))

    def otherwise(self, subject: str, parts: Sequence[AbstractComparison | None]) -> None:
        """Claim that not all of these comparisons hold: `subject` is the exception of the claim."""
        known = [part for part in parts if part is not None]
        if known and len(known) == len(parts):
            self.add(ExceptionComparison(subject, known))

    @property
    def closed(self) -> list[Closed]:
        """States of the comparisons, made once."""
        if self._closed is None or len(self._closed) != len(self.comparisons):
            self._closed = close(self.comparisons)
        return self._closed

    @property
    def verdict(self) -> Outcome:
        """Verdict from the comparisons, without gates; undecided if something is missing."""
        states = {closed.state for closed in self.closed}
        if self.missing or self.lacking or not states:
            return "not decided"
        if "fails" in states:
            return "not reproduced"
        if "open" in states:
            return "not decided"
        return "on par" if "on par" in states else "reproduced"

    @property
    def open(self) -> tuple[str, ...]:
        """Configurations in open comparisons of a claim that is not decided."""
        if self.verdict != "not decided" or "fails" in {closed.state for closed in self.closed}:
            return ()
        pairs = zip(self.comparisons, self.closed, strict=True)
        unclear = [comparison.configurations for comparison, closed in pairs if closed.state == "open"]
        return tuple(sorted(frozenset().union(*unclear)))

    def sentences(self, named: int = NAMED) -> list[str]:
        """Decisive comparisons in words, the most important first, with at most `named` of a kind."""
        parts = []
        absent = [*_first(dict.fromkeys(self.missing), named), *self._reasons()]
        if absent:
            parts.append(f"Missing: {'; '.join(absent)}")
        elif not self.comparisons:
            parts.append("There is nothing to compare")
        count = len(self.comparisons)
        words = {"fails": "fail", "open": "are open", "on par": "are on par"}
        shown = False
        for state, verb in words.items():
            chosen = [closed for closed in self.closed if closed.state == state]
            if chosen:
                head = f"{len(chosen)} of {count} comparisons {verb}"
                is_detail = shown or (absent and state != "fails")
                parts.append(head if is_detail else f"{head}: {self._spelled(chosen, named)}")
                shown = True
        if count and not shown:
            held = "The one comparison holds" if count == 1 else f"All {count} comparisons hold; the closest"
            closest = [closed.reading.words for closed in self._closest()[:named]]
            parts.append(f"{held}: {'; '.join(closest)}")
        return [f"{part}." for part in [*parts, *self.notes]]

    @property
    def evidence(self) -> str:
        """All sentences of the evidence."""
        return " ".join(self.sentences())

    def _spelled(self, chosen: list[Closed], named: int) -> str:
        """The clearest comparisons in words."""
        chosen = sorted(chosen, key=lambda closed: closed.reading.fails)
        return "; ".join(_first((closed.reading.words for closed in chosen), named))

    def _record_missing(self, subject: str, reason: str) -> None:
        self.lacking.setdefault(reason, []).append(subject)

    def _reasons(self) -> list[str]:
        """Reasons why comparisons could not be made; a reason that applies to all is given once."""
        tried = sum(not comparison.is_exact for comparison in self.comparisons)
        tried += sum(map(len, self.lacking.values()))
        return [
            f"{reason} in all {tried} comparisons of seeds"
            if len(subjects) == tried > NAMED
            else f"{reason} for {'; '.join(subjects)}"
            for reason, subjects in self.lacking.items()
        ]

    def _closest(self) -> list[Closed]:
        """The closest comparison with an interval, and the closest without."""
        pairs = list(zip(self.comparisons, self.closed, strict=True))
        kinds = (
            [closed for comparison, closed in pairs if comparison.is_exact == exact]
            for exact in (False, True)
        )
        return [max(kind, key=lambda closed: closed.reading.holds) for kind in kinds if kind]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement of the paper with its decision rule."""

    id: str
    text: str
    rule: str
    figure: int
    decide: Callable[[Frames, Findings], None]
    """Function that makes the comparisons."""
    columns: tuple[Column, ...] = TWO
    """Columns in which it is judged."""

    def judge(self, frames: Frames, column: Column, gates: "Sequence[Gate]" = ()) -> Verdict | None:
        """Judge the claim in a column; None for the third column where the claim has no such runs.

        `gates` are those of the column; the claim must pass the ones of the runs that it uses.
        """
        chosen = column.restrict(frames)
        found = Findings(column.beta_of(chosen))
        self.decide(chosen, found)
        if column == WEAKER and not any(group.was_trained_with_belief for group in found.groups):
            return None
        names = {name for group in found.groups for name in group.gates}
        used = [gate for gate in gates if gate.name in names]
        found.missing += [gate.words for gate in used if gate.passed is None]
        failed = [gate for gate in used if gate.passed is False]
        verdict, configurations = found.verdict, found.open
        sentences, summary = found.sentences(), found.sentences(1)[0]
        if failed:
            verdict, configurations = "agents not trained", ()
            sentences = [f"Gate: {'; '.join(_first((gate.words for gate in failed), NAMED))}.", *sentences]
            summary = f"Gate: {'; '.join(_first((gate.words for gate in failed), 1))}."
        if not frames.judged:
            verdict, configurations = "not judged", ()
            summary = "Runs of preset smoke learn nothing."
            sentences = [summary, *sentences]
        return Verdict(
            self.id,
            self.text,
            self.rule,
            verdict,
            " ".join(sentences),
            self.figure,
            column.name,
            configurations,
            failed[0].name if failed else None,
            summary,
        )


def claim(
    id: str, text: str, *, rule: str, figure: int, columns: tuple[Column, ...] = TWO
) -> Callable[..., Claim]:
    """Decorator that turns the function with the comparisons into a claim."""
    return lambda decide: Claim(id, text, rule, figure, decide, columns)


def _first(words: Iterable[str], count: int) -> list[str]:
    """The first of some texts, and how many more there are."""
    words = list(words)
    more = [f"and {len(words) - count} more"] if len(words) > count else []
    return [*words[:count], *more]
