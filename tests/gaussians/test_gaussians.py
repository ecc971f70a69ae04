"""Beliefs against SciPy and closed forms in NumPy, for all ordered pairs of families."""

import dataclasses

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support import registry
from support.gaussians import (
    LEAD,
    F,
    beliefs,
    each_belief,
    each_density,
    each_pair,
    kl_by_hand,
    moments,
    swap,
)
from support.registry import DENSITIES, assert_close, assert_gradient, each_dtype

import recurrent_laplace as rl


def full(belief, matrix):
    """Matrix of `precision()` or `covariance()`, also for families that return its diagonal."""
    matrix = np.asarray(matrix)
    if isinstance(belief, rl.DiagonalGaussian | rl.PointBelief):
        assert matrix.shape == belief.mean.shape
        return np.eye(matrix.shape[-1]) * matrix[..., None]
    assert matrix.shape == (*belief.mean.shape, belief.mean.shape[-1])
    return matrix


def test_registry_has_every_exported_belief():
    assert registry.exported(rl.AbstractBelief) == {type(belief) for belief in beliefs().values()}


# Moments and densities


@each_dtype
@each_belief
def test_moments_are_those_of_the_parameters(name, dtype):
    belief = beliefs(dtype=dtype)[name]
    mean, covariance = moments(belief)
    assert_close(belief.mean, mean)
    assert_close(belief.variance(), np.diagonal(covariance, axis1=-2, axis2=-1), dtype=dtype)
    assert_close(full(belief, belief.covariance()), covariance, dtype=dtype)
    if name != "point":
        assert_close(full(belief, belief.precision()), np.linalg.inv(covariance), dtype=dtype)
        assert belief.precision().dtype == dtype
    assert belief.variance().dtype == belief.covariance().dtype == dtype


@each_dtype
@each_density
def test_entropy_and_log_prob_are_scipys(name, dtype):
    belief = beliefs(dtype=dtype)[name]
    mean, covariance = moments(belief)
    z = jnp.asarray(np.random.default_rng(1).normal(size=(*LEAD, F)), dtype)
    entropy, log_prob = belief.entropy(), belief.log_prob(z)
    assert entropy.dtype == log_prob.dtype == dtype
    theirs = [scipy.stats.multivariate_normal(mean[i], covariance[i]) for i in range(len(belief))]
    assert_close(entropy, np.array([their.entropy() for their in theirs]), dtype=dtype)
    assert_close(log_prob, np.array([their.logpdf(z[i]) for i, their in enumerate(theirs)]), dtype=dtype)


@each_density
def test_log_prob_broadcasts(name):
    many = beliefs()[name]
    z = jnp.asarray(np.random.default_rng(2).normal(size=(4, 1, F)))
    got = many.log_prob(z)
    assert got.shape == (4, 3)
    for s in range(4):
        for i in range(3):
            assert_close(got[s, i], many[i].log_prob(z[s, 0]))
    assert_close(many[0].log_prob(z[:, 0]), got[:, 0])
    assert_close(many.log_prob(z[0, 0]), got[0])


# Divergences


@each_dtype
@each_pair
def test_kl_is_the_closed_form(name, other_name, dtype):
    p, q = beliefs(dtype=dtype)[name], beliefs(dtype=dtype, seed=3)[other_name]
    kl = p.kl(q)
    assert kl.dtype == dtype
    expected = np.array([kl_by_hand(p[i], q[i]) for i in range(len(p))])
    assert expected.min() > 0.1
    assert_close(kl, expected)
    d = np.asarray(p.mean, np.float64) - np.asarray(q.mean, np.float64)
    mahalanobis = np.einsum("bi,bij,bj->b", d, np.linalg.inv(moments(q)[1]), d) / 2
    assert_close(p.mahalanobis(q), mahalanobis, dtype=dtype)


@each_density
def test_kl_is_zero_at_itself(name):
    belief = beliefs()[name]
    assert_close(belief.kl(belief), np.zeros(LEAD))
    assert_close(belief.mahalanobis(belief), np.zeros(LEAD))


@each_pair
def test_kl_does_not_depend_on_the_parametrisation(name, other_name):
    """The divergence between one Gaussian in two families is zero."""
    mean, variance = np.arange(1.0, F + 1), np.linspace(0.5, 2.0, F)
    same = {
        "diagonal": rl.DiagonalGaussian(jnp.asarray(mean), jnp.asarray(1 / variance)),
        "dense": rl.DenseGaussian.from_precision(jnp.asarray(mean), jnp.diag(1 / variance)),
        "spectral": rl.SpectralGaussian(jnp.asarray(mean), jnp.log(variance), jnp.eye(F)),
    }
    assert_close(same[name].kl(same[other_name]), np.zeros(()))


