"""Scores of predictions: against integrals in SciPy, simulations and closed forms."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import sklearn.metrics

from recurrent_laplace.scoring.prediction import (
    binary_crps,
    coverage,
    distance_from_uniform,
    gaussian_crps,
    gaussian_pit,
    martingale,
    risk_coverage,
)

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("error", [-2.0, 0.0, 0.7])
@pytest.mark.parametrize("stddev", [0.3, 2.0])
def test_crps_is_the_integral_of_the_squared_distance(error, stddev):
    normal = scipy.stats.norm(0, stddev)
    below, _ = scipy.integrate.quad(lambda y: normal.cdf(y) ** 2, -40, error, epsabs=1e-12)
    above, _ = scipy.integrate.quad(lambda y: (1 - normal.cdf(y)) ** 2, error, 40, epsabs=1e-12)
    np.testing.assert_allclose(gaussian_crps(error, stddev), below + above, rtol=1e-8)


def test_crps_of_a_point_is_its_absolute_error():
    np.testing.assert_allclose(gaussian_crps(np.array([-0.5, 2.0]), np.full(2, 1e-9)), [0.5, 2.0], rtol=1e-8)


def test_calibrated_predictions_are_recognised():
    stddev = RANDOM.uniform(0.5, 2.0, 20_000)
    error = stddev * RANDOM.normal(size=stddev.shape)
    pit = gaussian_pit(error, stddev)
    # The 99.9% quantile of the distance of uniform numbers is about 1.95 / sqrt(n).
    assert distance_from_uniform(pit) < 1.95 / np.sqrt(20_000)
    np.testing.assert_allclose(coverage(error, stddev, 0.9), 0.9, atol=5 * 0.3 / np.sqrt(20_000))
    assert distance_from_uniform(gaussian_pit(error, 2 * stddev)) > 0.1
    expected = 2 * scipy.stats.norm.cdf(scipy.stats.norm.ppf(0.95) / 2) - 1
    np.testing.assert_allclose(coverage(error, stddev / 2, 0.9), expected, atol=5 * 0.5 / np.sqrt(20_000))


def test_gain_of_a_ranking():
    loss = np.arange(100.0)
    assert risk_coverage(loss, loss**3).gain == pytest.approx(1)
    assert risk_coverage(loss, -loss).gain < -0.9
    assert abs(risk_coverage(RANDOM.normal(size=20_000) ** 2, np.ones(20_000)).gain) < 0.05
    assert risk_coverage(np.ones(5), loss[:5]).gain == 0


def test_curve_by_hand():
    curve = risk_coverage(np.array([3.0, 1.0, 2.0]), np.array([0.1, 0.3, 0.2]))
    np.testing.assert_allclose(curve.fraction, [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(curve.risk, [3, 2.5, 2])
    # Random: 2 everywhere. Best: 1, 1.5, 2.
    np.testing.assert_allclose(curve.gain, (2 - 2.5) / (2 - 1.5))


def test_curve_of_wrong_answers_is_that_of_precision():
    """Of the k most certain answers, the risk is the fraction that are wrong."""
    certainty = RANDOM.uniform(size=60)
    correct = RANDOM.uniform(size=60) < certainty
    precision, _, _ = sklearn.metrics.precision_recall_curve(correct, certainty)
    curve = risk_coverage(1.0 - correct, -certainty)
    np.testing.assert_allclose(1 - curve.risk, precision[:-1][::-1], rtol=1e-12)


def test_crps_of_a_chance_is_the_brier_score():
    chance = RANDOM.uniform(size=50)
    target = (RANDOM.uniform(size=50) < chance).astype(float)
    expected = sklearn.metrics.brier_score_loss(target, chance)
    np.testing.assert_allclose(binary_crps(chance, target).mean(), expected, rtol=1e-12)
    # The integral of the squared distance of the distribution functions, which are constant from 0 to 1.
    np.testing.assert_allclose(binary_crps(0.3, 1.0), (0.7 - 0) ** 2)


def exact_means(noise, tasks=20_000, steps=8):
    """Noisy inputs of a standard normal constant, its posterior means, and the predictive variances."""
    random = np.random.default_rng(1)
    constant = random.normal(size=(tasks, 1))
    seen = constant + noise * random.normal(size=(tasks, steps))
    count = np.arange(1, steps + 1)
    mean = np.cumsum(seen, axis=1) / (count + noise**2)
    variance = np.broadcast_to(noise**2 / (count + noise**2) + noise**2, mean.shape)
    return seen, mean[..., None], variance[..., None]


def test_exact_bayes_is_a_martingale():
    seen, mean, variance = exact_means(noise=0.7)
    found = martingale(mean, variance)
    assert found.drift < 4
    # Of 20,000 tasks with 6 pairs of changes each.
    assert abs(found.reversal) < 5 / np.sqrt(20_000 * 6)
    assert found.movement == pytest.approx(1, abs=0.03)
    # The last observation as the mean moves too far, and half of each change is taken back.
    last = martingale(seen[..., None], variance)
    assert last.reversal == pytest.approx(-0.5, abs=0.02)
    assert last.movement == pytest.approx(
        7 * 2 * 0.7**2 / np.mean(variance[:, 0] - variance[:, -1]), rel=0.02
    )
    # A mean that follows the exact one slowly.
    slow = mean.copy()
    for t in range(1, mean.shape[1]):
        slow[:, t] = 0.8 * slow[:, t - 1] + 0.2 * mean[:, t]
    late = martingale(slow, variance)
    assert late.reversal > 0.1
    assert late.movement < 0.5
    # A drift that all tasks have in common.
    assert martingale(mean + 0.05 * np.arange(8)[:, None], variance).drift > 10


def test_a_belief_that_does_not_move_has_no_statistics():
    found = martingale(np.ones((4, 3, 1)), np.ones((4, 3, 1)))
    assert found[:2] == (0, 0)
    assert np.isnan(found.movement)
