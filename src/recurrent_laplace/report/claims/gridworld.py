"""G1 to G4: what beliefs of gridworld agents do as a task goes on."""

import math

from recurrent_laplace.report.claims.groups import BAYESIAN, CUTOFF, Group, groups
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.frames import Frames

EARLY = 10
"""Steps after which a window of ten is full: what a belief does before is not learned from the task."""
FLAT = 0.05
"""In nats a feature, what counts as no change or as zero: 5% of the standard deviation of a feature."""
TASK = "gridworld"
UNIT = "nats a feature"


def _settles(group: Group, found: Findings) -> None:
    """A belief that converges."""
    entropy = group.change("entropy", EARLY, CUTOFF, per_feature=True)
    found.below(f"change of entropy of {group.name}", entropy, 0, UNIT)
    kl = group.change("kl", EARLY, CUTOFF, per_feature=True)
    found.below(f"change of consecutive KL of {group.name}", kl, 0, UNIT)
    found.below(
        f"consecutive KL at T of {group.name}", group.test("kl", CUTOFF, per_feature=True), FLAT, UNIT
    )


@claim(
    "G1",
    "From scratch, the entropy of beliefs falls and consecutive KL tends to zero.",
    rule=f"For every Bayesian method, the changes of entropy and of consecutive KL from t = {EARLY} to T are "
    f"below 0, and consecutive KL at T is below {FLAT} nats a feature.",
    figure=2,
)
def beliefs_settle(frames: Frames, found: Findings) -> None:
    """Beliefs learned as such converge."""
    for group in groups(frames, found, TASK, "scratch", BAYESIAN):
        _settles(group, found)


@claim(
    "G2",
    "Post hoc, the entropy of the sum of precisions falls while consecutive KL grows.",
    rule=f"From t = {EARLY} to T, the change of entropy is below 0 and that of consecutive KL above 0, "
    "for each covariance.",
    figure=2,
)
def certain_but_unsettled(frames: Frames, found: Findings) -> None:
    """A plain RNN becomes certain and does not settle."""
    for group in groups(frames, found, TASK, "posthoc", ("precision",)):
        entropy = group.change("entropy", EARLY, CUTOFF, per_feature=True)
        found.below(f"change of entropy of {group.name}", entropy, 0, UNIT)
        kl = group.change("kl", EARLY, CUTOFF, per_feature=True)
        found.above(f"change of consecutive KL of {group.name}", kl, 0, UNIT)


@claim(
    "G3",
    "Post hoc, entropy and consecutive KL of VRNN and stationary Laplace are flat.",
    rule=f"From t = {EARLY} to T, the changes of entropy and of consecutive KL are between -{FLAT} and "
    f"{FLAT} nats a feature, for both methods and each covariance.",
    figure=2,
)
def others_are_flat(frames: Frames, found: Findings) -> None:
    """These beliefs tell nothing about the task."""
    for group in groups(frames, found, TASK, "posthoc", ("vrnn", "stationary")):
        for metric, name in (("entropy", "entropy"), ("kl", "consecutive KL")):
            change = group.change(metric, EARLY, CUTOFF, per_feature=True)
            found.between(f"change of {name} of {group.name}", change, -FLAT, FLAT, UNIT)


@claim(
    "G4",
    "Fine-tuned beliefs behave like those from scratch, except for stationary Laplace.",
    rule="The comparisons of G1 hold for fine-tuned VRNN and sum of precisions; for fine-tuned stationary "
    f"Laplace, the change of entropy is above -{FLAT} nats a feature or consecutive KL at T above {FLAT}; "
    "for each covariance.",
    figure=2,
)
def finetuned_settle(frames: Frames, found: Findings) -> None:
    """A trained RNN can learn to have a belief that converges."""
    for group in groups(frames, found, TASK, "finetuned", ("vrnn", "precision")):
        _settles(group, found)
    for group in groups(frames, found, TASK, "finetuned", ("stationary",)):
        # A flat entropy is no fall, so that the exception needs a margin where the others need none.
        entropy = group.change("entropy", EARLY, CUTOFF, per_feature=True)
        kl = group.test("kl", CUTOFF, per_feature=True)
        checks = [
            found.check(f"change of entropy of {group.name}", entropy, -math.inf, -FLAT, UNIT),
            found.check(f"consecutive KL at T of {group.name}", kl, -math.inf, FLAT, UNIT),
        ]
        found.otherwise(group.name, checks)


CLAIMS = (
    beliefs_settle,
    certain_but_unsettled,
    others_are_flat,
    finetuned_settle,
)