@each_pair
def test_kl_broadcasts(name, other_name):
    many, prior = beliefs()[name], beliefs((), seed=4)[other_name]
    assert_close(many.kl(prior), np.array([kl_by_hand(many[i], prior) for i in range(3)]))
    assert_close(prior.kl(many), np.array([kl_by_hand(prior, many[i]) for i in range(3)]))
    assert many[None].kl(beliefs((2, 1), seed=5)[other_name]).shape == (2, 3)
    consecutive = many[1:].kl(many[:-1])
    assert_close(consecutive, np.array([kl_by_hand(many[i + 1], many[i]) for i in range(2)]))


@each_density
def test_features_of_two_beliefs_must_agree(name):
    small = registry.beliefs((), 4, jnp.float64, jax.random.key(0))[name]
    for call in (beliefs()[name].kl, beliefs()[name].mahalanobis):
        with pytest.raises(ValueError, match=r"^other must have 6 features, as this belief; got 4\.$"):
            call(small)


def test_dense_from_precision():
    precision = moments(beliefs()["dense"])[1]
    mean = beliefs()["dense"].mean
    belief = rl.DenseGaussian.from_precision(mean, jnp.asarray(precision))
    assert_close(belief.precision(), precision)
    assert_close(belief.precision_cholesky, np.linalg.cholesky(precision))


# Samples


@each_dtype
@each_belief
def test_shape_of_samples(name, dtype):
    for lead in ((), LEAD):
        belief = beliefs(lead, dtype)[name]
        for shape in ((), (4, 2)):
            samples = belief.sample(jax.random.key(5), shape)
            assert samples.shape == (*shape, *lead, F)
            assert samples.dtype == dtype


@each_density
def test_samples_have_the_moments_of_the_belief(name):
    belief = beliefs()[name]
    count = 20_000
    samples = np.asarray(belief.sample(jax.random.key(6), (count,)))
    for i in range(len(belief)):
        mean, covariance = (moment[i] for moment in moments(belief))
        variance = np.diagonal(covariance)
        assert (np.abs(samples[:, i].mean(0) - mean) < 5 * np.sqrt(variance / count)).all()
        stderr = np.sqrt((np.outer(variance, variance) + covariance**2) / count)
        assert (np.abs(np.cov(samples[:, i].T) - covariance) < 5 * stderr).all()
    # Samples of different leading axes are independent.
    white = (samples - samples.mean(0)) / samples.std(0)
    assert (np.abs(np.mean(white[:, 0] * white[:, 1], axis=0)) < 5 / np.sqrt(count)).all()


@each_density
def test_whitened_samples_have_the_norm_of_the_noise(name):
    belief = beliefs()[name]
    noise = jnp.asarray(np.random.default_rng(7).normal(size=(2, *LEAD, F)))
    white = belief.whiten(belief.perturb(noise) - belief.mean)
    # W S is orthogonal in every family.
    assert_close(jnp.sum(white**2, -1), jnp.sum(noise**2, -1))


@each_belief
def test_samples_are_differentiable_in_the_parameters(name):
    belief = beliefs(())[name]
    key = jax.random.key(8)

    def with_mean(mean):
        return jnp.mean(dataclasses.replace(belief, mean=mean).sample(key, (7,)), axis=0)

    assert_close(jax.jacrev(with_mean)(belief.mean), np.eye(F))

    assert_gradient(lambda belief: jnp.sum(belief.sample(key, (7,)) ** 2), belief)


# Leading axes


@each_belief
def test_every_leaf_starts_with_the_leading_axes(name):
    for lead in ((), (3,), (2, 3)):
        leaves = jax.tree.leaves(beliefs(lead)[name])
        assert all(isinstance(leaf, jax.Array) for leaf in leaves)
        assert all(leaf.shape[: len(lead) + 1] == (*lead, F) for leaf in leaves)
        assert beliefs(lead)[name].batch_shape == lead


INDICES = [
    0,
    -1,
    np.int64(1),
    slice(1, None),
    slice(None, None, -1),
    (1, 2),
    (slice(None), 1),
    (..., 0),
    (..., None),
    (None,),
    None,
    (0, ..., None),
    np.array([1, 0, 1]),
    jnp.array([True, False]),
    (),
    ...,
]


# All families share one method; this one has leaves with one and with two trailing axes.
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indexing_applies_to_the_leading_axes(index):
    belief = beliefs((2, 3))["spectral"]
    positions = np.arange(6).reshape(2, 3)[np.asarray(index) if isinstance(index, jax.Array) else index]
    got = belief[index]
    assert type(got) is type(belief)
    assert got.batch_shape == positions.shape
    for leaf, whole in zip(jax.tree.leaves(got), jax.tree.leaves(belief), strict=True):
        flat = np.asarray(whole).reshape(6, *whole.shape[2:])
        np.testing.assert_array_equal(leaf, flat[positions])


