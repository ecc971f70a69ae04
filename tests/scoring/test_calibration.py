"""Scales fitted on validation tasks: where the best ones are known, they are found."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.posterior.laplace import Scales

D, H, N, T = 2, 4, 40, 12
KEYS = jax.random.split(jax.random.key(0), 3)
INPUTS = jax.random.normal(KEYS[0], (N, T, D), jnp.float64)
MEMORY = rl.Memory(rl.GRU(D, H, dtype=jnp.float64, key=KEYS[1]))


def likelihood(posterior, true):
    """Draws from a posterior with the true scales, and how likely other beliefs find them."""
    beliefs = jax.vmap(true.unroll)(INPUTS)
    z = beliefs.sample(KEYS[2], (20,))
    return lambda beliefs: -jnp.mean(beliefs.log_prob(z))


@pytest.mark.parametrize("covariance", ["diagonal", "dense"])
def test_the_temperature_and_prior_that_made_the_data_are_found(covariance):
    posterior = rl.LaplacePosterior(MEMORY, covariance=covariance)
    true = dataclasses.replace(posterior, prior_stddev=0.3, temperature=2.5)
    found = rl.calibrate(posterior, INPUTS, likelihood(posterior, true))
    assert found.after < found.before
    assert found.posterior.prior_stddev == pytest.approx(0.3, rel=0.1)
    assert found.posterior.temperature == pytest.approx(2.5, rel=0.1)


def test_forgetting_is_found():
    posterior = rl.LaplacePosterior(MEMORY, covariance="diagonal")
    true = dataclasses.replace(posterior, forgetting=0.6)
    found = rl.calibrate(posterior, INPUTS, likelihood(posterior, true), fit=["forgetting"])
    assert found.posterior.forgetting == pytest.approx(0.6, abs=0.05)


def test_damping_is_found_without_accumulation():
    posterior = rl.LaplacePosterior(MEMORY, covariance="diagonal", accumulate="none", window=2)
    true = dataclasses.replace(posterior, damping_precision=5.0)
    found = rl.calibrate(posterior, INPUTS, likelihood(posterior, true), fit=["damping_precision"])
    assert found.posterior.damping_precision == pytest.approx(5.0, rel=0.1)


@pytest.mark.parametrize("accumulate", ["none", "precision", "mean_and_precision"])
def test_scaled_beliefs_are_those_of_a_posterior_with_these_options(accumulate):
    options = {"prior_stddev": 0.7, "damping_precision": 2.0, "temperature": 3.0, "forgetting": 0.8}
    plain = rl.LaplacePosterior(MEMORY, accumulate=accumulate, temperature=1.5)
    scales = Scales(**{name: jnp.asarray(value) for name, value in options.items()})
    scaled = plain.scaled(*plain.statistics(INPUTS[0]), scales)
    expected = dataclasses.replace(plain, **options).unroll(INPUTS[0])
    assert_close(scaled.mean, expected.mean)
    assert_close(scaled.covariance(), expected.covariance())


NOISE, WEIGHTS = 0.2, jnp.array([1.0, -2.0, 0.5, 1.0])


def regression_posterior(**options):
    """Posterior of a head that is linear in z, whose query is the last input."""
    likelihood = rl.GaussianLikelihood(jnp.log(jnp.array([0.5])))
    head = lambda z, x: jnp.sum(z * WEIGHTS * x[0], keepdims=True)
    predictor = rl.Predictor(head, likelihood, context_size=1)
    return rl.LikelihoodPosterior(MEMORY, predictor, **options)


QUERIES = jax.random.normal(KEYS[2], (N, T, 1), jnp.float64).at[:, 0].set(jnp.nan)


@pytest.mark.parametrize("accumulate", ["none", "precision"])
def test_scaled_beliefs_of_a_likelihood(accumulate):
    options = {"prior_stddev": 0.7, "noise_scale": 3.0, "forgetting": 0.8}
    plain = regression_posterior(accumulate=accumulate, window=1 if accumulate == "precision" else None)
    scales = type(plain.scales)(**{name: jnp.asarray(value) for name, value in options.items()})
    scaled = plain.scaled(*plain.statistics(INPUTS[0], QUERIES[0]), scales)
    expected = dataclasses.replace(plain, **options).unroll(INPUTS[0], queries=QUERIES[0])
    assert_close((scaled.mean, scaled.covariance()), (expected.mean, expected.covariance()))


def test_scaled_beliefs_of_a_conjugate_posterior():
    options = {"prior_stddev": 0.7, "temperature": 3.0, "forgetting": 0.8}
    plain = rl.ConjugatePosterior(MEMORY, key=KEYS[2])
    scales = type(plain.scales)(**{name: jnp.asarray(value) for name, value in options.items()})
    scaled = plain.scaled(*plain.statistics(INPUTS[0]), scales)
    expected = dataclasses.replace(plain, **options).unroll(INPUTS[0])
    assert_close((scaled.mean, scaled.covariance()), (expected.mean, expected.covariance()))
    hot = dataclasses.replace(plain, temperature=3.0).unroll(INPUTS[0])
    assert_close(
        (hot.mean, hot.variance()), (plain.unroll(INPUTS[0]).mean, 3 * plain.unroll(INPUTS[0]).variance())
    )


def test_scales_of_a_conjugate_posterior_are_found():
    posterior = rl.ConjugatePosterior(MEMORY, key=KEYS[2])
    true = dataclasses.replace(posterior, prior_stddev=0.3, temperature=2.5)
    found = rl.calibrate(posterior, INPUTS, likelihood(posterior, true), fit=["prior_stddev", "temperature"])
    assert found.posterior.prior_stddev == pytest.approx(0.3, rel=0.1)
    assert found.posterior.temperature == pytest.approx(2.5, rel=0.1)


def test_the_noise_of_a_likelihood_is_found_from_targets():
    """Targets sampled from the predictions of the posterior with the true scales."""
    posterior = regression_posterior()
    true = dataclasses.replace(posterior, prior_stddev=0.3, noise_scale=NOISE / 0.5)
    beliefs = jax.vmap(lambda x, q: true.unroll(x, queries=q))(INPUTS, QUERIES)
    predictive = true.predict(beliefs[:, :-1], QUERIES[:, 1:])
    noise = jax.random.normal(KEYS[0], predictive.mean().shape)
    targets = jnp.pad(predictive.mean() + predictive.stddev() * noise, ((0, 0), (1, 0), (0, 0)))
    found = rl.calibrate(posterior, INPUTS, queries=QUERIES, targets=targets)
    assert found.after < found.before
    # Of 440 targets.
    assert found.posterior.noise_scale == pytest.approx(NOISE / 0.5, rel=0.25)
    by_hand = -np.mean(true.predict(beliefs[:, :-1], QUERIES[:, 1:]).log_prob(targets[:, 1:]))
    assert_close(true.prediction_loss(beliefs, QUERIES, targets, true.scales), by_hand)
    assert found.after <= by_hand


def test_bad_targets():
    posterior = regression_posterior()
    with pytest.raises(ValueError, match=r"queries must have shape \(40, 12, 1\); got \(\)"):
        rl.calibrate(posterior, INPUTS)
    with pytest.raises(ValueError, match=r"targets must have shape \(40, 12, K\); got \(\)"):
        rl.calibrate(posterior, INPUTS, queries=QUERIES)
    with pytest.raises(ValueError, match="queries must be left out, since a LaplacePosterior takes none"):
        rl.calibrate(rl.LaplacePosterior(MEMORY), INPUTS, queries=QUERIES, targets=QUERIES)
    with pytest.raises(ValueError, match="loss must be given, since a LaplacePosterior predicts no targets"):
        rl.calibrate(rl.LaplacePosterior(MEMORY), INPUTS, targets=QUERIES)


def test_a_posterior_that_is_best_already_is_kept():
    posterior = rl.LaplacePosterior(MEMORY, covariance="diagonal")
    best = jax.vmap(posterior.unroll)(INPUTS).variance()
    found = rl.calibrate(posterior, INPUTS, lambda b: jnp.sum((jnp.log(b.variance()) - jnp.log(best)) ** 2))
    np.testing.assert_allclose(found.after, 0, atol=1e-4)


def test_bad_input():
    posterior = rl.LaplacePosterior(MEMORY)
    loss = lambda beliefs: jnp.mean(beliefs.entropy())
    with pytest.raises(ValueError, match="fit must be one of 'prior_stddev', 'temperature', 'forgetting'"):
        rl.calibrate(posterior, INPUTS, loss, fit=["damping_precision"])
    with pytest.raises(ValueError, match="fit must name at least one"):
        rl.calibrate(posterior, INPUTS, loss, fit=[])
    with pytest.raises(ValueError, match=r"inputs must have shape \(N, T, 2\)"):
        rl.calibrate(posterior, INPUTS[0], loss)
    with pytest.raises(ValueError, match=r"must be a LaplacePosterior, .*; got a PointPosterior"):
        rl.calibrate(rl.PointPosterior(MEMORY), INPUTS, loss)
    with pytest.raises(ValueError, match="loss must be finite"):
        rl.calibrate(posterior, INPUTS, lambda beliefs: jnp.mean(beliefs.mean) * jnp.nan)
