"""Looks at 5, 10 and 20 seeds: what closes a comparison, and what it leaves open."""

import numpy as np
import pytest

from recurrent_laplace.evaluation.statistics import estimate
from recurrent_laplace.report.claims.closing import close
from recurrent_laplace.report.claims.comparison import (
    ExactComparison,
    HalfComparison,
    MeanComparison,
    Region,
    ShareComparison,
    SpreadComparison,
)
from recurrent_laplace.report.claims.looks import CONFIDENCE, LEVEL, LOOKS
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.claims.verdict import Findings

CLOSE = (0.9, 1.1, 1.0, 0.8, 1.2)
"""Values of mean 1 and standard error 0.07: far above 0 at five seeds."""


def sample(*values, configurations=()):
    return (
        Sample.of(dict(enumerate(values)))
        if not configurations
        else Sample({seed: np.array([value]) for seed, value in enumerate(values)}, frozenset(configurations))
    )


def mean(values, region):
    return MeanComparison("x", sample(*values), region, "")


def state(*comparisons):
    return [closed.state for closed in close(comparisons)]


def test_all_looks_together_have_the_usual_confidence():
    assert len(LOOKS) * (1 - CONFIDENCE) == pytest.approx(0.01)
    assert pytest.approx(1 - CONFIDENCE) == 2 * LEVEL


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        (Region.above(0.0, 0.2), "holds"),
        (Region.below(0.0, 0.2), "fails"),
        (Region.above(1.0, 0.6), "on par"),
        (Region.below(1.0, 0.6), "on par"),
        (Region.above(1.0, 0.1), "open"),
        (Region(low=0.2), "holds"),
        (Region(high=0.2), "fails"),
        (Region(0.2, 2.0), "holds"),
        (Region(2.0, 3.0), "fails"),
        (Region(0.99, 3.0), "open"),
    ],
)
def test_outcomes_of_a_comparison(region, expected):
    assert state(mean(CLOSE, region)) == [expected]


def test_the_interval_of_a_look_decides():
    low = estimate(np.array(CLOSE)[:, None]).interval(CONFIDENCE).low
    assert state(mean(CLOSE, Region(low=low - 1e-6))) == ["holds"]
    assert state(mean(CLOSE, Region(low=low + 1e-6))) == ["open"]


def test_more_seeds_do_not_open_a_comparison_again():
    for more in ((-50.0,) * 2, (-50.0,) * 5, (-50.0,) * 15):
        assert state(mean(CLOSE + more, Region.above(0.0, 0.2))) == ["holds"]


def test_seeds_between_looks_wait_for_the_next():
    unclear = (0.5, -0.1, 1.0, 0.2, 0.4)
    region = Region.above(0.0, 0.05)
    assert state(mean(unclear, region)) == ["open"]
    assert state(mean((*unclear, 1.0, 1.0, 1.0, 1.0), region)) == ["open"]
    (closed,) = close([mean((*unclear, 0.9, 1.0, 1.1, 1.0, 1.2), region)])
    assert closed.state == "holds"
    assert "10 seeds" in closed.reading.words


def test_fewer_seeds_than_the_first_look_are_judged_by_what_there_is():
    assert state(mean((1.0, 1.0001, 1.0002), Region.above(0.0, 0.2))) == ["holds"]
    assert state(mean((1.0, 1.5, 0.5), Region.above(0.0, 0.2))) == ["open"]


def test_failures_are_corrected_for_the_number_of_comparisons():
    low, high = estimate(np.array(CLOSE)[:, None]).interval(CONFIDENCE)[1:3]
    barely = mean(CLOSE, Region(high=low - 1e-3))
    fine = [mean(CLOSE, Region(low=0.0)) for _ in range(5)]
    assert state(barely) == ["fails"]
    assert state(barely, *fine) == ["open", *["holds"] * 5]
    # A comparison that holds needs no correction.
    assert state(mean(CLOSE, Region(high=high + 1e-3)), *fine) == ["holds"] * 6


def test_tasks_are_units_too():
    tasks = np.linspace(-3, 3, 9)
    values = {seed: tasks + 1e-3 * seed for seed in range(5)}
    region = Region.above(0.0, 0.1)
    assert state(MeanComparison("x", Sample(values), region, "")) == ["open"]
    paired = {seed: np.full(9, 0.5) + 1e-3 * seed for seed in range(5)}
    assert state(MeanComparison("x", Sample(paired), region, "")) == ["holds"]


def test_differences_are_taken_task_by_task():
    first = Sample({0: np.array([3.0, 5.0, 7.0]), 1: np.array([1.0, 1.0, 1.0])}, frozenset("a"))
    second = Sample({0: np.array([1.0, 1.0]), 2: np.array([0.0])}, frozenset("b"))
    difference = first - second
    assert difference.seeds == [0]
    assert difference.values[0].tolist() == [2.0, 4.0]
    assert difference.configurations == {"a", "b"}
    assert (first * 2.0).values[1].tolist() == [2.0, 2.0, 2.0]


def test_a_share_has_an_exact_binomial_interval():
    repetitions = {seed: [True, False] for seed in range(20)}
    comparison = ShareComparison("x", repetitions, Region(0.25, 0.75), frozenset())
    assert "10 repetitions" in comparison.read(5).words
    assert state(comparison) == ["holds"]
    always = {seed: [True, True] for seed in range(20)}
    assert state(ShareComparison("x", always, Region(0.25, 0.75), frozenset())) == ["fails"]
    never = {seed: [False, False] for seed in range(20)}
    assert state(ShareComparison("x", never, Region(0.25, 0.75), frozenset())) == ["fails"]


def test_a_spread_has_the_f_distribution():
    small = Sample.of({seed: 0.01 * seed for seed in range(20)})
    large = Sample.of({seed: 1.0 * (7 * seed % 20) for seed in range(20)})
    region = Region(high=0.4, par=(0.4, 2.5))
    assert state(SpreadComparison("x", small, large, region)) == ["holds"]
    assert state(SpreadComparison("x", large, small, region)) == ["fails"]
    assert state(SpreadComparison("x", large, large, region)) == ["on par"]


def test_at_least_half():
    holds, fails = mean(CLOSE, Region(low=0.0)), mean(CLOSE, Region(high=0.0))
    unclear = mean(CLOSE, Region(high=1.0))
    assert state(HalfComparison("x", [holds, fails])) == ["holds"]
    assert state(HalfComparison("x", [holds, fails, fails])) == ["fails"]
    assert state(HalfComparison("x", [holds, fails, unclear])) == ["open"]
    exact = [ExactComparison("x", value, Region(high=1.0)) for value in (0.5, 2.0, 2.0)]
    assert state(HalfComparison("x", exact)) == ["fails"]


def test_configurations_of_open_comparisons_are_named():
    found = Findings()
    found.above("x", sample(*CLOSE, configurations=("a", "b")), 0.0, "")
    found.above("y", sample(*CLOSE, configurations=("b", "c")), 1.0, "")
    assert found.verdict == "not decided"
    assert found.open == ("b", "c")
    found.below("z", sample(*CLOSE, configurations=("d",)), 0.0, "")
    assert found.verdict == "not reproduced"
    assert found.open == ()
