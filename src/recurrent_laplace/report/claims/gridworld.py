"""Claims G1 to G5: entropy and consecutive KL of beliefs on the gridworld."""

from collections.abc import Iterator

from recurrent_laplace.report.claims.beliefs import EARLY, NAMES, UNIT, change_of
from recurrent_laplace.report.claims.columns import CONTROL
from recurrent_laplace.report.claims.comparison import Region
from recurrent_laplace.report.claims.groups import BAYESIAN, CUTOFF, END, Group, groups, partner
from recurrent_laplace.report.claims.margins import ENTROPY_MARGIN, KL_MARGIN
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.frames import Frames

FLAT = 0.05
"""Threshold for zero or no change, in nats per feature: 5% of the standard deviation of a feature."""
TASK = "gridworld"
MARGINS = f"margins {ENTROPY_MARGIN} nats a feature for entropy and {KL_MARGIN} for KL"

Arguments = tuple[str, Sample, Region, str]
"""Arguments of a comparison."""


def _settled(group: Group) -> Iterator[Arguments]:
    """Comparisons of a belief with one that converges."""
    subject, change, bound, unit = change_of(group, "entropy", CUTOFF, first=0)
    yield subject, change, Region.below(bound, ENTROPY_MARGIN), unit
    final = group.test("kl", CUTOFF, per_feature=True)
    yield f"consecutive KL at T of {group.name}", final, Region.below(FLAT, KL_MARGIN), unit


@claim(
    "G1",
    "From scratch, the entropy of beliefs falls and consecutive KL gets close to zero.",
    rule="For every Bayesian method and each covariance, the change of entropy from t = 0 to T is below 0, "
    f"and consecutive KL at T is below {FLAT} nats a feature; {MARGINS}.",
    figure=2,
    columns=CONTROL,
)
def beliefs_settle(frames: Frames, found: Findings) -> None:
    """Beliefs of agents trained with a posterior converge."""
    for group in groups(frames, found, TASK, "scratch", BAYESIAN):
        for arguments in _settled(group):
            found.add(found.compare(*arguments))


@claim(
    "G2",
    "Post hoc, the entropy of the sum of precisions falls while consecutive KL grows.",
    rule=f"From t = {EARLY} to T, and to the longest test, the change of entropy is below 0 and that of "
    f"consecutive KL above 0, for each covariance; {MARGINS}.",
    figure=2,
    columns=CONTROL,
)
def certain_but_unsettled(frames: Frames, found: Findings) -> None:
    """The belief of a plain RNN becomes certain but does not converge."""
    for group in groups(frames, found, TASK, "posthoc", ("precision",)):
        for last in (CUTOFF, END):
            found.below(*change_of(group, "entropy", last), margin=ENTROPY_MARGIN)
            found.above(*change_of(group, "kl", last), margin=KL_MARGIN)


@claim(
    "G3",
    "Post hoc, entropy and consecutive KL of VRNN and stationary Laplace are flat.",
    rule=f"From t = {EARLY} to T, the changes of entropy and of consecutive KL are between -{FLAT} and "
    f"{FLAT} nats a feature, for both methods and each covariance.",
    figure=2,
    columns=CONTROL,
)
def others_are_flat(frames: Frames, found: Findings) -> None:
    """The other beliefs are uninformative about the task."""
    for group in groups(frames, found, TASK, "posthoc", ("vrnn", "stationary")):
        for metric in ("entropy", "kl"):
            subject, change, _, unit = change_of(group, metric, CUTOFF)
            found.between(subject, change, -FLAT, FLAT, unit)


@claim(
    "G4",
    "Fine-tuned beliefs behave like those from scratch, except for stationary Laplace.",
    rule="The comparisons of G1 hold for fine-tuned VRNN and sum of precisions; for fine-tuned stationary "
    "Laplace, one of them does not; for each covariance.",
    figure=2,
    columns=CONTROL,
)
def finetuned_settle(frames: Frames, found: Findings) -> None:
    """A trained RNN learns a belief that converges when fine-tuned."""
    for group in groups(frames, found, TASK, "finetuned", ("vrnn", "precision")):
        for arguments in _settled(group):
            found.add(found.compare(*arguments))
    for group in groups(frames, found, TASK, "finetuned", ("stationary",)):
        found.otherwise(group.name, [found.compare(*arguments) for arguments in _settled(group)])


@claim(
    "G5",
    "From scratch, beliefs of summed means and precisions lie between those of the other two Laplace "
    "methods.",
    rule=f"Averaged over the tests from t = {EARLY} to T, entropy and consecutive KL of the sum of means and "
    "precisions are at least the lower and at most the higher of those of stationary Laplace and the sum of "
    f"precisions of the same covariance; {MARGINS}.",
    figure=13,
    columns=CONTROL,
)
def means_lie_between(frames: Frames, found: Findings) -> None:
    """Summed means make a belief neither the most nor the least certain."""
    others = [groups(frames, found, TASK, "scratch", (name,)) for name in ("stationary", "precision")]
    for group in groups(frames, found, TASK, "scratch", ("mean_and_precision",)):
        pair = [other for other in (partner(group, candidates) for candidates in others) if other]
        if len(pair) < 2:
            continue
        for metric, margin in (("entropy", ENTROPY_MARGIN), ("kl", KL_MARGIN)):
            own = group.average(metric, EARLY, per_feature=True)
            levels = {other.name: other.average(metric, EARLY, per_feature=True) for other in pair}
            low, high = sorted(levels, key=lambda name: levels[name].level())
            subject = f"{NAMES[metric]} of {group.name} less that of"
            found.at_least(f"{subject} {low}", own - levels[low], 0, UNIT, margin)
            found.at_most(f"{subject} {high}", own - levels[high], 0, UNIT, margin)
