"""Claims T1 to T8: return and regret of bandit and gridworld agents."""

import numpy as np

from recurrent_laplace.evaluation.statistics import Interval, mean_interval, slope_interval
from recurrent_laplace.report.claims.groups import (
    BAYESIAN,
    CONTROL,
    CUTOFF,
    DERIVED,
    FIRST_QUARTER,
    FIRST_TENTH,
    LAST_TENTH,
    Group,
    faster,
    groups,
    joined,
    partner,
    pretrained,
)
from recurrent_laplace.report.claims.verdict import RETURN_MARGIN, Findings, Seeds, claim, mean, minus
from recurrent_laplace.report.frames import Frames, select

REGRET_TIMES = (10, 50)
"""Range of steps over which the growth of regret is measured."""
ABOUT_HALF = (0.25, 0.75)
UNIT = "reward"


@claim(
    "T1",
    "The RNN has the highest training return, the least noise in it, and the fastest updates.",
    rule="On bandit and gridworld, against every Bayesian method from scratch, in the last tenth of training "
    "the RNN's return less the method's is above 0, the standard deviation of a seed's return from update to "
    "update less the method's is below 0, and the RNN's seconds per update and seed are fewer.",
    figure=3,
)
def rnn_is_best(frames: Frames, found: Findings) -> None:
    """Sampling from a belief costs return, stability and time."""
    for task in CONTROL:
        bayesian = groups(frames, found, task, "scratch", BAYESIAN)
        for rnn in groups(frames, found, task, "scratch", ("rnn",)):
            best = rnn.training("return", LAST_TENTH)
            for group in bayesian:
                final = group.training("return", LAST_TENTH)
                found.above(f"return of {rnn.name} less that of {group.name}", minus(best, final), 0, UNIT)
                noise = minus(rnn.noise("return", LAST_TENTH), group.noise("return", LAST_TENTH))
                found.below(f"noise of {rnn.name} less that of {group.name}", noise, 0, UNIT)
                faster(found, rnn, group)


@claim(
    "T2",
    "Laplace methods have a higher training return than the VRNN.",
    rule="On bandit and gridworld, the return in the last tenth of training of stationary Laplace and of the "
    "sum of precisions, less that of the VRNN with the same covariance, is above 0.",
    figure=3,
)
def laplace_beats_vrnn(frames: Frames, found: Findings) -> None:
    """Curvature gives a higher return than a learned covariance; T3 is about summed means."""
    for task in CONTROL:
        variational = groups(frames, found, task, "scratch", ("vrnn",))
        for group in groups(frames, found, task, "scratch", ("stationary", "precision")):
            if (other := partner(group, variational)) is not None:
                _return_difference(found, group, other, LAST_TENTH, "above")


@claim(
    "T3",
    "Summing means as well learns faster at first on the bandit, and worse on the gridworld.",
    rule="Against stationary Laplace and the sum of precisions of the same covariance, the mean return of "
    "the first quarter of training is higher on the bandit, and that of the last tenth lower on "
    "the gridworld.",
    figure=3,
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
    f"t = {REGRET_TIMES[0]} to {REGRET_TIMES[1]} are below 1, and at T the regret of the diagonal VRNN less "
    "that of each other is below 0.",
    figure=12,
)
def gridworld_regret(frames: Frames, found: Findings) -> None:
    """All methods learn to return to the goal."""
    everyone = groups(frames, found, "gridworld", "scratch", ("rnn", *BAYESIAN))
    own = []
    for group in everyone:
        slopes = _slopes(group)
        own += [slope.high < 1 for slope in slopes.values()]
        means = {seed: slope.mean for seed, slope in slopes.items()}
        found.below(f"slope of the regret of {group.name}", means, 1, "in powers of t")
    if own:
        found.notes.append(f"{sum(own)} of {len(own)} repetitions have a slope below 1 with 99% confidence")
    for best in groups(frames, found, "gridworld", "scratch", ("vrnn",), ("diagonal",)):
        regret = best.test("cumulative_regret", CUTOFF)
        for group in everyone:
            if group.name != best.name:
                difference = minus(regret, group.test("cumulative_regret", CUTOFF))
                found.below(f"regret of {best.name} less that of {group.name}", difference, 0, UNIT)


@claim(
    "T5",
    "On the bandit, cumulative regret of Bayesian methods is sub-linear in about half of the repetitions.",
    rule="A repetition is one seed of a Bayesian method from scratch, sub-linear if its slope of log "
    f"cumulative regret on log t from t = {REGRET_TIMES[0]} to {REGRET_TIMES[1]} is below 1 with 99% "
    f"confidence; the seeds' share of sub-linear repetitions is between {ABOUT_HALF[0]} and {ABOUT_HALF[1]}.",
    figure=10,
)
def bandit_regret(frames: Frames, found: Findings) -> None:
    """About half of the agents learn to find the best arm."""
    repetitions = [
        {
            seed: 100 * float(slope.high < 1) if slope.units else np.nan
            for seed, slope in _slopes(group).items()
        }
        for group in groups(frames, found, "bandit", "scratch", BAYESIAN)
    ]
    subject = "share of sub-linear repetitions of Bayesian methods from scratch on bandit"
    low, high = (100 * bound for bound in ABOUT_HALF)
    found.between(subject, joined(repetitions), low, high, f"% of {sum(map(len, repetitions))} repetitions")


