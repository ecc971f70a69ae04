"""Beliefs pushed through heads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl

F, K = 4, 3
GAUSSIANS = ["dense", "diagonal", "spectral"]


def belief_of(kind: str, lead=()):
    random = np.random.default_rng(len(lead))
    mean = jnp.asarray(random.normal(size=(*lead, F)))
    if kind == "point":
        return rl.PointBelief(mean)
    if kind == "diagonal":
        return rl.DiagonalGaussian(mean, jnp.asarray(random.uniform(0.5, 2, (*lead, F))))
    if kind == "spectral":
        rotation = jnp.asarray(random.normal(size=(*lead, F * (F - 1) // 2)))
        return rl.SpectralGaussian(
            mean, jnp.asarray(random.normal(size=(*lead, F))), rl.cayley_basis(rotation, F)
        )
    root = random.normal(size=(*lead, F, F))
    return rl.DenseGaussian.from_precision(mean, jnp.asarray(root @ np.swapaxes(root, -1, -2) + np.eye(F)))


def covariance_of(belief):
    covariance = np.asarray(belief.covariance())
    if covariance.ndim == belief.mean.ndim:
        covariance = covariance[..., None] * np.eye(F)
    return covariance


WEIGHT = np.random.default_rng(9).normal(size=(K, F))
BIAS = np.array([0.5, -1.0, 2.0])


def affine(z):
    return jnp.asarray(WEIGHT) @ z + jnp.asarray(BIAS)


def scalar_affine(z):
    return affine(z)[0]


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", [*GAUSSIANS, "point"])
def test_linearized_is_exact_for_an_affine_head(kind, lead):
    belief = belief_of(kind, lead)
    mean = np.asarray(belief.mean) @ WEIGHT.T + BIAS
    covariance = WEIGHT @ covariance_of(belief) @ WEIGHT.T
    vector = rl.predict_linearized(affine, belief)
    assert vector.covariance.shape == (*lead, K, K)
    np.testing.assert_allclose(vector.mean, mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(vector.covariance, covariance, rtol=0, atol=1e-10)
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    np.testing.assert_allclose(vector.stddev(), np.sqrt(variance), rtol=0, atol=1e-10)
    scalar = rl.predict_linearized(scalar_affine, belief)
    assert scalar.mean.shape == scalar.covariance.shape == scalar.stddev().shape == lead
    np.testing.assert_allclose(scalar.mean, mean[..., 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(scalar.stddev(), np.sqrt(variance[..., 0]), rtol=0, atol=1e-10)


def test_linearized_is_the_tangent_of_any_head():
    belief = belief_of("dense")
    head = lambda z: jnp.tanh(affine(z) * z[0])
    jacobian = np.asarray(jax.jacfwd(head)(belief.mean))
    out = rl.predict_linearized(head, belief)
    np.testing.assert_allclose(out.mean, head(belief.mean), rtol=1e-12)
    np.testing.assert_allclose(out.covariance, jacobian @ covariance_of(belief) @ jacobian.T, atol=1e-10)


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_monte_carlo_agrees_with_linearized_on_an_affine_head(kind):
    belief, samples = belief_of(kind, (2,)), 20_000
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


@pytest.mark.parametrize("kind", [*GAUSSIANS, "point"])
def test_average_is_the_mean_of_the_heads_outputs_on_draws(kind):
    belief, key = belief_of(kind, (2,)), jax.random.key(3)
    head = lambda z: {"logits": jnp.tanh(affine(z)), "value": jnp.sum(z**2)}
    average = rl.predict_average(head, belief, samples=6, key=key)
    components = rl.predict_mixture(head, belief, samples=6, key=key).components
    draws = np.asarray(belief.sample(key, (6,)))
    logits, value = np.tanh(draws @ WEIGHT.T + BIAS), (draws**2).sum(axis=-1)
    assert average["logits"].shape == (2, K)
    assert average["value"].shape == (2,)
    np.testing.assert_allclose(components["logits"], logits, rtol=1e-10)
    np.testing.assert_allclose(average["logits"], logits.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(average["value"], value.mean(axis=0), rtol=1e-10)


def test_a_point_belief_needs_no_average():
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
    """Far in the tails, where the plain average of densities is zero."""
    mixture = rl.predict_mixture(lambda z: z[0], belief_of("dense"), samples=4, key=jax.random.key(5))
    means = np.asarray(mixture.components)
    actual = mixture.log_prob(lambda mean: -0.5 * (100.0 - mean) ** 2)
    logs = -0.5 * (100 - means) ** 2
    assert np.exp(logs).sum() == 0
    np.testing.assert_allclose(actual, logs.max() + np.log(np.exp(logs - logs.max()).mean()), rtol=1e-10)


def test_draws_differ_between_axes_and_follow_the_key():
    belief = rl.DiagonalGaussian(jnp.zeros((2, F)), jnp.ones((2, F)))
    draw = lambda key: np.asarray(rl.predict_mixture(lambda z: z, belief, samples=3, key=key).components)
    one = draw(jax.random.key(0))
    assert len(np.unique(one)) == one.size
    np.testing.assert_array_equal(one, draw(jax.random.key(0)))
    assert np.abs(one - draw(jax.random.key(1))).min() > 0


def test_gradient_of_an_average_reaches_the_belief():
    def objective(mean):
        belief = rl.DiagonalGaussian(mean, jnp.full(F, 4.0))
        return rl.predict_average(scalar_affine, belief, samples=2, key=jax.random.key(0))

    np.testing.assert_allclose(jax.grad(objective)(jnp.zeros(F)), WEIGHT[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("head", "came"),
    [
        (lambda z: {"value": z[0]}, r"\{'value': \(\)\}"),
        (lambda z: (z, z), r"\(\(4,\), \(4,\)\)"),
        (lambda z: jnp.outer(z, z), r"\(4, 4\)"),
    ],
)
def test_a_head_that_cannot_be_linearized(head, came):
    with pytest.raises(ValueError, match=rf"head must return one array of shape \(K,\) or \(\).*{came}"):
        rl.predict_linearized(head, belief_of("dense", (2,)))
