"""Separation and detection, against counting by hand."""

import itertools

import numpy as np
import pytest

from recurrent_laplace.scoring.detection import detections, separation, separation_interval

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("digits", [8, 1, 0], ids=["no ties", "ties", "many ties"])
def test_auroc_is_the_share_of_pairs(digits):
    changed, clean = RANDOM.normal(1, 1, 30).round(digits), RANDOM.normal(0, 1, 40).round(digits)
    pairs = [np.heaviside(a - b, 0.5) for a, b in itertools.product(changed, clean)]
    assert separation(changed, clean).auroc == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize("digits", [8, 0], ids=["no ties", "ties"])
def test_aupr_and_fpr_by_counting(digits):
    changed, clean = RANDOM.normal(1, 1, 40).round(digits), RANDOM.normal(0, 1, 60).round(digits)
    found = separation(changed, clean)
    precisions = [
        np.sum(changed >= score) / (np.sum(changed >= score) + np.sum(clean >= score)) for score in changed
    ]
    assert found.aupr == pytest.approx(np.mean(precisions))
    assert found.base_rate == 0.4
    # The highest threshold that at least 95% of the changed ones reach.
    reached = max(score for score in changed if np.mean(changed >= score) >= 0.95)
    assert found.fpr95 == np.mean(clean >= reached)


def test_extremes():
    assert separation(np.arange(5) + 10, np.arange(5)) == (1.0, 1.0, 0.5, 0.0)
    assert separation(np.arange(5), np.arange(5) + 10).auroc == 0
    assert separation(np.ones(4), np.ones(12))[:3] == (0.5, 0.25, 0.25)


def test_the_interval_covers_the_truth():
    # AUROC of two unit normals a distance of d apart is Phi(d / sqrt 2): 0.76 for d = 1.
    low, high = separation_interval(RANDOM.normal(1, 1, 300), RANDOM.normal(0, 1, 300), resamples=300)
    assert low < 0.7602 < high
    assert high - low < 0.15


def test_detections_by_hand():
    raised = np.zeros((5, 10), bool)
    raised[0, 6] = raised[0, 8] = True  # two steps after it could be known
    raised[1, 2] = True  # before the change
    raised[3, 9] = True  # could be known at 5
    clean = np.zeros((4, 10), bool)
    clean[1, 3] = True
    knowable = np.array([4.0, 4.0, 7.0, 5.0, np.inf])
    found = detections(raised, clean, change=4, knowable=knowable)
    assert found == (3.0, pytest.approx(1 / 3), 0.2, 0.25)


def test_nothing_to_separate_is_refused():
    with pytest.raises(ValueError, match="0 changed"):
        separation(np.array([]), np.ones(3))
    with pytest.raises(ValueError, match="finite"):
        separation(np.array([np.nan]), np.ones(3))
