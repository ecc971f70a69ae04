"""What beliefs are judged by: against other formulas, and where the best scales are known."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.tree_util import Partial
from support.models import small_config

import recurrent_laplace as rl
from recurrent_laplace.evaluation.calibration import (
    LEVELS,
    LOSSES,
    BeliefScores,
    CalibrationConfig,
    DecodedParameters,
    PredictedPoints,
    Validation,
    coverage_distance,
    fit_decoder,
    judge_posterior,
    make_validation,
    mean_nll,
)
from recurrent_laplace.evaluation.regression import PREDICTIVE_SAMPLES
from recurrent_laplace.scoring.calibration import Case, calibrate_together

D, H, P, N, T = 2, 4, 2, 300, 3
KEYS = jax.random.split(jax.random.key(0), 6)
MEMORY = rl.Memory(rl.GRU(D, H, dtype=jnp.float64, key=KEYS[0]))
POSTERIOR = rl.LaplacePosterior(MEMORY, covariance="diagonal")
TEMPERATURE = 9.0
"""What made the data: a belief with another temperature is over- or underconfident by a known factor."""
INPUTS = jax.random.normal(KEYS[1], (2, N, T, D), jnp.float64)
LAPLACE = rl.LaplaceConfig()
WEIGHT, BIAS = jax.random.normal(KEYS[2], (H, P), jnp.float64), jnp.arange(P, dtype=jnp.float64)


def decoded(posterior, inputs, key) -> Validation:
    """Tasks of one step whose parameters are draws from the belief after it."""
    inputs = inputs[:, :1]
    parameters = jax.vmap(posterior.unroll)(inputs)[:, 0].sample(key) @ WEIGHT + BIAS
    return Validation(inputs, DecodedParameters(WEIGHT, BIAS, parameters))


def distance(table: dict[str, np.ndarray]) -> float:
    """How far coverages are from their levels."""
    return max(abs(table[f"coverage_{level * 100:.0f}"].mean() - level) for level in LEVELS)


@pytest.mark.parametrize("covariance", ["diagonal", "dense"])
def test_decoded_parameters_against_scipy(covariance):
    posterior = rl.LaplacePosterior(MEMORY, covariance=covariance)
    inputs = INPUTS[0, :5]
    beliefs = jax.vmap(posterior.unroll)(inputs)
    parameters = jax.random.normal(KEYS[3], (5, P), jnp.float64)
    judged = DecodedParameters(WEIGHT, BIAS, parameters)(beliefs)
    weight, covariances = np.asarray(WEIGHT), np.asarray(beliefs.covariance())
    if covariance == "diagonal":
        covariances = covariances[..., None] * np.eye(H)
    stddev = np.sqrt(np.einsum("fp,ntfg,gp->ntp", weight, covariances, weight))
    claimed = scipy.stats.norm(np.asarray(beliefs.mean) @ weight + np.asarray(BIAS), stddev)
    truth = np.asarray(parameters)[:, None]
    np.testing.assert_allclose(judged.nll, -claimed.logpdf(truth).mean(axis=-1), rtol=1e-10)
    np.testing.assert_allclose(judged.mass, np.abs(2 * claimed.cdf(truth) - 1), rtol=1e-8)


def a_regressor() -> rl.Regressor:
    small = small_config(4, 3, cell="gru", layer_norm=False)
    return rl.Regressor.init(small, LAPLACE, key=KEYS[4])


def test_predicted_points_against_scipy():
    model = a_regressor()
    inputs = jax.random.normal(KEYS[3], (5, T, model.posterior.memory.input_size))
    beliefs = jax.vmap(model.posterior.unroll)(inputs)
    x, y = jax.random.normal(KEYS[5], (2, 5, T, 1))
    judged = PredictedPoints(model, x, y)(beliefs)
    z = beliefs.sample(jax.random.key(0), (PREDICTIVE_SAMPLES,))
    means = np.asarray(model.prediction_head(z, model.input_embedder(x)))
    claimed = scipy.stats.norm(
        means.mean(axis=0), np.sqrt(float(model.variance()[0]) + means.var(axis=0, ddof=1))
    )
    truth = np.asarray(y)
    np.testing.assert_allclose(judged.nll, -claimed.logpdf(truth)[..., 0], rtol=1e-10)
    np.testing.assert_allclose(judged.mass, np.abs(2 * claimed.cdf(truth) - 1), rtol=1e-8)
    # The variance is the one that the model itself predicts with.
    np.testing.assert_array_equal(model.predict(z, x).variance[0, 0], model.variance())


@pytest.mark.parametrize("by", ["likelihood", "coverage"])
def test_a_known_temperature_is_found_and_held_out_coverage_gets_right(by):
    true = dataclasses.replace(POSTERIOR, temperature=TEMPERATURE)
    fitting, judging = (decoded(true, INPUTS[i], KEYS[3 + i]) for i in range(2))
    found = rl.calibrate(POSTERIOR, fitting.inputs, Partial(LOSSES[by], fitting.judge), fit=["temperature"])
    # A variance from 600 numbers is known to about 6%: three of these.
    assert found.posterior.temperature == pytest.approx(TEMPERATURE, rel=0.18)
    before, after = (judge_posterior(one, judging) for one in (POSTERIOR, found.posterior))
    assert distance(before) > 0.3
    assert distance(after) < 0.08
    assert after["nll"].mean() < before["nll"].mean() - 1


@pytest.mark.slow
def test_a_regressor_overconfident_by_a_known_temperature():
    # Less noise than draws differ by, or there would be nothing to find.
    model = eqx.tree_at(lambda m: m.raw_stddev, a_regressor(), jnp.full(1, -1.5))
    true = dataclasses.replace(model.posterior, temperature=100.0)

    def made(inputs, key) -> Validation:
        keys = jax.random.split(key, 3)
        z = jax.vmap(true.unroll)(inputs).sample(keys[0])
        x = jax.random.normal(keys[1], (N, T, 1))
        mean = model.prediction_head(z, model.input_embedder(x))
        y = mean + jnp.sqrt(model.variance()) * jax.random.normal(keys[2], mean.shape)
        return Validation(inputs, PredictedPoints(model, x, y))

    shape = (2, N, T, model.posterior.memory.input_size)
    inputs = jax.random.normal(KEYS[1], shape)
    fitting, judging = (made(inputs[i], KEYS[3 + i]) for i in range(2))
    loss = Partial(mean_nll, fitting.judge)
    found = rl.calibrate(model.posterior, fitting.inputs, loss, fit=["temperature"])
    # 900 points whose distribution is not quite Gaussian, and 30 draws that stand for each belief.
    assert found.posterior.temperature == pytest.approx(100, rel=0.3)
    before, after = (judge_posterior(one, judging) for one in (model.posterior, found.posterior))
    assert after["nll"].mean() < before["nll"].mean()
    assert distance(after) < distance(before) / 3


def test_seeds_together_get_one_temperature_between_their_own():
    validations = [
        decoded(dataclasses.replace(POSTERIOR, temperature=t), INPUTS[i], KEYS[3 + i])
        for i, t in enumerate((2.0, 8.0))
    ]
    cases = [Case(POSTERIOR, one.inputs, Partial(mean_nll, one.judge)) for one in validations]
    found = calibrate_together(cases, fit=["temperature"])
    # The best variance for both is the mean of the two.
    assert found.posterior.temperature == pytest.approx(5.0, rel=0.18)


def test_the_distance_of_coverages_by_hand():
    half_right = BeliefScores(jnp.zeros((1, 4)), jnp.array([0.1, 0.45, 0.6, 0.999]).reshape(1, 4, 1))
    rates = np.array([0.5, 0.75, 0.75, 0.75, 0.75])
    expected = np.mean((rates - np.array(LEVELS)) ** 2)
    assert float(coverage_distance(lambda _: half_right, None)) == pytest.approx(expected)


def test_the_decoder_finds_a_linear_map():
    means = np.random.default_rng(0).normal(size=(20, 4, H))
    means = np.broadcast_to(means[:, :1], means.shape)
    parameters = means[:, 0] @ np.asarray(WEIGHT) + np.asarray(BIAS)
    found = fit_decoder(means, parameters)
    np.testing.assert_allclose(found.weight, WEIGHT, rtol=1e-3)
    np.testing.assert_allclose(found.bias, BIAS, atol=1e-3)


def test_tasks_to_fit_on_and_to_judge_on_are_not_the_same():
    model = a_regressor()
    task = rl.Regression()
    learning = rl.LearningConfig(steps=T)
    fitting, judging = make_validation(model, task, learning, tasks=4)
    assert fitting.inputs.shape == judging.inputs.shape == (4, T, model.posterior.memory.input_size)
    seen = np.concatenate([np.asarray(one.judge.y).reshape(4, -1) for one in (fitting, judging)])
    assert len(np.unique(seen)) == 8 * T
    # More tasks begin with the same ones.
    more, _ = make_validation(model, task, learning, tasks=6)
    np.testing.assert_array_equal(more.judge.y[:4], fitting.judge.y)


STATIONARY = rl.LaplaceConfig(accumulate="none")


@pytest.mark.parametrize(
    ("options", "task", "posterior", "message"),
    [
        (
            {},
            rl.Gridworld(),
            rl.PointConfig(),
            "posterior must be one of 'laplace', 'conjugate' .*; got 'point'",
        ),
        (
            {},
            rl.Regression(),
            rl.VariationalConfig(),
            "posterior must be one of 'laplace', 'conjugate' .*; got 'variational'",
        ),
        ({}, rl.PiecewiseCoin(), LAPLACE, "calibration needs the parameters of a problem .*'coin' has none"),
        ({"tasks": 15}, rl.Gridworld(), LAPLACE, "calibrate_tasks must be at least 16; got 15"),
        ({"tasks": 0}, rl.Gridworld(), LAPLACE, "calibrate_tasks must be a whole number"),
        (
            {"by": "luck"},
            rl.Gridworld(),
            LAPLACE,
            "calibrate_by must be one of 'likelihood', 'coverage'; got",
        ),
        (
            {"scales": ("damping_precision",)},
            rl.Gridworld(),
            LAPLACE,
            "calibrate_scales must be one of 'prior_stddev', 'temperature', 'forgetting'; got 'damping",
        ),
        (
            {"scales": ("forgetting",)},
            rl.Gridworld(),
            STATIONARY,
            "calibrate_scales must be one of 'damping_precision', 'temperature'; got 'forgetting'",
        ),
    ],
)
def test_what_can_not_be_calibrated(options, task, posterior, message):
    with pytest.raises(ValueError, match=message):
        CalibrationConfig(**options).check(task, posterior)


def test_scales_that_are_fitted():
    assert CalibrationConfig().chosen(LAPLACE) == ("prior_stddev", "temperature", "forgetting")
    assert CalibrationConfig().chosen(STATIONARY) == ("damping_precision", "temperature")
    assert CalibrationConfig(scales=("temperature",)).chosen(LAPLACE) == ("temperature",)
