"""Decision rule for faithful beliefs: criteria, checks and verdicts."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from recurrent_laplace.evaluation.statistics import Interval, State, all_hold, mean_interval

Word = Literal["faithful", "not faithful", "not decided"]
"""Verdict on a posterior."""


class Criterion(NamedTuple):
    """Bounds of a measure, or with `less` of its difference from the exact or untrained baseline."""

    measure: str
    words: str
    short: str
    part: Literal["knowledge", "uncertainty", "consistency"]
    low: float = -math.inf
    high: float = math.inf
    less: Literal["exact", "untrained"] | None = None

    @property
    def needs(self) -> str:
        """Bounds as text."""
        if math.isinf(self.high):
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if math.isinf(self.low) else f"{self.low:g} to {self.high:g}"


CRITERIA = (
    Criterion("mlp_r2_beyond_t", "decoded R² beyond t", "R²", "knowledge", low=0.8),
    Criterion(
        "mlp_r2", "decoded R² less the untrained network's", "over", "knowledge", low=0.0, less="untrained"
    ),
    Criterion("exact_from_agent", "simulation of the exact belief", "to", "knowledge", low=0.8),
    Criterion("agent_from_exact", "simulation of the agent", "from", "knowledge", low=0.8),
    Criterion("rank_agreement", "rank agreement of variances", "rank", "uncertainty", low=0.5),
    *(
        Criterion(
            name, f"coverage at {level} less the exact belief's", level, "uncertainty", -0.1, 0.1, "exact"
        )
        for name, level in (("coverage_50", "50%"), ("coverage_90", "90%"))
    ),
    Criterion("drift", "drift R²", "drift", "consistency", high=0.1),
    Criterion("kl_late_over_early", "consecutive KL, late over early", "KL", "consistency", high=0.5),
)
"""Criteria, fixed before the reported runs were measured: a belief is faithful if all of them hold.

The uncertainty is that of the parameters of the task, decoded from the belief by a decoder that cannot create
a spread. Coverage is compared with that of a Gaussian with the exact mean and variance, which is the nominal
level if the exact belief is Gaussian. docs/truth.md says what was changed on 2026-11-19, and why.
"""

WORDS: dict[State, Word] = {
    "holds": "faithful",
    "fails": "not faithful",
    "open": "not decided",
}
"""Verdict if all criteria hold, one fails, or one is open."""


class Check(NamedTuple):
    """Outcome of a criterion for one posterior."""

    criterion: Criterion
    interval: Interval
    state: State


class Verdict(NamedTuple):
    """Verdict on one posterior, with its checks."""

    method: str
    posterior: str
    word: Word
    checks: list[Check]
    seeds: int

    @property
    def name(self) -> str:
        """Name of the method, and of the posterior if it was added post hoc."""
        return self.method if self.posterior == "its own" else f"{self.method} + {self.posterior}"


def judge(frame: pl.DataFrame) -> list[Verdict]:
    """Apply the criteria to each trained posterior.

    A criterion holds if the 99% confidence interval over seeds lies within its bounds, fails if it lies
    outside, and is open otherwise. A single seed is judged by its value.
    """
    verdicts = []
    trained = frame.filter(pl.col("network") == "trained")
    for (method, posterior), rows in trained.group_by("method", "posterior", maintain_order=True):
        others = {
            "exact": rows_of(frame, "exact", method, "exact belief"),
            "untrained": rows_of(frame, "untrained", method, posterior),
        }
        checks = [_check(criterion, rows.sort("agent"), others) for criterion in CRITERIA]
        word = WORDS[all_hold(check.state for check in checks)]
        verdicts.append(Verdict(str(method), str(posterior), word, checks, len(rows)))
    return verdicts


def rows_of(frame: pl.DataFrame, network: str, method: object, posterior: object) -> pl.DataFrame:
    """Measures of one posterior on one kind of network, sorted by agent."""
    return frame.filter(
        (pl.col("network") == network) & (pl.col("method") == method) & (pl.col("posterior") == posterior)
    ).sort("agent")


def _check(criterion: Criterion, rows: pl.DataFrame, others: dict[str, pl.DataFrame]) -> Check:
    values = rows[criterion.measure].to_numpy()
    if criterion.less is not None:
        values = values - others[criterion.less][criterion.measure].to_numpy()
    interval = mean_interval(values)
    low, high = (interval.mean,) * 2 if np.isnan(interval.low) else (interval.low, interval.high)
    if criterion.low <= low and high <= criterion.high:
        state = "holds"
    elif high < criterion.low or low > criterion.high or np.isnan(interval.mean):
        state = "fails"
    else:
        state = "open"
    return Check(criterion, interval, state)


def in_words(verdicts: Sequence[Verdict]) -> str:
    """Report of the criteria, and of the verdicts with the findings of each part."""
    criteria = "; ".join(f"{criterion.words} {criterion.needs}" for criterion in CRITERIA)
    lines = [f"Faithful means: {criteria}.", ""]
    for word in WORDS.values():
        by_finding: dict[str, list[str]] = {}
        for verdict in verdicts:
            if verdict.word == word:
                by_finding.setdefault(_findings(verdict), []).append(verdict.name)
        lines += [
            f"{word.capitalize()}: {'; '.join(names)} ({findings})." for findings, names in by_finding.items()
        ]
        if not by_finding and word != "not decided":
            lines.append(f"{word.capitalize()}: none.")
    return "\n".join(lines)


def _findings(verdict: Verdict) -> str:
    """Number of seeds, and the worst state of each part."""
    parts_by_state: dict[State, list[str]] = {"fails": [], "open": [], "holds": []}
    for part in ("knowledge", "uncertainty", "consistency"):
        state = all_hold(check.state for check in verdict.checks if check.criterion.part == part)
        parts_by_state[state].append(part)
    words = [
        f"{', '.join(parts)} {verb}"
        for parts, verb in zip(parts_by_state.values(), ("failed", "open", "sound"), strict=True)
        if parts
    ]
    seeds = "one seed, no interval" if verdict.seeds == 1 else f"{verdict.seeds} seeds"
    return "; ".join([seeds, *words])
