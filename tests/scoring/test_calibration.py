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
    scaled = plain.scaled(*plain.curvatures(INPUTS[0]), scales)
    expected = dataclasses.replace(plain, **options).unroll(INPUTS[0])
    assert_close(scaled.mean, expected.mean)
    assert_close(scaled.covariance(), expected.covariance())


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
    with pytest.raises(ValueError, match="must be a LaplacePosterior; got a PointPosterior"):
        rl.calibrate(rl.PointPosterior(MEMORY), INPUTS, loss)
    with pytest.raises(ValueError, match="loss must be finite"):
        rl.calibrate(posterior, INPUTS, lambda beliefs: jnp.mean(beliefs.mean) * jnp.nan)
