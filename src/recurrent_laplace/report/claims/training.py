"""Claims T1 to T9: return and regret of bandit and gridworld agents."""

import numpy as np

from recurrent_laplace.evaluation.statistics import slope_interval
from recurrent_laplace.report.claims.columns import CONTROL as COLUMNS
from recurrent_laplace.report.claims.comparison import Region, ShareComparison, SpreadComparison
from recurrent_laplace.report.claims.groups import (
    BAYESIAN,
    CONTROL,
    CUTOFF,
    DERIVED,
    FIRST_QUARTER,
    FIRST_TENTH,
    LAST_TENTH,
    TIME_MARGIN,
    Group,
    faster,
    groups,
    partner,
    pretrained,
)
from recurrent_laplace.report.claims.margins import (
    REGRET_SHARE,
    RETURN_SHARE,
    SLOPE_MARGIN,
    regret_margin,
    return_margin,
)
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.frames import Frames, select

SLOPE_TIMES = (50, 200)
"""Range of steps over which the growth of regret on the gridworld is measured."""
BANDIT_TIMES = (10, 50)
"""Range of steps over which the growth of regret on the bandit is measured."""
ABOUT_HALF = (0.25, 0.75)
SPREAD_FACTOR = 2.5
"""Margin of the spread between seeds: a factor that 20 seeds tell from one, where 2 is too little."""
UNIT = "reward"
RETURNS = f"margin {RETURN_SHARE:.0%} of exact Bayes"
REGRETS = f"margin {REGRET_SHARE:.0%} of the RNN's regret"


@claim(
    "T1",
    "The RNN has the highest training return, the least noise in it, and the fastest updates.",
    rule="On bandit and gridworld, against every Bayesian method from scratch: the RNN's return in the last "
    f"tenth of training is above the method's, {RETURNS}; its standard deviation over seeds is below the "
    f"method's, margin a factor of {SPREAD_FACTOR:g}; its updates take less time, median over runs of the "
    f"same seeds, margin {TIME_MARGIN:.0%}.",
    figure=3,
    columns=COLUMNS,
)
def rnn_is_best(frames: Frames, found: Findings) -> None:
    """Sampling from a belief costs return, stability and time."""
    spread = Region(high=1 / SPREAD_FACTOR, par=(1 / SPREAD_FACTOR, SPREAD_FACTOR))
    for task in CONTROL:
        bayesian = groups(frames, found, task, "scratch", BAYESIAN)
        for rnn in groups(frames, found, task, "scratch", ("rnn",)):
            best = rnn.training("return", LAST_TENTH)
            for group in bayesian:
                final = group.training("return", LAST_TENTH)
                _return_difference(found, rnn, group, LAST_TENTH, "above")
                subject = f"spread over seeds of the return of {rnn.name} as a multiple of {group.name}'s"
                if found.complete(subject, best - final):
                    found.add(SpreadComparison(subject, best, final, spread))
                faster(found, rnn, group)


@claim(
    "T2",
    "Laplace methods have a higher training return than the VRNN.",
    rule="On bandit and gridworld, the return in the last tenth of training of stationary Laplace and of the "
    f"sum of precisions, less that of the VRNN with the same covariance, is above 0, {RETURNS}; the evidence "
    "says how many are above 0 without it.",
    figure=3,
    columns=COLUMNS,
)
def laplace_beats_vrnn(frames: Frames, found: Findings) -> None:
    """Curvature gives a higher return than a learned covariance; T3 is about summed means."""
    strict = Findings(found.beta)
    for task in CONTROL:
        variational = groups(frames, found, task, "scratch", ("vrnn",))
        for group in groups(frames, found, task, "scratch", ("stationary", "precision")):
            if (other := partner(group, variational)) is not None:
                _return_difference(found, group, other, LAST_TENTH, "above")
                final = group.training("return", LAST_TENTH) - other.training("return", LAST_TENTH)
                strict.above("", final, 0, UNIT)
    if strict.comparisons:
        higher = sum(closed.state == "holds" for closed in strict.closed)
        found.notes.append(f"Without a margin, {higher} of {len(strict.comparisons)} differences are above 0")


@claim(
    "T3",
    "Summing means as well learns faster at first on the bandit, and worse on the gridworld.",
    rule="Against stationary Laplace and the sum of precisions of the same covariance, the mean return of "
    "the first quarter of training is higher on the bandit, and that of the last tenth lower on "
    f"the gridworld; {RETURNS}.",
    figure=3,
    columns=COLUMNS,
)
def summed_means(frames: Frames, found: Findings) -> None:
    """Compare early returns on the bandit, and final returns on the gridworld."""
    for task, part, side in (("bandit", FIRST_QUARTER, "above"), ("gridworld", LAST_TENTH, "below")):
        others = [groups(frames, found, task, "scratch", (method,)) for method in ("stationary", "precision")]
        for group in groups(frames, found, task, "scratch", ("mean_and_precision",)):
            for other in (partner(group, candidates) for candidates in others):
                if other is not None:
                    _return_difference(found, group, other, part, side)


