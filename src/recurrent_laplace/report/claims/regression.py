"""Claims R1 to R10: regression."""

import numpy as np

from recurrent_laplace.report.claims.beliefs import EARLY, change_of
from recurrent_laplace.report.claims.comparison import Region
from recurrent_laplace.report.claims.groups import (
    BAYESIAN,
    CUTOFF,
    DERIVED,
    END,
    LAST_TENTH,
    Group,
    any_groups,
    groups,
    partner,
    pretrained,
    usual,
)
from recurrent_laplace.report.claims.margins import (
    CROSS_ENTROPY_SHARE,
    ENTROPY_MARGIN,
    KL_MARGIN,
    cross_entropy_margin,
    regression_gain,
)
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import ORIGINS

STRONG = 0.5
"""Threshold for a strong degradation, as a share of the RNN's gain."""
FEW_SAMPLES, MORE_SAMPLES = 1, 5
QUICK = 0.1
"""Threshold for a quick fine-tune, as a share of the updates of training from scratch."""
QUICK_MARGIN = 0.02
RESOLUTION = 0.01
"""Updates that are averaged to tell when an error is reached, as a share of training from scratch."""
TASK, METRIC, UNIT = "regression", "cross_entropy", "nats"
MARGIN = f"{CROSS_ENTROPY_SHARE:.0%} of the RNN's gain"


@claim(
    "R1",
    "Predictive cross-entropy falls with observations up to the training cut-off T, except for stationary "
    "Laplace post hoc.",
    rule="The change from t = 1 to T is below 0 for every method from scratch, every fine-tuned one, and "
    f"VRNN and sum of precisions post hoc, margin {MARGIN}; stationary Laplace post hoc falls by less than "
    "half of the fall of its RNN, same margin.",
    figure=1,
)
def cross_entropy_falls(frames: Frames, found: Findings) -> None:
    """Cross-entropy falls up to the training length."""
    margin = cross_entropy_margin(frames, found)
    for origin in ORIGINS:
        for group in _compared(frames, found, origin):
            change = group.change(METRIC, 1, CUTOFF)
            found.below(f"change of cross-entropy of {group.name}", change, 0, UNIT, margin)
    for group in groups(frames, found, TASK, "posthoc", ("stationary",)):
        if (rnn := pretrained(frames, found, group)) is not None:
            excess = group.change(METRIC, 1, CUTOFF) - rnn.change(METRIC, 1, CUTOFF) * 0.5
            subject = f"change of cross-entropy of {group.name} less half of its RNN's"
            found.above(subject, excess, 0, UNIT, margin)


@claim(
    "R2",
    "Beyond the training cut-off T, predictive cross-entropy rises slightly.",
    rule="From scratch, fine-tuned and post hoc, the mean over the methods of R1 but its exception of the "
    f"change from T to the longest test is above 0, margin {MARGIN}.",
    figure=1,
)
def cross_entropy_rises_beyond(frames: Frames, found: Findings) -> None:
    """Cross-entropy rises beyond the training length; methods are told as a detail."""
    margin = cross_entropy_margin(frames, found)
    for origin, name in ORIGINS.items():
        changes = {
            group.name: group.change(METRIC, CUTOFF, END) for group in _compared(frames, found, origin)
        }
        if changes:
            subject = f"change of cross-entropy beyond T, mean over methods {name},"
            found.above(subject, Sample.average(changes.values()), 0, UNIT, margin)
            each = "; ".join(f"{group} {change.level():+.3g}" for group, change in changes.items())
            found.notes.append(f"Change beyond T: {each}")


@claim(
    "R3",
    "Post hoc, the sum of precisions predicts at least as well as the baselines.",
    rule="At T, cross-entropy of the sum of precisions post hoc is at most that of its RNN, and that of the "
    f"post-hoc VRNN, plus {MARGIN}, for each covariance.",
    figure=1,
)
def precisions_do_not_degrade(frames: Frames, found: Findings) -> None:
    """A post-hoc posterior does not degrade predictions."""
    _at_least_as_good(frames, found, "posthoc")


