"""Claims R1 to R7: regression."""

from recurrent_laplace.report.claims.gridworld import EARLY, FLAT, UNIT, change_of
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
from recurrent_laplace.report.claims.verdict import CROSS_ENTROPY_MARGIN, Findings, claim, minus
from recurrent_laplace.report.frames import Frames, select

STRONG = 0.5
"""Threshold for a strong degradation, in nats."""
FEW_SAMPLES, MORE_SAMPLES = 1, 5
TASK, METRIC = "regression", "cross_entropy"


def _compared(frames: Frames, found: Findings) -> list[Group]:
    """All groups that the paper compares, except for its exception."""
    return [
        *groups(frames, found, TASK, "scratch", ("rnn", *BAYESIAN)),
        *groups(frames, found, TASK, "finetuned", DERIVED),
        *groups(frames, found, TASK, "posthoc", ("vrnn", "precision")),
    ]


@claim(
    "R1",
    "Predictive cross-entropy falls with observations up to the training cut-off T, except for stationary "
    "Laplace post hoc.",
    rule="The change from t = 1 to T is below 0 for every method from scratch, every fine-tuned one, and "
    f"VRNN and sum of precisions post hoc; for stationary Laplace post hoc it is above "
    f"-{CROSS_ENTROPY_MARGIN} nats.",
    figure=1,
)
def cross_entropy_falls(frames: Frames, found: Findings) -> None:
    """Cross-entropy falls up to the training length."""
    for group in _compared(frames, found):
        change = group.change(METRIC, 1, CUTOFF)
        found.below(f"change of cross-entropy of {group.name}", change, 0, "nats")
    for group in groups(frames, found, TASK, "posthoc", ("stationary",)):
        change = group.change(METRIC, 1, CUTOFF)
        found.above(f"change of cross-entropy of {group.name}", change, -CROSS_ENTROPY_MARGIN, "nats")


@claim(
    "R2",
    "Beyond the training cut-off T, predictive cross-entropy rises slightly.",
    rule="For every method of R1 but its exception, cross-entropy at the longest test is above that at T, "
    "and still below that at t = 1.",
    figure=1,
)
def cross_entropy_rises_beyond(frames: Frames, found: Findings) -> None:
    """Cross-entropy rises beyond the training length, but stays below its initial value."""
    for group in _compared(frames, found):
        name = f"cross-entropy of {group.name} at the end"
        found.above(f"{name} less that at T", group.change(METRIC, CUTOFF, END), 0, "nats")
        found.below(f"{name} less that at t = 1", group.change(METRIC, 1, END), 0, "nats")


@claim(
    "R3",
    "Post hoc, the sum of precisions does not degrade predictive cross-entropy.",
    rule="At T, cross-entropy of the sum of precisions post hoc less that of its RNN is below "
    f"{CROSS_ENTROPY_MARGIN} nats, for each covariance.",
    figure=1,
)
def precisions_do_not_degrade(frames: Frames, found: Findings) -> None:
    """A post-hoc posterior does not degrade predictions."""
    for group in groups(frames, found, TASK, "posthoc", ("precision",)):
        if (rnn := pretrained(frames, found, group)) is not None:
            _less(found, group, rnn, "its RNN", CROSS_ENTROPY_MARGIN)


@claim(
    "R4",
    "Post hoc, stationary Laplace degrades predictive cross-entropy strongly, with a dense covariance most.",
    rule=f"At T, cross-entropy of stationary Laplace post hoc less that of its RNN is above {STRONG} nats "
    "for both covariances, and dense less diagonal is above 0.",
    figure=1,
)
def stationary_degrades(frames: Frames, found: Findings) -> None:
    """The beliefs are too wide for heads that were not trained on samples."""
    posthoc = groups(frames, found, TASK, "posthoc", ("stationary",), ("dense", "diagonal"))
    for group in posthoc:
        if (rnn := pretrained(frames, found, group)) is not None:
            difference = minus(group.test(METRIC, CUTOFF), rnn.test(METRIC, CUTOFF))
            found.above(f"cross-entropy of {group.name} less that of its RNN", difference, STRONG, "nats")
    if len(posthoc) == 2:
        dense, diagonal = posthoc
        difference = minus(dense.test(METRIC, CUTOFF), diagonal.test(METRIC, CUTOFF))
        found.above(f"cross-entropy of {dense.name} less that of diagonal", difference, 0, "nats")


@claim(
    "R5",
    "Fine-tuned, the sum of precisions is at least on par with RNN and VRNN in predictive cross-entropy.",
    rule="At T, cross-entropy of the fine-tuned sum of precisions less that of its RNN, and less that of the "
    f"fine-tuned VRNN, is below {CROSS_ENTROPY_MARGIN} nats, for each covariance.",
    figure=1,
)
def finetuned_on_par(frames: Frames, found: Findings) -> None:
    """Fine-tuning with a posterior is on par with training without."""
    variational = groups(frames, found, TASK, "finetuned", ("vrnn",))
    for group in groups(frames, found, TASK, "finetuned", ("precision",)):
        if (rnn := pretrained(frames, found, group)) is not None:
            _less(found, group, rnn, "its RNN", CROSS_ENTROPY_MARGIN)
        if (other := partner(group, variational)) is not None:
            _less(found, group, other, other.name, CROSS_ENTROPY_MARGIN)


@claim(
    "R6",
    "More samples in the bound lower the training loss, but not the test error.",
    rule=f"With {MORE_SAMPLES} samples instead of {FEW_SAMPLES}, the change of the loss in the last tenth of "
    f"training is below 0 and that of test cross-entropy at T is above -{CROSS_ENTROPY_MARGIN} nats, for "
    "every Bayesian method that has both, at least one.",
    figure=5,
)
def more_samples(frames: Frames, found: Findings) -> None:
    """A tighter bound does not improve the predictions."""
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
        loss = minus(more.training("loss", LAST_TENTH), few.training("loss", LAST_TENTH))
        found.below(f"change of the training loss of {group.name}", loss, 0, "nats")
        error = minus(more.test(METRIC, CUTOFF), few.test(METRIC, CUTOFF))
        found.above(f"change of test cross-entropy of {group.name}", error, -CROSS_ENTROPY_MARGIN, "nats")
    if not both:
        found.missing.append(
            f"any Bayesian method from scratch on {TASK} with both {FEW_SAMPLES} and {MORE_SAMPLES} samples"
        )


@claim(
    "R7",
    "At test, only summed precisions have an entropy that falls, and their consecutive KL grows.",
    rule=f"From scratch, from t = {EARLY} to T, the sum of precisions has a change of entropy below 0 and of "
    "consecutive KL above 0, and the changes of entropy of VRNN and stationary Laplace are above "
    f"-{FLAT} nats a feature.",
    figure=7,
)
def only_precisions_are_certain(frames: Frames, found: Findings) -> None:
    """Beliefs of summed precisions become certain but do not converge.

    The sum of means and precisions has the same precisions, so it is not among the others.
    """
    for group in groups(frames, found, TASK, "scratch", ("precision",)):
        found.below(*change_of(group, "entropy"), 0, UNIT)
        found.above(*change_of(group, "kl"), 0, UNIT)
    for group in groups(frames, found, TASK, "scratch", ("vrnn", "stationary")):
        found.above(*change_of(group, "entropy"), -FLAT, UNIT)


def _less(found: Findings, group: Group, other: Group, name: str, bound: float) -> None:
    difference = minus(group.test(METRIC, CUTOFF), other.test(METRIC, CUTOFF))
    found.below(f"cross-entropy of {group.name} less that of {name}", difference, bound, "nats")