@claim(
    "T4",
    "On the gridworld, cumulative regret is sub-linear for all methods, and least for the diagonal VRNN.",
    rule="For every method from scratch, the seeds' slopes of log cumulative regret on log t from "
    f"t = {SLOPE_TIMES[0]} to {SLOPE_TIMES[1]} are below 1, margin {SLOPE_MARGIN}, and at T the regret of "
    f"the diagonal VRNN less that of each other is below 0, {REGRETS}.",
    figure=12,
    columns=COLUMNS,
)
def gridworld_regret(frames: Frames, found: Findings) -> None:
    """All methods learn to return to the goal."""
    everyone = groups(frames, found, "gridworld", "scratch", ("rnn", *BAYESIAN))
    margin = regret_margin(frames, found, "gridworld")
    for group in everyone:
        subject = f"slope of the regret of {group.name}"
        found.below(subject, _slopes(group, SLOPE_TIMES), 1, "in powers of t", SLOPE_MARGIN)
    for best in groups(frames, found, "gridworld", "scratch", ("vrnn",), ("diagonal",)):
        regret = best.test("cumulative_regret", CUTOFF)
        for group in everyone:
            if group.name != best.name:
                difference = regret - group.test("cumulative_regret", CUTOFF)
                subject = f"regret of {best.name} less that of {group.name}"
                found.below(subject, difference, 0, UNIT, margin)


@claim(
    "T5",
    "On the bandit, cumulative regret of Bayesian methods is sub-linear in about half of the repetitions.",
    rule="A repetition is one seed of a Bayesian method from scratch, sub-linear if its slope of log "
    f"cumulative regret on log t from t = {BANDIT_TIMES[0]} to {BANDIT_TIMES[1]} is below 1 with 99% "
    f"confidence; the share of sub-linear repetitions is between {ABOUT_HALF[0]} and {ABOUT_HALF[1]}, with "
    "the exact binomial interval.",
    figure=10,
    columns=COLUMNS,
)
def bandit_regret(frames: Frames, found: Findings) -> None:
    """About half of the agents learn to find the best arm."""
    several = groups(frames, found, "bandit", "scratch", BAYESIAN)
    highest = [_slopes(group, BANDIT_TIMES, upper=True) for group in several]
    subject = "share of sub-linear repetitions of Bayesian methods from scratch on bandit"
    if not all(found.complete(subject, slopes) for slopes in highest):
        return
    seeds = set.intersection(*(set(slopes.values) for slopes in highest)) if highest else set()
    if seeds:
        repetitions = {
            seed: [bool(slopes.values[seed].max() < 1) for slopes in highest] for seed in sorted(seeds)
        }
        configurations = frozenset().union(*(slopes.configurations for slopes in highest))
        found.add(ShareComparison(subject, repetitions, Region(*ABOUT_HALF), configurations))


@claim(
    "T6",
    "No Bayesian method degrades return when applied post hoc.",
    rule="On bandit and gridworld, the test return at T of VRNN, stationary Laplace, the sum of precisions, "
    "and of summed means where there are any, less that of their RNN on the same tasks, is above 0 or within "
    f"the margin, {RETURNS[7:]}.",
    figure=12,
    columns=COLUMNS,
)
def posthoc_return(frames: Frames, found: Findings) -> None:
    """A post-hoc posterior does not cost return."""
    for task in CONTROL:
        posthoc = groups(frames, found, task, "posthoc", DERIVED)
        posthoc += groups(frames, Findings(found.beta), task, "posthoc", ("mean_and_precision",))
        for group in posthoc:
            if (rnn := pretrained(frames, found, group)) is not None:
                difference = group.test("return", CUTOFF) - rnn.test("return", CUTOFF)
                subject = f"return of {group.name} less that of its RNN"
                found.at_least(subject, difference, 0, UNIT, return_margin(found, rnn))


@claim(
    "T7",
    "On the bandit, fine-tuning slightly helps the training return.",
    rule="For diagonal VRNN, stationary Laplace and sum of precisions, the regret of the last tenth of "
    "fine-tuning less that of the last tenth of the RNN's own training, which has the same tasks, is below "
    f"0, margin {REGRET_SHARE:.0%} of the RNN's.",
    figure=9,
    columns=COLUMNS,
)
def finetuning_helps(frames: Frames, found: Findings) -> None:
    """Fine-tuning with a belief improves on the RNN; regret has less noise than return."""
    for group in groups(frames, found, "bandit", "finetuned", DERIVED, ("diagonal",)):
        if (rnn := pretrained(frames, found, group)) is not None:
            before = rnn.training("cumulative_regret", LAST_TENTH)
            difference = group.training("cumulative_regret", LAST_TENTH) - before
            margin = REGRET_SHARE * _or_zero(before.level())
            found.below(f"regret of {group.name} less that of its RNN", difference, 0, UNIT, margin)


