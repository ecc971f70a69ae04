"""Scores of predictions: against integrals in SciPy, simulations and closed forms."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from recurrent_laplace.scoring.prediction import (
    coverage,
    distance_from_uniform,
    gaussian_crps,
    gaussian_pit,
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