@claim(
    "T6",
    "No Bayesian method degrades return when applied post hoc.",
    rule="On bandit and gridworld, the test return at T of VRNN, stationary Laplace, the sum of precisions, "
    "and of summed means where there are any, less that of their RNN, is above "
    f"-{RETURN_MARGIN:.0%} of the RNN's return.",
    figure=12,
)
def posthoc_return(frames: Frames, found: Findings) -> None:
    """A post-hoc posterior does not cost return."""
    for task in CONTROL:
        posthoc = groups(frames, found, task, "posthoc", DERIVED)
        posthoc += groups(frames, Findings(), task, "posthoc", ("mean_and_precision",))
        for group in posthoc:
            if (rnn := pretrained(frames, found, group)) is not None:
                level = rnn.test("return", CUTOFF)
                difference = minus(group.test("return", CUTOFF), level)
                margin = RETURN_MARGIN * abs(mean(level))
                found.above(f"return of {group.name} less that of its RNN", difference, -margin, UNIT)


@claim(
    "T7",
    "On the bandit, fine-tuning slightly helps the training return.",
    rule="For diagonal VRNN, stationary Laplace and sum of precisions, the return in the last tenth of "
    "fine-tuning less that in the last tenth of the RNN's own training is above 0.",
    figure=9,
)
def finetuning_helps(frames: Frames, found: Findings) -> None:
    """Fine-tuning with a belief improves on the RNN."""
    for group in groups(frames, found, "bandit", "finetuned", DERIVED, ("diagonal",)):
        if (rnn := pretrained(frames, found, group)) is not None:
            difference = minus(group.training("return", LAST_TENTH), rnn.training("return", LAST_TENTH))
            found.above(f"return of {group.name} less that of its RNN", difference, 0, UNIT)


@claim(
    "T8",
    "On the gridworld, the return dips when fine-tuning begins and then recovers.",
    rule="For diagonal VRNN, stationary Laplace and sum of precisions, less the RNN's return in the tenth of "
    "its training before the snapshot, the return in the first tenth of fine-tuning is below 0 and that in "
    f"the last tenth is above -{RETURN_MARGIN:.0%} of the RNN's return.",
    figure=11,
)
def dips_and_recovers(frames: Frames, found: Findings) -> None:
    """Heads have to adapt to samples of the belief."""
    for group in groups(frames, found, "gridworld", "finetuned", DERIVED, ("diagonal",)):
        runs = [(run, before) for run in group.each_run() if (before := _before(run, found)) is not None]
        if not runs:
            continue
        for part, name in ((FIRST_TENTH, "first"), (LAST_TENTH, "last")):
            difference = joined([minus(run.training("return", part), before) for run, before in runs])
            subject = f"return in the {name} tenth of {group.name} less that of its RNN at the snapshot"
            if name == "first":
                found.below(subject, difference, 0, UNIT)
            else:
                margin = RETURN_MARGIN * abs(mean(joined([before for _, before in runs])))
                found.above(subject, difference, -margin, UNIT)


def _return_difference(
    found: Findings, group: Group, other: Group, part: tuple[float, float], side: str
) -> None:
    difference = minus(group.training("return", part), other.training("return", part))
    compare = found.above if side == "above" else found.below
    compare(f"return of {group.name} less that of {other.name}", difference, 0, UNIT)


def _slopes(group: Group) -> dict[int, Interval]:
    """Growth exponent of cumulative regret by seed; NaN with fewer than three positive regrets."""
    curves = group.curves("cumulative_regret", *REGRET_TIMES)
    slopes = {}
    for seed in group.seeds:
        times, regrets = curves.get(seed, (np.zeros(0), np.zeros(0)))
        positive = (regrets > 0) & np.isfinite(regrets)
        if positive.sum() >= 3:
            slopes[seed] = slope_interval(np.log(times[positive]), np.log(regrets[positive]))
        else:
            slopes[seed] = mean_interval(np.zeros(0))
    return slopes


def _before(run: Group, found: Findings) -> Seeds | None:
    """Return of the parent in the tenth of its training before the snapshot."""
    parent, snapshot = run.runs["parent"][0], run.runs["snapshot"][0]
    runs = select(run.frames.runs, run=parent)
    if parent is None or snapshot is None or runs.is_empty():
        found.missing.append(f"the RNN that {run.name} began from")
        return None
    return Group(f"RNN of {run.name}", run.frames, runs).training(
        "return", (max(snapshot - 0.1, 0.0), snapshot)
    )