@claim(
    "T8",
    "On the gridworld, the return dips when fine-tuning begins and then recovers.",
    rule="For diagonal VRNN, stationary Laplace and sum of precisions, the return in the first tenth of "
    "fine-tuning less that of the RNN in the same updates, which have the same tasks, is below 0, and that "
    "in the last tenth less the RNN's in the tenth of its training before the snapshot is above 0 or within "
    f"the margin; {RETURNS}.",
    figure=11,
    columns=COLUMNS,
)
def dips_and_recovers(frames: Frames, found: Findings) -> None:
    """Heads have to adapt to samples of the belief."""
    for group in groups(frames, found, "gridworld", "finetuned", DERIVED, ("diagonal",)):
        dips, recoveries, margin = [], [], 0.0
        for run in group.each_run():
            parent = _parent(run, found)
            if parent is None:
                continue
            snapshot = float(run.runs["snapshot"][0])
            same = (snapshot, snapshot + 0.1 * (1 - snapshot))
            dips.append(run.training("return", FIRST_TENTH) - parent.training("return", same))
            before = parent.training("return", (max(snapshot - 0.1, 0.0), snapshot))
            recoveries.append(run.training("return", LAST_TENTH) - before)
            margin = return_margin(found, parent, training=True)
        if dips:
            subject = f"return in the first tenth of {group.name} less that of its RNN in the same updates"
            found.below(subject, Sample.pooled(dips), 0, UNIT, margin)
            subject = f"return in the last tenth of {group.name} less that of its RNN at the snapshot"
            found.at_least(subject, Sample.pooled(recoveries), 0, UNIT, margin)


@claim(
    "T9",
    "Laplace methods have a return on par with the VRNN.",
    rule="On bandit and gridworld, the test return at T of stationary Laplace and of the sum of precisions "
    "from scratch, less that of the VRNN with the same covariance on the same tasks, is within "
    f"{RETURN_SHARE:.0%} of exact Bayes of 0.",
    figure=12,
    columns=COLUMNS,
)
def laplace_on_par(frames: Frames, found: Findings) -> None:
    """The text says on par where the caption of figure 3, T2, says better."""
    for task in CONTROL:
        variational = groups(frames, found, task, "scratch", ("vrnn",))
        for group in groups(frames, found, task, "scratch", ("stationary", "precision")):
            if (other := partner(group, variational)) is not None:
                difference = group.test("return", CUTOFF) - other.test("return", CUTOFF)
                margin = return_margin(found, group)
                subject = f"return of {group.name} less that of {other.name}"
                found.between(subject, difference, -margin, margin, UNIT)


def _return_difference(
    found: Findings, group: Group, other: Group, part: tuple[float, float], side: str
) -> None:
    difference = group.training("return", part) - other.training("return", part)
    compare = found.above if side == "above" else found.below
    margin = return_margin(found, group, training=True)
    compare(f"return of {group.name} less that of {other.name}", difference, 0, UNIT, margin)


def _slopes(group: Group, times: tuple[int, int], *, upper: bool = False) -> Sample:
    """Growth exponent of cumulative regret by seed, or the upper end of its 99% interval.

    NaN with fewer than three positive regrets.
    """
    curves = group.curves("cumulative_regret", *times)
    slopes = {}
    for seed in group.seeds:
        steps, regrets = curves.get(seed, (np.zeros(0), np.zeros(0)))
        positive = (regrets > 0) & np.isfinite(regrets)
        slopes[seed] = np.array([np.nan])
        if positive.sum() >= 3:
            slope = slope_interval(np.log(steps[positive]), np.log(regrets[positive]))
            slopes[seed] = np.array([slope.high if upper else slope.mean])
    return Sample(slopes, group.configurations)


def _parent(run: Group, found: Findings) -> Group | None:
    """The RNN that a fine-tuned run began from."""
    parent, snapshot = run.runs["parent"][0], run.runs["snapshot"][0]
    runs = select(run.frames.runs, run=parent)
    if parent is None or snapshot is None or runs.is_empty():
        found.missing.append(f"the RNN that {run.name} began from")
        return None
    return Group(f"RNN of {run.name}", run.frames, runs)


def _or_zero(value: float) -> float:
    return value if np.isfinite(value) else 0.0