@each_belief
def test_a_belief_is_a_sequence_of_beliefs(name):
    belief = beliefs()[name]
    assert len(belief) == 3
    elements = list(belief)
    assert len(elements) == 3
    for i, element in enumerate(elements):
        assert element.batch_shape == ()
        np.testing.assert_array_equal(element.mean, belief.mean[i])
    with pytest.raises(TypeError, match=r"^a belief without leading axes has no length\.$"):
        len(elements[0])


@pytest.mark.parametrize(
    "index", [2, -3, (2, 0), (0, 3), (0, -4), (..., 3), (slice(None), 3), np.int64(2)], ids=str
)
def test_index_out_of_bounds_is_an_error(index):
    with pytest.raises(IndexError, match="out of bounds for"):
        beliefs((2, 3))["spectral"][index]


@pytest.mark.parametrize("index", [(0, 0, 0), (slice(None),) * 3, (..., 0, 0, 0)], ids=str)
def test_features_are_not_indexed(index):
    with pytest.raises(IndexError, match=r"^index .* is not valid for a belief with leading axes \(2, 3\)"):
        beliefs((2, 3))["spectral"][index]
    with pytest.raises(IndexError, match=r"^index .* is not valid for a belief with leading axes \(\)"):
        beliefs(())["spectral"][0]


# Point beliefs


@pytest.mark.parametrize(
    ("call", "quantity"),
    [
        (lambda point, _: point.entropy(), "entropy"),
        (lambda point, _: point.precision(), "precision"),
        (lambda point, _: point.log_prob(point.mean), "log-density"),
        (lambda point, other: point.kl(other), "KL divergence"),
        (lambda point, other: point.mahalanobis(other), "KL divergence"),
        (lambda point, _: point.kl(point), "KL divergence"),
    ],
    ids=["entropy", "precision", "log_prob", "kl", "mahalanobis", "kl-to-itself"],
)
def test_error_of_a_point_belief_names_the_missing_quantity(call, quantity):
    message = (
        rf"^a point belief has no {quantity}, since it has no density\. "
        r"Use a LaplacePosterior or a VariationalPosterior\.$"
    )
    with pytest.raises(ValueError, match=message):
        call(beliefs()["point"], beliefs()["dense"])


@each_density
@pytest.mark.parametrize("method", ["kl", "mahalanobis"])
def test_divergence_to_a_point_belief_is_refused(name, method):
    message = r"^the KL divergence to a PointBelief is infinite, since it has no density\. Use a "
    with pytest.raises(ValueError, match=message):
        getattr(beliefs()[name], method)(beliefs()["point"])


def test_samples_of_a_point_belief_are_its_mean():
    point = beliefs()["point"]
    np.testing.assert_array_equal(point.variance(), np.zeros((*LEAD, F)))
    np.testing.assert_array_equal(point.covariance(), np.zeros((*LEAD, F)))
    samples = point.sample(jax.random.key(10), (2,))
    np.testing.assert_array_equal(samples, np.broadcast_to(point.mean, (2, *LEAD, F)))


# The Cayley transform


def skew(rotation, size):
    lower = np.zeros((*rotation.shape[:-1], size, size))
    lower[..., *np.tril_indices(size, -1)] = rotation
    return lower - swap(lower)


