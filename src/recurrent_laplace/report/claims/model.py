"""Claims B1, S1, P1: weight of the KL, window, number of parameters."""

import polars as pl

from recurrent_laplace.report.claims.groups import (
    BAYESIAN,
    CUTOFF,
    LAPLACE,
    LAST_TENTH,
    Group,
    any_groups,
    faster,
    groups,
    usual,
)
from recurrent_laplace.report.claims.verdict import (
    CROSS_ENTROPY_MARGIN,
    RETURN_MARGIN,
    Findings,
    claim,
    mean,
    minus,
)
from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import NAMES

LARGEST_BETA = 1e-2
SAME = ("task", "covariance", "features")
"""Columns in which two models must agree for their costs to be comparable."""
COLLAPSED = 1e-3
"""Consecutive KL below which a posterior has collapsed, in nats per feature and step."""


@claim(
    "B1",
    f"A weight beta of the KL above {LARGEST_BETA:g} collapses the posterior.",
    rule="Mean consecutive KL in the last tenth of training, which is zero only for a belief that never "
    f"leaves its prior, is below {COLLAPSED:g} nats a feature for every beta above {LARGEST_BETA:g} and "
    "above that for every other, for every Bayesian method from scratch that has both, at least one.",
    figure=5,
)
def collapse(frames: Frames, found: Findings) -> None:
    """A belief that always equals the prior has no KL cost."""
    both = 0
    for group in any_groups(frames, "scratch", BAYESIAN):
        runs = usual(group.runs, "beta")
        betas = sorted(set(runs["beta"].drop_nulls()))
        if not betas or not betas[0] <= LARGEST_BETA < betas[-1]:
            continue
        both += 1
        for beta in betas:
            part = Group(group.name, frames, select(runs, beta=beta))
            kl = part.training("kl", LAST_TENTH, per_feature=True)
            compare = found.below if beta > LARGEST_BETA else found.above
            compare(f"consecutive KL of {group.name} with beta {beta:g}", kl, COLLAPSED, "nats a feature")
    if not both:
        found.missing.append(
            f"any Bayesian method from scratch with a beta above {LARGEST_BETA:g} and one that is not"
        )


@claim(
    "S1",
    "Window 1 with the sum of precisions is the fastest Laplace method, and on par at test.",
    rule="On each task, against every other Laplace method and window from scratch with the same covariance "
    "and number of features, seconds per update and seed are fewer, and at T the difference of test "
    f"cross-entropy is below {CROSS_ENTROPY_MARGIN} nats, or that of test return above -{RETURN_MARGIN:.0%} "
    "of the RNN's return.",
    figure=15,
)
def cheapest_on_par(frames: Frames, found: Findings) -> None:
    """The cheapest method is on par with the others."""
    windows, accumulations = 0, 0
    everyone = _by_size(frames)
    for cheapest in everyone:
        row = cheapest.runs.row(0, named=True)
        if row["method"] != "precision" or row["window"] != "1":
            continue
        for other in everyone:
            other_row = other.runs.row(0, named=True)
            if other is cheapest or any(row[name] != other_row[name] for name in SAME):
                continue
            windows += other_row["method"] == "precision"
            accumulations += other_row["method"] != "precision"
            faster(found, cheapest, other)
            _on_par(frames, found, cheapest, other)
    if not windows:
        found.missing.append("the sum of precisions from scratch with window 1 and with another window")
    if not accumulations:
        found.missing.append(
            "the sum of precisions from scratch with window 1 and another Laplace method of its size"
        )


@claim(
    "P1",
    "Laplace methods have fewer parameters than the VRNN.",
    rule="With the same task, number of features and covariance, every Laplace model has fewer parameters "
    "than every VRNN; parameters are counted, so one seed is enough.",
    figure=15,
)
def fewer_parameters(frames: Frames, found: Findings) -> None:
    """A Laplace covariance is computed, and needs no head."""
    columns = ["task", "features", "covariance", "parameters"]
    sizes = frames.runs.drop_nulls(columns)
    ours = select(sizes, method=LAPLACE).select("method", *columns).unique(maintain_order=True)
    theirs = select(sizes, method="vrnn").select(columns).unique(maintain_order=True)
    pairs = ours.join(theirs, on=columns[:3], suffix="_vrnn", how="inner").sort(pl.all())
    for row in pairs.iter_rows(named=True):
        name = f"{row['covariance']} {NAMES[row['method']]} with {row['features']} features on {row['task']}"
        found.exact(name, row["parameters"], "VRNN", row["parameters_vrnn"], "parameters")
    if pairs.is_empty():
        found.missing.append("a Laplace method and a VRNN of one task, number of features and covariance")


def _by_size(frames: Frames) -> list[Group]:
    """Laplace groups from scratch, split by window and number of features."""
    parts = []
    for group in any_groups(frames, "scratch", LAPLACE):
        for runs in group.runs.sort("window", "features").partition_by("window", "features"):
            window = runs["window"][0]
            name = group.name.replace(" from scratch", f" with window {window} from scratch")
            parts.append(Group(name, frames, usual(runs, "window", "features")))
    return parts


def _on_par(frames: Frames, found: Findings, cheapest: Group, other: Group) -> None:
    """Compare the test performance of the cheapest method with another's."""
    task = cheapest.runs["task"][0]
    metric = "cross_entropy" if task == "regression" else "return"
    difference = minus(cheapest.test(metric, CUTOFF), other.test(metric, CUTOFF))
    if task == "regression":
        subject = f"cross-entropy of {cheapest.name} less that of {other.name}"
        found.below(subject, difference, CROSS_ENTROPY_MARGIN, "nats")
        return
    for rnn in groups(frames, found, task, "scratch", ("rnn",)):
        margin = RETURN_MARGIN * abs(mean(rnn.test("return", CUTOFF)))
        found.above(f"return of {cheapest.name} less that of {other.name}", difference, -margin, "reward")
