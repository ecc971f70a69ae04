"""Beliefs, policies and advantages against distrax and rlax, which `make test-references` installs."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.gaussians import LEAD, F, beliefs, each_density, each_pair, moments
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.learning.objectives.ppo import clipped_objective
from recurrent_laplace.learning.returns import advantages

pytestmark = pytest.mark.references


@pytest.fixture(scope="module")
def distrax() -> Any:
    """Import distrax on use, so that the tests can be collected without it."""
    return importlib.import_module("distrax")


@pytest.fixture(scope="module")
def rlax() -> Any:
    return importlib.import_module("rlax")


@pytest.fixture(scope="module")
def converted(distrax):
    def convert(belief):
        mean, covariance = moments(belief)
        if isinstance(belief, rl.DiagonalGaussian):
            return distrax.MultivariateNormalDiag(mean, np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1)))
        return distrax.MultivariateNormalFullCovariance(mean, covariance)

    return convert


@each_density
def test_entropy_and_log_prob_are_those_of_distrax(name, converted):
    belief = beliefs()[name]
    z = jnp.asarray(np.random.default_rng(1).normal(size=(*LEAD, F)))
    assert_close(belief.entropy(), converted(belief).entropy())
    assert_close(belief.log_prob(z), converted(belief).log_prob(z))


@each_pair
def test_kl_is_that_of_distrax(name, other_name, converted):
    p, q = beliefs()[name], beliefs(seed=3)[other_name]
    assert_close(p.kl(q), converted(p).kl_divergence(converted(q)))


def test_policy_is_the_categorical_of_distrax(distrax):
    random = np.random.default_rng(3)
    logits = jnp.asarray(3 * random.normal(size=(7, 2, 5)))
    action = jnp.asarray(random.integers(0, 5, (7, 2)))
    behaviour, theirs = rl.Behaviour(logits, jnp.zeros((7, 2))), distrax.Categorical(logits)
    assert_close(behaviour.entropy(), theirs.entropy())
    assert_close(behaviour.log_prob(action), theirs.log_prob(action))


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_those_of_rlax(seed, rlax):
    random = np.random.default_rng(seed)
    rewards, values = jnp.asarray(random.normal(size=9)), jnp.asarray(random.normal(size=10))
    discounts, decay = jnp.asarray(random.uniform() * (random.uniform(size=9) > 0.2)), random.uniform()
    theirs = rlax.truncated_generalized_advantage_estimation(rewards, discounts, decay, values)
    assert_close(advantages(rewards, discounts, values, decay), theirs)


def test_clipped_objective_is_that_of_rlax_in_value_and_gradient(rlax):
    random = np.random.default_rng(2)
    ratio, advantage = jnp.asarray(np.exp(random.normal(size=64))), jnp.asarray(random.normal(size=64))
    ours = jax.value_and_grad(lambda ratio: -jnp.mean(clipped_objective(ratio, advantage, 0.3)))(ratio)
    theirs = jax.value_and_grad(rlax.clipped_surrogate_pg_loss)(ratio, advantage, 0.3)
    for got, expected in zip(ours, theirs, strict=True):
        assert_close(got, expected)