@pytest.mark.parametrize("size", [1, 2, 8, 9])
@pytest.mark.parametrize("magnitude", [0.0, 0.1, 1.0, 100.0])
def test_cayley_basis_is_orthogonal_and_the_formula(size, magnitude):
    rotation = magnitude * np.random.default_rng(11).normal(size=(2, size * (size - 1) // 2))
    basis = cayley(jnp.asarray(rotation), size)
    a, eye = skew(rotation, size), np.eye(size)
    assert basis.shape == (2, size, size)
    assert_close(basis @ jnp.swapaxes(basis, -1, -2), np.broadcast_to(eye, basis.shape))
    assert_close(basis, (eye - a) @ np.linalg.inv(eye + a))


cayley = jax.jit(rl.cayley_basis, static_argnums=1)


@pytest.mark.parametrize("magnitude", [1.0, 10.0])
def test_cayley_basis_in_float32(magnitude):
    size = 9
    rotation = magnitude * np.random.default_rng(12).normal(size=size * (size - 1) // 2)
    basis = cayley(jnp.asarray(rotation, jnp.float32), size)
    assert basis.dtype == jnp.float32
    # The error of an inverse grows with the condition number, which is about 50 at magnitude 10.
    condition = np.linalg.cond(np.eye(size) + skew(rotation, size))
    tolerance = max(1e-5, 4 * condition * np.finfo(np.float32).eps)
    np.testing.assert_allclose(basis @ basis.T, np.eye(size), rtol=0, atol=tolerance)


def test_rotation_fills_the_lower_triangle_row_by_row():
    rotation = jnp.array([0.1, 0.2, 0.3])
    a = np.array([[0, -0.1, -0.2], [0.1, 0, -0.3], [0.2, 0.3, 0]])
    assert_close(cayley(rotation, 3), (np.eye(3) - a) @ np.linalg.inv(np.eye(3) + a))


@pytest.mark.parametrize("size", [3, 9])
def test_cayley_basis_has_the_right_gradient(size):
    rotation = jnp.asarray(np.random.default_rng(13).normal(size=size * (size - 1) // 2))
    weight = jnp.asarray(np.random.default_rng(14).normal(size=(size, size)))
    assert_gradient(lambda rotation: jnp.sum(weight * rl.cayley_basis(rotation, size)), rotation)


# JAX transformations


def summary(belief, other, z, key):
    if isinstance(belief, rl.PointBelief):
        return belief.variance(), belief.sample(key, (2,))
    return (
        belief.entropy(),
        belief.log_prob(z),
        belief.variance(),
        belief.covariance(),
        belief.precision(),
        belief.kl(other),
        belief.sample(key, (2,)),
    )


@each_belief
def test_jit_and_vmap_change_nothing(name):
    belief, other = beliefs()[name], beliefs(seed=3)["dense"]
    z, keys = beliefs(seed=15)["point"].mean, jax.random.split(jax.random.key(16), 3)
    plain = [summary(belief[i], other[i], z[i], keys[i]) for i in range(3)]
    assert_close(jax.jit(summary)(belief[0], other[0], z[0], keys[0]), plain[0])
    expected = jax.tree.map(lambda *leaves: jnp.stack(leaves), *plain)
    assert_close(jax.jit(jax.vmap(summary))(belief, other, z, keys), expected)


@each_belief
def test_operations_outside_of_jit_compile_once(name, caplog):
    belief, other = beliefs()[name], beliefs(seed=3)["dense"]
    z, key = beliefs(seed=15)["point"].mean, jax.random.key(16)
    summary(belief, other, z, key)
    with jax.log_compiles():
        summary(belief, other, z, key)
    assert caplog.messages == []


@each_pair
def test_gradient_of_kl_and_log_prob_is_a_finite_difference(name, other_name):
    p, q = beliefs(())[name], beliefs((), seed=3)[other_name]

    def keep_lower(belief):
        # The factor must stay lower triangular in a random direction.
        if isinstance(belief, rl.DenseGaussian):
            return rl.DenseGaussian(belief.mean, jnp.tril(belief.precision_cholesky))
        return belief

    def loss(pair):
        p, q = (keep_lower(belief) for belief in pair)
        return p.kl(q) + q.log_prob(p.mean) + p.entropy()

    assert_gradient(loss, (p, q))


# Identities for any shape


# Each example has other shapes, and so a program of its own.
@hypothesis.settings(max_examples=5)
@hypothesis.given(
    size=st.integers(1, 20),
    lead=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    name=st.sampled_from(DENSITIES),
    other_name=st.sampled_from(DENSITIES),
    seed=st.integers(0, 1000),
)
def test_identities_hold_for_any_shape(size, lead, name, other_name, seed):
    p = registry.beliefs(lead, size, jnp.float64, jax.random.key(seed))[name]
    q = registry.beliefs(lead, size, jnp.float64, jax.random.key(seed + 1))[other_name]

    @jax.jit
    def measure(p, q):
        return (
            (p.entropy(), p.kl(q), p.log_prob(p.mean), p.mahalanobis(q)),
            (p.variance(), p.covariance(), p.precision()),
            p.sample(jax.random.key(0), (2,)),
        )

    (entropy, kl, peak, mahalanobis), (variance, covariance, precision), samples = measure(p, q)
    assert entropy.shape == kl.shape == peak.shape == mahalanobis.shape == lead
    assert samples.shape == (2, *lead, size)
    covariance, precision = full(p, covariance), full(p, precision)
    assert_close(covariance @ precision, np.broadcast_to(np.eye(size), covariance.shape))
    assert_close(variance, np.diagonal(covariance, axis1=-2, axis2=-1))
    log_det = np.linalg.slogdet(moments(p)[1])[1]
    assert_close(entropy, (size * (1 + np.log(2 * np.pi)) + log_det) / 2)
    assert_close(peak, size / 2 - entropy)
    assert (np.asarray(kl) > np.asarray(mahalanobis) - 1e-10).all()
    flat_p, flat_q = (
        jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(lead) :]), belief) for belief in (p, q)
    )
    expected = [kl_by_hand(flat_p[i], flat_q[i]) for i in range(len(flat_p))]
    assert_close(kl, np.array(expected).reshape(lead))
