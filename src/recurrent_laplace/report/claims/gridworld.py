"""Claims G1 to G4: entropy and consecutive KL of beliefs on the gridworld."""

import math
from typing import Literal

from recurrent_laplace.report.claims.groups import BAYESIAN, CUTOFF, Group, groups
from recurrent_laplace.report.claims.verdict import Findings, Seeds, claim
from recurrent_laplace.report.frames import Frames

EARLY = 10
"""Steps after which a window of ten is full; earlier changes of a belief are an artefact of the window."""
FLAT = 0.05
"""Threshold for zero or no change, in nats per feature: 5% of the standard deviation of a feature."""
TASK = "gridworld"
UNIT = "nats a feature"


def change_of(group: Group, metric: Literal["entropy", "kl"]) -> tuple[str, Seeds]:
    """Change of a metric of beliefs from `EARLY` to the cut-off, as subject and values of a comparison."""
    name = {"entropy": "entropy", "kl": "consecutive KL"}[metric]
    return f"change of {name} of {group.name}", group.change(metric, EARLY, CUTOFF, per_feature=True)


def _final_kl(group: Group) -> tuple[str, Seeds]:
    return f"consecutive KL at T of {group.name}", group.test("kl", CUTOFF, per_feature=True)


def _settles(group: Group, found: Findings) -> None:
    """Compare the changes and the final KL of a belief with those of one that converges."""
    found.below(*change_of(group, "entropy"), 0, UNIT)
    found.below(*change_of(group, "kl"), 0, UNIT)
    found.below(*_final_kl(group), FLAT, UNIT)


@claim(
    "G1",
    "From scratch, the entropy of beliefs falls and consecutive KL tends to zero.",
    rule=f"For every Bayesian method, the changes of entropy and of consecutive KL from t = {EARLY} to T are "
    f"below 0, and consecutive KL at T is below {FLAT} nats a feature.",
    figure=2,
)
def beliefs_settle(frames: Frames, found: Findings) -> None:
    """Beliefs of agents trained with a posterior converge."""
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
    """The belief of a plain RNN becomes certain but does not converge."""
    for group in groups(frames, found, TASK, "posthoc", ("precision",)):
        found.below(*change_of(group, "entropy"), 0, UNIT)
        found.above(*change_of(group, "kl"), 0, UNIT)


@claim(
    "G3",
    "Post hoc, entropy and consecutive KL of VRNN and stationary Laplace are flat.",
    rule=f"From t = {EARLY} to T, the changes of entropy and of consecutive KL are between -{FLAT} and "
    f"{FLAT} nats a feature, for both methods and each covariance.",
    figure=2,
)
def others_are_flat(frames: Frames, found: Findings) -> None:
    """The other beliefs are uninformative about the task."""
    for group in groups(frames, found, TASK, "posthoc", ("vrnn", "stationary")):
        found.between(*change_of(group, "entropy"), -FLAT, FLAT, UNIT)
        found.between(*change_of(group, "kl"), -FLAT, FLAT, UNIT)


@claim(
    "G4",
    "Fine-tuned beliefs behave like those from scratch, except for stationary Laplace.",
    rule="The comparisons of G1 hold for fine-tuned VRNN and sum of precisions; for fine-tuned stationary "
    f"Laplace, the change of entropy is above -{FLAT} nats a feature or consecutive KL at T above {FLAT}; "
    "for each covariance.",
    figure=2,
)
def finetuned_settle(frames: Frames, found: Findings) -> None:
    """A trained RNN learns a belief that converges when fine-tuned."""
    for group in groups(frames, found, TASK, "finetuned", ("vrnn", "precision")):
        _settles(group, found)
    for group in groups(frames, found, TASK, "finetuned", ("stationary",)):
        # The exception needs a margin where the others need none, since a flat entropy does not fall.
        checks = [
            found.check(*change_of(group, "entropy"), -math.inf, -FLAT, UNIT),
            found.check(*_final_kl(group), -math.inf, FLAT, UNIT),
        ]
        found.otherwise(group.name, checks)