@claim(
    "R4",
    "Stationary Laplace degrades predictive cross-entropy strongly unless used from the start, with a dense "
    "covariance most.",
    rule=f"At T, cross-entropy of stationary Laplace, fine-tuned and post hoc, is above that of its RNN by "
    f"{STRONG:.0%} of the RNN's gain, from scratch it is not, and dense is above diagonal, fine-tuned and "
    f"post hoc; margin {MARGIN}; all history where it was run.",
    figure=1,
)
def stationary_degrades(frames: Frames, found: Findings) -> None:
    """The beliefs are too wide for heads that were not trained on samples."""
    margin, strong = cross_entropy_margin(frames, found), STRONG * regression_gain(frames, found)
    for origin in ORIGINS:
        required = () if origin == "scratch" else ("dense", "diagonal")
        chosen = groups(frames, found, TASK, origin, ("stationary",), required)
        for group in chosen:
            if (rnn := pretrained(frames, found, group)) is not None:
                difference = group.test(METRIC, CUTOFF) - rnn.test(METRIC, CUTOFF)
                compare = found.at_most if origin == "scratch" else found.above
                subject = f"cross-entropy of {group.name} less that of its RNN"
                compare(subject, difference, strong, UNIT, margin)
        if required and len(chosen) == 2:
            dense, diagonal = chosen
            difference = dense.test(METRIC, CUTOFF) - diagonal.test(METRIC, CUTOFF)
            found.above(f"cross-entropy of {dense.name} less that of diagonal", difference, 0, UNIT, margin)


@claim(
    "R5",
    "Fine-tuned, the sum of precisions is at least on par with RNN and VRNN in predictive cross-entropy.",
    rule="At T, cross-entropy of the fine-tuned sum of precisions is at most that of its RNN, and that of "
    f"the fine-tuned VRNN, plus {MARGIN}, for each covariance.",
    figure=1,
)
def finetuned_on_par(frames: Frames, found: Findings) -> None:
    """Fine-tuning with a posterior is on par with training without."""
    _at_least_as_good(frames, found, "finetuned")


@claim(
    "R6",
    "More samples in the bound lower the training loss a lot, but not the test error.",
    rule=f"With {MORE_SAMPLES} samples instead of {FEW_SAMPLES}, the change of the training cross-entropy in "
    f"the last tenth of training is below 0, margin {MARGIN}, and that of the test cross-entropy at T is "
    "above 0 or within the margin, for every Bayesian method that has both, at least one. As released, the "
    "floor of the predictive standard deviation falls with more samples, which explains the first half.",
    figure=5,
)
def more_samples(frames: Frames, found: Findings) -> None:
    """A tighter bound does not improve the predictions."""
    margin = cross_entropy_margin(frames, found)
    both = 0
    for group in any_groups(frames, "scratch", BAYESIAN, task=TASK):
        runs = usual(select(group.runs, samples=(FEW_SAMPLES, MORE_SAMPLES)), "samples")
        few, more = (
            Group(group.name, frames, select(runs, samples=samples))
            for samples in (FEW_SAMPLES, MORE_SAMPLES)
        )
        if few.runs.is_empty() or more.runs.is_empty():
            continue
        both += 1
        found.groups.append(group)
        loss = more.training(METRIC, LAST_TENTH) - few.training(METRIC, LAST_TENTH)
        found.below(f"change of the training cross-entropy of {group.name}", loss, 0, UNIT, margin)
        error = more.test(METRIC, CUTOFF) - few.test(METRIC, CUTOFF)
        found.at_least(f"change of test cross-entropy of {group.name}", error, 0, UNIT, margin)
    if not both:
        found.missing.append(
            f"any Bayesian method from scratch on {TASK} with both {FEW_SAMPLES} and {MORE_SAMPLES} samples"
        )


@claim(
    "R7",
    "At test, only summed precisions have an entropy that falls, and their consecutive KL grows.",
    rule=f"From scratch, from t = {EARLY} to T, the change of entropy of the sum of precisions is below 0 "
    f"and that of VRNN and stationary Laplace is not, margin {ENTROPY_MARGIN} nats a feature; from "
    f"t = {EARLY} to the longest test, consecutive KL of the sum of precisions grows, margin "
    f"{KL_MARGIN} nats a feature. The entropy of summed precisions falls by construction.",
    figure=7,
)
def only_precisions_are_certain(frames: Frames, found: Findings) -> None:
    """Beliefs of summed precisions become certain but do not converge.

    The sum of means and precisions has the same precisions, so it is not among the others.
    """
    for group in groups(frames, found, TASK, "scratch", ("precision",)):
        found.below(*change_of(group, "entropy", CUTOFF), margin=ENTROPY_MARGIN)
        found.above(*change_of(group, "kl", END), margin=KL_MARGIN)
    for group in groups(frames, found, TASK, "scratch", ("vrnn", "stationary")):
        found.at_least(*change_of(group, "entropy", CUTOFF), margin=ENTROPY_MARGIN)


@claim(
    "R8",
    "From scratch, the sum of precisions predicts at least as well as the baselines.",
    rule="At T, cross-entropy of the sum of precisions from scratch is at most that of the RNN, and that of "
    f"the VRNN, plus {MARGIN}, for each covariance.",
    figure=1,
)
def scratch_at_least_as_good(frames: Frames, found: Findings) -> None:
    """Training with a posterior does not degrade predictions."""
    _at_least_as_good(frames, found, "scratch")


