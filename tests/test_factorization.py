"""Factorisation by halves: against NumPy in value, against `jnp.linalg` in derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads
from registry import DTYPES, assert_close

from recurrent_laplace.gaussians.factorization import (
    accretive_inverse,
    cholesky,
    cholesky_with_added,
    solve_lower,
    solve_lower_transposed,
    triangular_inverse,
)

# Around one, two and four base blocks of 8, and what a belief of the paper's size needs.
SIZES = (1, 2, 7, 8, 9, 16, 17, 24, 33, 64)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.__name__)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive_definite(*lead, size, seed=0):
    root = normal(*lead, size, size, seed=seed) / np.sqrt(size)
    return np.eye(size) + root @ np.swapaxes(root, -1, -2)


def lower(*lead, size, seed=0):
    return np.linalg.cholesky(positive_definite(*lead, size=size, seed=seed))


def accretive(*lead, size, seed=0):
    """Positive-definite symmetric part, and a skew part of the same size."""
    skew = normal(*lead, size, size, seed=seed + 1) / np.sqrt(size)
    return positive_definite(*lead, size=size, seed=seed) + skew - np.swapaxes(skew, -1, -2)


def upper_is_zero(a):
    return np.array_equal(np.triu(a, 1), np.zeros_like(a))


# Values


@jax.jit
def everything(a, factor, general, b):
    return (
        cholesky_with_added(a),
        triangular_inverse(factor),
        accretive_inverse(general),
        solve_lower(factor, b),
        solve_lower_transposed(factor, b),
    )


# The larger sizes take seconds to compile: float32 at one below a base block and one above.
@pytest.mark.parametrize(
    ("size", "dtype"), [*((size, jnp.float64) for size in SIZES), (7, jnp.float32), (17, jnp.float32)]
)
def test_values_are_numpys(size, dtype):
    # Sizes take turns with the number of leading axes, so that each is met below and above a base block.
    lead = ((), (3,), (2, 2))[SIZES.index(size) % 3]
    a, factor, general, b = (
        jnp.asarray(made, dtype)
        for made in (
            positive_definite(*lead, size=size),
            lower(*lead, size=size, seed=1),
            accretive(*lead, size=size, seed=2),
            normal(*lead, size, seed=3),
        )
    )
    (chol, added), inverse, general_inverse, solved, solved_transposed = everything(a, factor, general, b)
    exact = [np.asarray(made, np.float64) for made in (a, factor, general, b)]
    assert {leaf.dtype for leaf in (chol, inverse, general_inverse, solved)} == {np.dtype(dtype)}
    assert upper_is_zero(chol)
    assert_close(chol, np.linalg.cholesky(exact[0]))
    assert added.shape == lead
    assert np.array_equal(added, np.zeros(lead))  # exactly nothing
    assert upper_is_zero(inverse)
    assert_close(inverse, np.linalg.inv(exact[1]))
    assert_close(general_inverse, np.linalg.inv(exact[2]))
    column = exact[3][..., None]
    assert_close(solved, np.linalg.solve(exact[1], column)[..., 0])
    assert_close(solved_transposed, np.linalg.solve(np.swapaxes(exact[1], -1, -2), column)[..., 0])


@pytest.mark.parametrize("size", [3, 9])
def test_a_triangular_argument_counts_by_its_lower_half(size):
    factor = lower(size=size)
    b = normal(size, seed=4)
    noisy = jnp.asarray(factor + np.triu(normal(size, size, seed=5), 1))
    assert_close(solve_lower(noisy, jnp.asarray(b)), scipy.linalg.solve_triangular(factor, b, lower=True))
    assert_close(
        solve_lower_transposed(noisy, jnp.asarray(b)),
        scipy.linalg.solve_triangular(factor, b, lower=True, trans="T"),
    )
    assert_close(jax.jit(triangular_inverse)(noisy), np.linalg.inv(factor))


@pytest.mark.parametrize(
    ("factor_lead", "b_lead"),
    [((), (3,)), ((3,), ()), ((2, 1), (3,)), ((3,), (2, 1)), ((3,), (2, 3)), ((2, 3), (3,)), ((1,), (3,))],
    ids=str,
)
@pytest.mark.parametrize("solve", [solve_lower, solve_lower_transposed])
def test_solves_broadcast_leading_axes(solve, factor_lead, b_lead):
    size = 4
    factor, b = lower(*factor_lead, size=size), normal(*b_lead, size, seed=6)
    matrix = np.swapaxes(factor, -1, -2) if solve is solve_lower_transposed else factor
    expected = np.einsum("...ij,...j->...i", np.linalg.inv(matrix), b)
    assert expected.shape == (*np.broadcast_shapes(factor_lead, b_lead), size)
    assert_close(solve(jnp.asarray(factor), jnp.asarray(b)), expected)


# Derivatives

FUNCTIONS = {
    "cholesky": (cholesky, jnp.linalg.cholesky, positive_definite),
    "triangular_inverse": (
        triangular_inverse,
        lambda factor: jnp.linalg.inv(jnp.tril(factor)),
        lower,
    ),
    "accretive_inverse": (accretive_inverse, jnp.linalg.inv, accretive),
}
# Below the base block, and above it.
DERIVATIVE_SIZES = (5, 9)


@pytest.mark.parametrize("size", DERIVATIVE_SIZES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_jax(name, size):
    ours, theirs, make = FUNCTIONS[name]
    a = jnp.asarray(make(2, size=size))
    tangent = jnp.asarray(normal(2, size, size, seed=7))
    if name == "cholesky":
        tangent = tangent + jnp.swapaxes(tangent, -1, -2)
    cotangent = jnp.tril(jnp.asarray(normal(2, size, size, seed=8)))
    if name == "accretive_inverse":
        cotangent = jnp.asarray(normal(2, size, size, seed=8))

    def both(function):
        value, forward = jax.jvp(function, (a,), (tangent,))
        _, pull = jax.vjp(function, a)
        return value, forward, pull(cotangent)[0]

    got, expected = jax.jit(lambda: both(ours))(), both(theirs)
    assert np.abs(expected[1]).max() > 1e-2
    assert_close(got, expected)


@pytest.mark.parametrize("size", DERIVATIVE_SIZES)
@pytest.mark.parametrize("transposed", [False, True])
def test_derivatives_of_solves_are_those_of_jax(size, transposed):
    ours = solve_lower_transposed if transposed else solve_lower

    def theirs(factor, b):
        return jax.scipy.linalg.solve_triangular(
            factor, b[..., None], lower=True, trans="T" if transposed else "N"
        )[..., 0]

    factor, b = jnp.asarray(lower(2, size=size)), jnp.asarray(normal(2, size, seed=9))
    tangents = (jnp.asarray(normal(2, size, size, seed=10)), jnp.asarray(normal(2, size, seed=11)))
    cotangent = jnp.asarray(normal(2, size, seed=12))

    def both(function):
        value, forward = jax.jvp(function, (factor, b), tangents)
        _, pull = jax.vjp(function, factor, b)
        return value, forward, pull(cotangent)

    assert_close(jax.jit(lambda: both(ours))(), both(theirs))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_finite_differences_of_first(name):
    function, _, make = FUNCTIONS[name]
    symmetric = name == "cholesky"

    @jax.jit
    def scalar(a):
        a = (a + a.T) / 2 if symmetric else a
        return jnp.sum(jnp.sin(function(a)))

    # `check_grads` takes finite differences, at 1e-5 in float64 by its own account of their error.
    check_grads(scalar, (jnp.asarray(make(size=2)),), order=2, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_is_a_leading_axis(name):
    function, _, make = FUNCTIONS[name]
    a = jnp.asarray(make(3, 2, size=9))
    got = jax.jit(jax.vmap(jax.vmap(function), in_axes=1, out_axes=1))(a)
    assert_close(got, jax.jit(function)(a))


@pytest.mark.parametrize("solve", [solve_lower, solve_lower_transposed])
def test_vmap_of_a_solve_is_a_leading_axis(solve):
    factor, b = jnp.asarray(lower(3, size=9)), jnp.asarray(normal(3, 4, 9, seed=13))
    got = jax.jit(jax.vmap(jax.vmap(solve, (None, 0)), (0, 0)))(factor, b)
    assert_close(got, solve(factor[:, None], b))
    gradient = jax.jit(jax.vmap(jax.grad(lambda f, b: jnp.sum(solve(f, b) ** 2))))(factor, b[:, 0])
    for i in range(3):
        assert_close(gradient[i], jax.grad(lambda f, b: jnp.sum(solve(f, b) ** 2))(factor[i], b[i, 0]))


# Rounding has cost the matrix its positive definiteness


def check_completed(a, dtype, at_most):
    """`L L^T = a + E` with a diagonal `E >= 0` whose largest entry is reported and small."""
    size = a.shape[-1]
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(a, dtype))
    assert np.isfinite(factor).all()
    assert upper_is_zero(factor)
    assert added > 0
    exact = np.asarray(factor, np.float64)
    difference = exact @ exact.T - np.asarray(jnp.asarray(a, dtype), np.float64)
    # A product of two rounded factors: some units in the last place of the largest diagonal entry.
    rounding = 8 * size * np.finfo(dtype).eps * np.abs(np.diagonal(a)).max()
    off = difference - np.diag(np.diagonal(difference))
    assert np.abs(off).max() <= rounding
    assert np.diagonal(difference).min() >= -rounding
    assert abs(np.diagonal(difference).max() - float(added)) <= rounding
    assert float(added) <= at_most


@pytest.mark.parametrize(
    ("size", "dtype"), [(2, jnp.float64), (9, jnp.float64), (24, jnp.float64), (9, jnp.float32)]
)
def test_a_singular_matrix_is_completed(size, dtype):
    columns = normal(size, max(1, size // 2), seed=14)
    a = columns @ columns.T
    # Rank deficient: a pivot is all rounding, and what is added is of that size.
    check_completed(a, dtype, at_most=100 * size * np.finfo(dtype).eps * np.abs(np.diagonal(a)).max())


@each_dtype
def test_a_matrix_of_ones_is_completed(dtype):
    check_completed(np.ones((9, 9)), dtype, at_most=100 * 9 * np.finfo(dtype).eps)


@each_dtype
@pytest.mark.parametrize("size", [4, 9])
def test_a_slightly_indefinite_matrix_is_completed(size, dtype):
    basis, _ = np.linalg.qr(normal(size, size, seed=15))
    eigenvalues = np.linspace(1.0, 2.0, size)
    eigenvalues[0] = -np.finfo(dtype).eps
    a = basis @ np.diag(eigenvalues) @ basis.T
    check_completed((a + a.T) / 2, dtype, at_most=100 * size * np.finfo(dtype).eps)


def test_what_is_added_is_reported_for_each_matrix():
    singular, good = np.ones((9, 9)), positive_definite(size=9)
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(np.stack([good, singular, good])))
    assert added.shape == (3,)
    assert added[0] == 0
    assert added[1] > 0
    assert added[2] == 0
    assert_close(factor[0], np.linalg.cholesky(good))


def test_nothing_is_added_to_a_badly_conditioned_matrix_that_is_positive_definite():
    size = 9
    basis, _ = np.linalg.qr(normal(size, size, seed=16))
    a = basis @ np.diag(np.logspace(-8, 0, size)) @ basis.T
    a = (a + a.T) / 2
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(a))
    assert added == 0
    assert_close(factor @ factor.T, a)
    # Backward stable, so the factor itself is off by about the condition number, 1e8, times 1e-16.
    assert_close(factor, np.linalg.cholesky(a), tolerance=1e-7)


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scaling_the_matrix_scales_the_factor(scale):
    a = positive_definite(size=9)
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(scale * a))
    assert added == 0
    assert_close(factor / np.sqrt(scale), np.linalg.cholesky(a))


@pytest.mark.parametrize("entry", [(0, 0), (4, 4), (8, 8), (8, 3), (5, 2)])
def test_nan_in_nan_out(entry):
    a = positive_definite(2, size=9)
    a[(0, *entry)] = a[(0, *entry[::-1])] = np.nan
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(a))
    assert np.isnan(factor[0]).any()
    assert np.isnan(added[0])
    assert_close(factor[1], np.linalg.cholesky(a[1]))  # and the neighbour is untouched
    assert added[1] == 0
    assert np.isnan(jax.jit(cholesky)(jnp.asarray(a))[0]).any()
