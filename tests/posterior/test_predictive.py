"""Predictive distributions of heads on beliefs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import registry
from support.gaussians import each_belief, each_density, moments
from support.registry import assert_close

import recurrent_laplace as rl

F, K = 4, 3


def belief_of(kind: str, lead=()):
    return registry.beliefs(lead, F, jnp.float64, jax.random.key(len(lead)))[kind]


WEIGHT = np.random.default_rng(9).normal(size=(K, F))
BIAS = np.array([0.5, -1.0, 2.0])


def affine(z):
    return jnp.asarray(WEIGHT) @ z + jnp.asarray(BIAS)


def scalar_affine(z):
    return affine(z)[0]


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@each_belief
def test_linearized_is_exact_for_an_affine_head(name, lead):
    belief = belief_of(name, lead)
    mean = np.asarray(belief.mean) @ WEIGHT.T + BIAS
    covariance = WEIGHT @ moments(belief)[1] @ WEIGHT.T
    stddev = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    vector = rl.predict_linearized(affine, belief)
    assert_close((vector.mean, vector.covariance, vector.stddev()), (mean, covariance, stddev))
    scalar = rl.predict_linearized(scalar_affine, belief)
    assert scalar.covariance.shape == lead
    assert_close((scalar.mean, scalar.stddev()), (mean[..., 0], stddev[..., 0]))


def test_linearized_is_the_tangent_of_any_head():
    belief = belief_of("dense")
    head = lambda z: jnp.tanh(affine(z) * z[0])
    jacobian = np.asarray(jax.jacfwd(head)(belief.mean))
    out = rl.predict_linearized(head, belief)
    assert_close((out.mean, out.covariance), (head(belief.mean), jacobian @ moments(belief)[1] @ jacobian.T))


@each_density
def test_monte_carlo_agrees_with_linearized_on_an_affine_head(name):
    belief, samples = belief_of(name, (2,)), 20_000
    exact = rl.predict_linearized(affine, belief)
    average = rl.predict_average(affine, belief, samples=samples, key=jax.random.key(1))
    assert average.shape == (2, K)
    stddev = np.asarray(exact.stddev())
    assert (np.abs(average - exact.mean) < 5 * stddev / np.sqrt(samples)).all()
    mixture = rl.predict_mixture(affine, belief, samples=samples, key=jax.random.key(2))
    deviation = np.asarray(mixture.components - exact.mean)
    products = np.einsum("sti,stj->stij", deviation, deviation)
    error = np.abs(products.mean(axis=0) - exact.covariance)
    assert (error < 5 * products.std(axis=0) / np.sqrt(samples)).all()


@each_belief
def test_average_is_the_mean_of_the_heads_outputs_on_samples(name):
    belief, key = belief_of(name, (2,)), jax.random.key(3)
    head = lambda z: {"logits": jnp.tanh(affine(z)), "value": jnp.sum(z**2)}
    average = rl.predict_average(head, belief, samples=6, key=key)
    components = rl.predict_mixture(head, belief, samples=6, key=key).components
    samples = np.asarray(belief.sample(key, (6,)))
    logits, value = np.tanh(samples @ WEIGHT.T + BIAS), (samples**2).sum(axis=-1)
    assert_close(components["logits"], logits)
    assert_close((average["logits"], average["value"]), (logits.mean(axis=0), value.mean(axis=0)))


def test_average_over_a_point_belief_is_the_output_at_its_mean():
    belief = belief_of("point")
    average = rl.predict_average(jnp.tanh, belief, samples=3, key=jax.random.key(0))
    np.testing.assert_allclose(average, np.tanh(belief.mean), rtol=1e-12)
    out = rl.predict_linearized(jnp.tanh, belief)
    np.testing.assert_array_equal(out.covariance, np.zeros((F, F)))


def test_mixture_log_prob_by_hand():
    belief = belief_of("dense", (2,))
    mixture = rl.predict_mixture(affine, belief, samples=5, key=jax.random.key(4))
    actions = np.array([0, 2])
    actual = mixture.log_prob(lambda logits: jax.nn.log_softmax(logits)[jnp.arange(2), actions])
    logits = np.asarray(mixture.components)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    expected = np.log(probabilities[:, np.arange(2), actions].mean(axis=0))
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_mixture_log_prob_of_improbable_events():
    """The average of densities underflows to zero far in the tails."""
    mixture = rl.predict_mixture(lambda z: z[0], belief_of("dense"), samples=4, key=jax.random.key(5))
    means = np.asarray(mixture.components)
    actual = mixture.log_prob(lambda mean: -0.5 * (100.0 - mean) ** 2)
    logs = -0.5 * (100 - means) ** 2
    assert np.exp(logs).sum() == 0
    np.testing.assert_allclose(actual, logs.max() + np.log(np.exp(logs - logs.max()).mean()), rtol=1e-10)


def test_samples_are_distinct_and_determined_by_the_key():
    belief = rl.DiagonalGaussian(jnp.zeros((2, F)), jnp.ones((2, F)))
    sample = lambda key: np.asarray(rl.predict_mixture(lambda z: z, belief, samples=3, key=key).components)
    samples = sample(jax.random.key(0))
    assert len(np.unique(samples)) == samples.size
    np.testing.assert_array_equal(samples, sample(jax.random.key(0)))
    assert np.abs(samples - sample(jax.random.key(1))).min() > 0


def test_gradient_of_an_average_reaches_the_belief():
    def objective(mean):
        belief = rl.DiagonalGaussian(mean, jnp.full(F, 4.0))
        return rl.predict_average(scalar_affine, belief, samples=2, key=jax.random.key(0))

    np.testing.assert_allclose(jax.grad(objective)(jnp.zeros(F)), WEIGHT[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("head", "shapes"),
    [
        (lambda z: {"value": z[0]}, r"\{'value': \(\)\}"),
        (lambda z: (z, z), r"\(\(4,\), \(4,\)\)"),
        (lambda z: jnp.outer(z, z), r"\(4, 4\)"),
    ],
)
def test_head_that_cannot_be_linearized_is_refused(head, shapes):
    with pytest.raises(ValueError, match=rf"head must return one array of shape \(K,\) or \(\).*{shapes}"):
        rl.predict_linearized(head, belief_of("dense", (2,)))
