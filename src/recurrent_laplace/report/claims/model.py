"""Claims B1, S1, P1: weight of the KL, window, number of parameters."""

import polars as pl

from recurrent_laplace.report.claims.columns import BETA, BOTH
from recurrent_laplace.report.claims.comparison import AbstractComparison, Region, shown
from recurrent_laplace.report.claims.groups import (
    BAYESIAN,
    CUTOFF,
    LAPLACE,
    LAST_TENTH,
    TIME_MARGIN,
    Group,
    any_groups,
    faster,
    usual,
)
from recurrent_laplace.report.claims.margins import (
    CROSS_ENTROPY_SHARE,
    RETURN_SHARE,
    cross_entropy_margin,
    return_margin,
)
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.frames import Frames, select
from recurrent_laplace.report.methods import NAMES

LARGE_BETAS = (0.03, 0.1, 1.0)
"""Weights above the largest that does not collapse the posterior."""
SAME = ("arm", "task", "covariance", "features")
"""Columns in which two models must agree for their costs to be comparable."""
COLLAPSED = 1e-3
"""Consecutive KL below which a posterior has collapsed, in nats per feature and step."""
COLLAPSED_MARGIN = COLLAPSED / 2
MUCH = 0.2
"""Least share of parameters saved that counts as fewer."""
NOT_FEWER = 1 - 1e-9
"""Ratio of equal counts, which are not fewer."""


@claim(
    "B1",
    f"A weight beta of the KL above {BETA:g} collapses the posterior.",
    rule="Mean consecutive KL in the last tenth of training, which is zero only for a belief that never "
    f"leaves its prior, is below {COLLAPSED:g} nats a feature for "
    f"beta {', '.join(f'{beta:g}' for beta in LARGE_BETAS[:-1])} and {LARGE_BETAS[-1]:g}, and above that for "
    f"every other, margin {COLLAPSED_MARGIN:g}, for every Bayesian method from scratch that has large and "
    "small ones, at least one.",
    figure=5,
)
def collapse(frames: Frames, found: Findings) -> None:
    """A belief that always equals the prior has no KL cost."""
    both = 0
    for group in any_groups(frames, "scratch", BAYESIAN):
        runs = usual(group.runs, "beta")
        betas = sorted(set(runs["beta"].drop_nulls()))
        if not betas or not betas[0] <= BETA < betas[-1]:
            continue
        both += 1
        found.groups.append(group)
        found.missing += [f"{group.name} with beta {beta:g}" for beta in LARGE_BETAS if beta not in betas]
        for beta in betas:
            part = Group(group.name, frames, select(runs, beta=beta))
            features = part.runs["features"][0]
            kl = part.training("kl", LAST_TENTH) * (1 / features)
            compare = found.below if beta > BETA else found.above
            subject = f"consecutive KL of {group.name} with beta {beta:g}"
            compare(subject, kl, COLLAPSED, "nats a feature", COLLAPSED_MARGIN)
    if not both:
        found.missing.append(
            f"any Bayesian method from scratch with a beta above {BETA:g} and one that is not"
        )


@claim(
    "S1",
    "Window 1 with the sum of precisions is the fastest Laplace method, and on par with many at test.",
    rule="On each task, against every other Laplace method and window from scratch with the same covariance "
    "and number of features, updates take less time, median over runs of the same seeds, margin "
    f"{TIME_MARGIN:.0%}; at T, test cross-entropy is at most that of at least half of them plus "
    f"{CROSS_ENTROPY_SHARE:.0%} of the RNN's gain, or test return at least that of at least half of them "
    f"less {RETURN_SHARE:.0%} of exact Bayes.",
    figure=15,
    columns=(BOTH,),
)
def cheapest_on_par(frames: Frames, found: Findings) -> None:
    """The cheapest method is on par with the others."""
    windows, accumulations = 0, 0
    everyone = _by_size(frames)
    for cheapest in everyone:
        row = cheapest.runs.row(0, named=True)
        if row["method"] != "precision" or row["window"] != "1":
            continue
        parts = []
        for other in everyone:
            other_row = other.runs.row(0, named=True)
            if other is cheapest or any(row[name] != other_row[name] for name in SAME):
                continue
            windows += other_row["method"] == "precision"
            accumulations += other_row["method"] != "precision"
            found.groups += [cheapest, other]
            faster(found, cheapest, other)
            parts.append(_on_par(frames, found, cheapest, other))
        found.half(cheapest.name, parts)
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
    f"than every VRNN, by at least {MUCH:.0%}; by less is on par. Parameters are counted, so one seed is "
    "enough.",
    figure=15,
    columns=(BOTH,),
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
        counts = row["parameters"], row["parameters_vrnn"]
        ratio = counts[0] / counts[1]
        words = (
            f"{name} has {shown(counts[0])} parameters and VRNN {shown(counts[1])}, a ratio of {ratio:.2f}"
        )
        found.exact(words, ratio, Region(high=1 - MUCH, par=(1 - MUCH, NOT_FEWER)))
    if pairs.is_empty():
        found.missing.append("a Laplace method and a VRNN of one task, number of features and covariance")


def _by_size(frames: Frames) -> list[Group]:
    """Laplace groups from scratch, split by arm, window and number of features."""
    parts = []
    for group in any_groups(frames, "scratch", LAPLACE):
        axes = ("arm", "window", "features")
        for runs in group.runs.sort(axes).partition_by(axes, maintain_order=True):
            window = runs["window"][0]
            name = group.name.replace(" from scratch", f" with window {window} from scratch")
            parts.append(Group(name, frames, usual(runs, "arm", "window", "features"), False))
    return parts


def _on_par(frames: Frames, found: Findings, cheapest: Group, other: Group) -> AbstractComparison | None:
    """Comparison of the test performance of the cheapest method with another's."""
    metric = "cross_entropy" if cheapest.runs["task"][0] == "regression" else "return"
    difference = cheapest.test(metric, CUTOFF) - other.test(metric, CUTOFF)
    if metric == "cross_entropy":
        region, unit = Region(high=cross_entropy_margin(frames, found)), "nats"
    else:
        region, unit = Region(low=-return_margin(found, cheapest)), "reward"
    subject = f"{metric.replace('_', '-')} of {cheapest.name} less that of {other.name}"
    return found.compare(subject, difference, region, unit)