@claim(
    "R9",
    "From scratch, the sum of precisions predicts best of the Laplace methods.",
    rule="At T, cross-entropy of the sum of precisions from scratch is below that of stationary Laplace, and "
    f"that of the sum of means and precisions, margin {MARGIN}, for each covariance.",
    figure=8,
)
def best_laplace(frames: Frames, found: Findings) -> None:
    """Summed precisions are the better Laplace posterior."""
    margin = cross_entropy_margin(frames, found)
    others = [
        groups(frames, found, TASK, "scratch", (name,)) for name in ("stationary", "mean_and_precision")
    ]
    for group in groups(frames, found, TASK, "scratch", ("precision",)):
        for other in (partner(group, candidates) for candidates in others):
            if other is not None:
                difference = group.test(METRIC, CUTOFF) - other.test(METRIC, CUTOFF)
                subject = f"cross-entropy of {group.name} less that of {other.name}"
                found.below(subject, difference, 0, UNIT, margin)


@claim(
    "R10",
    "Fine-tuned, most methods quickly reach their training error from scratch.",
    rule="For at least half of VRNN, stationary Laplace and sum of precisions with each covariance, the "
    "updates until the training cross-entropy of a fine-tune is within the margin of that of the last tenth "
    f"of training from scratch ({MARGIN}) are below {QUICK:.0%} of training from scratch, margin "
    f"{QUICK_MARGIN:.0%}; never counts as all of it.",
    figure=6,
)
def finetuned_quickly(frames: Frames, found: Findings) -> None:
    """A trained RNN has learned most of what a belief needs."""
    margin = cross_entropy_margin(frames, found)
    scratch = groups(frames, found, TASK, "scratch", DERIVED)
    parts = []
    for group in groups(frames, found, TASK, "finetuned", DERIVED):
        same = [other for other in scratch if _kind(other) == _kind(group)]
        if not same:
            found.missing.append(group.name.replace("fine-tuned", "from scratch"))
            continue
        share = _updates_needed(group, same[0], margin)
        subject = f"updates of {group.name} as a share of training"
        parts.append(found.compare(subject, share, Region.below(QUICK, QUICK_MARGIN), ""))
    found.half("fine-tunes", parts)


def _compared(frames: Frames, found: Findings, origin: str) -> list[Group]:
    """All groups of an origin that the paper compares, except for its exception."""
    methods = {"scratch": ("rnn", *BAYESIAN), "finetuned": DERIVED, "posthoc": ("vrnn", "precision")}
    return groups(frames, found, TASK, origin, methods[origin])


def _at_least_as_good(frames: Frames, found: Findings, origin: str) -> None:
    """Compare the sum of precisions with the RNN, and with the VRNN of the same origin."""
    margin = cross_entropy_margin(frames, found)
    variational = groups(frames, found, TASK, origin, ("vrnn",))
    for group in groups(frames, found, TASK, origin, ("precision",)):
        others = (pretrained(frames, found, group), partner(group, variational))
        for name, other in zip(("its RNN", "VRNN"), others, strict=True):
            if other is not None:
                difference = group.test(METRIC, CUTOFF) - other.test(METRIC, CUTOFF)
                words = name if name == "its RNN" else other.name
                subject = f"cross-entropy of {group.name} less that of {words}"
                found.at_most(subject, difference, 0, UNIT, margin)


def _updates_needed(finetuned: Group, scratch: Group, margin: float) -> Sample:
    """Updates until fine-tuning is within the margin of training from scratch, as a share of the latter."""
    goal = scratch.training(METRIC, LAST_TENTH)
    total = int(scratch.runs["updates"].max())  # pyright: ignore[reportArgumentType]
    size = max(round(RESOLUTION * total), 1)
    blocks = [
        finetuned.training_between(METRIC, first, first + size)
        for first in range(0, int(finetuned.runs["updates"].max()), size)  # pyright: ignore[reportArgumentType]
    ]
    shares = {}
    for seed in sorted(set(goal.values) & set(finetuned.seeds)):
        values = np.array([block.values[seed].mean() for block in blocks])
        reached = np.flatnonzero(values <= goal.values[seed].mean() + margin)
        shares[seed] = np.array([1.0 if len(reached) == 0 else (reached[0] + 1) * size / total])
    return Sample(shares, finetuned.configurations | scratch.configurations)


def _kind(group: Group) -> tuple[str, str | None]:
    return group.runs["method"][0], group.covariance
