"""Recursive factorisations against NumPy, and their derivatives against `jnp.linalg`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax.test_util import check_grads
from support.registry import assert_close

from recurrent_laplace.gaussians import linalg
from recurrent_laplace.gaussians.linalg import (
    accretive_inverse,
    cholesky,
    cholesky_with_added,
    solve_lower,
    solve_lower_transposed,
    triangular_inverse,
)

# Around one, two and four base blocks of 8, and the size of the paper's beliefs.
SIZES = (1, 2, 7, 8, 9, 16, 17, 24, 33, 64)


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def positive_definite(*lead, size, seed=0):
    root = normal(*lead, size, size, seed=seed) / np.sqrt(size)
    return np.eye(size) + root @ np.swapaxes(root, -1, -2)


def lower(*lead, size, seed=0):
    return np.linalg.cholesky(positive_definite(*lead, size=size, seed=seed))


def accretive(*lead, size, seed=0):
    """Matrix with a positive-definite symmetric part and a skew part of the same magnitude."""
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


# The larger sizes take seconds to compile: float32 at one size below a base block and one above.
@pytest.mark.parametrize(
    ("size", "dtype"), [*((size, jnp.float64) for size in SIZES), (7, jnp.float32), (17, jnp.float32)]
)
def test_values_are_numpys(size, dtype):
    # The number of leading axes cycles with the sizes, so that each occurs below and above a base block.
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
    assert np.array_equal(added, np.zeros(lead))
    assert upper_is_zero(inverse)
    assert_close(inverse, np.linalg.inv(exact[1]))
    assert_close(general_inverse, np.linalg.inv(exact[2]))
    column = exact[3][..., None]
    assert_close(solved, np.linalg.solve(exact[1], column)[..., 0])
    assert_close(solved_transposed, np.linalg.solve(np.swapaxes(exact[1], -1, -2), column)[..., 0])


@pytest.mark.parametrize("size", [3, 9])
def test_upper_triangle_of_a_factor_is_ignored(size):
    factor = lower(size=size)
    b = normal(size, seed=4)
    noisy = jnp.asarray(factor + np.triu(normal(size, size, seed=5), 1))
    for solve, trans in ((solve_lower, "N"), (solve_lower_transposed, "T")):
        expected = scipy.linalg.solve_triangular(factor, b, lower=True, trans=trans)
        assert_close(solve(noisy, jnp.asarray(b)), expected)
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
    "triangular_inverse": (triangular_inverse, lambda factor: jnp.linalg.inv(jnp.tril(factor)), lower),
    "accretive_inverse": (accretive_inverse, jnp.linalg.inv, accretive),
}
# Below the base block and above it.
derivative_sizes = pytest.mark.parametrize("size", [5, 9])


def derivatives(function, arguments, tangents, cotangent):
    """Value, forward-mode and reverse-mode derivatives."""
    value, forward = jax.jvp(function, arguments, tangents)
    return value, forward, jax.vjp(function, *arguments)[1](cotangent)


@derivative_sizes
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_jax(name, size):
    ours, theirs, make = FUNCTIONS[name]
    a = jnp.asarray(make(2, size=size))
    tangent = jnp.asarray(normal(2, size, size, seed=7))
    if name == "cholesky":
        tangent = tangent + jnp.swapaxes(tangent, -1, -2)
    cotangent = jnp.asarray(normal(2, size, size, seed=8))
    if name != "accretive_inverse":
        cotangent = jnp.tril(cotangent)
    expected = derivatives(theirs, (a,), (tangent,), cotangent)
    assert np.abs(expected[1]).max() > 1e-2
    assert_close(jax.jit(lambda: derivatives(ours, (a,), (tangent,), cotangent))(), expected)


@derivative_sizes
@pytest.mark.parametrize("transposed", [False, True])
def test_derivatives_of_solves_are_those_of_jax(size, transposed):
    ours = solve_lower_transposed if transposed else solve_lower

    def theirs(factor, b):
        return jax.scipy.linalg.solve_triangular(
            factor, b[..., None], lower=True, trans="T" if transposed else "N"
        )[..., 0]

    arguments = (jnp.asarray(lower(2, size=size)), jnp.asarray(normal(2, size, seed=9)))
    tangents = (jnp.asarray(normal(2, size, size, seed=10)), jnp.asarray(normal(2, size, seed=11)))
    cotangent = jnp.asarray(normal(2, size, seed=12))
    expected = derivatives(theirs, arguments, tangents, cotangent)
    assert_close(jax.jit(lambda: derivatives(ours, arguments, tangents, cotangent))(), expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_finite_differences_of_first(name):
    function, _, make = FUNCTIONS[name]
    symmetric = name == "cholesky"

    @jax.jit
    def scalar(a):
        a = (a + a.T) / 2 if symmetric else a
        return jnp.sum(jnp.sin(function(a)))

    # The error of finite differences in float64 is about 1e-5.
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


# Matrices that are not positive definite in floating point


def singular(size):
    columns = normal(size, max(1, size // 2), seed=14)
    return columns @ columns.T


def slightly_indefinite(size, dtype):
    basis, _ = np.linalg.qr(normal(size, size, seed=15))
    eigenvalues = np.linspace(1.0, 2.0, size)
    eigenvalues[0] = -np.finfo(dtype).eps
    a = basis @ np.diag(eigenvalues) @ basis.T
    return (a + a.T) / 2


@pytest.mark.parametrize(
    ("a", "dtype"),
    [
        *((singular(size), jnp.float64) for size in (2, 9, 24)),
        (singular(9), jnp.float32),
        *((np.ones((9, 9)), dtype) for dtype in (jnp.float32, jnp.float64)),
        *((slightly_indefinite(n, dtype), dtype) for n in (4, 9) for dtype in (jnp.float32, jnp.float64)),
    ],
)
def test_corrected_factor(a, dtype):
    """`L L^T = a + E` with a diagonal `E >= 0`, whose largest entry is returned and small."""
    size = a.shape[-1]
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(a, dtype))
    assert np.isfinite(factor).all()
    assert upper_is_zero(factor)
    assert added > 0
    exact = np.asarray(factor, np.float64)
    difference = exact @ exact.T - np.asarray(jnp.asarray(a, dtype), np.float64)
    # The product of two rounded factors has this error, relative to the largest diagonal entry.
    rounding = 8 * size * np.finfo(dtype).eps * np.abs(np.diagonal(a)).max()
    off = difference - np.diag(np.diagonal(difference))
    assert np.abs(off).max() <= rounding
    assert np.diagonal(difference).min() >= -rounding
    assert abs(np.diagonal(difference).max() - float(added)) <= rounding
    # The pivots of a rank-deficient matrix are rounding errors, and so is the correction.
    assert float(added) <= 100 * size * np.finfo(dtype).eps * np.abs(np.diagonal(a)).max()


def test_correction_is_returned_for_each_matrix():
    good = positive_definite(size=9)
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(np.stack([good, np.ones((9, 9)), good])))
    np.testing.assert_array_equal(added > 0, [False, True, False])
    assert_close(factor[0], np.linalg.cholesky(good))


def test_ill_conditioned_positive_definite_matrix_is_not_corrected():
    size = 9
    basis, _ = np.linalg.qr(normal(size, size, seed=16))
    a = basis @ np.diag(np.logspace(-8, 0, size)) @ basis.T
    a = (a + a.T) / 2
    factor, added = jax.jit(cholesky_with_added)(jnp.asarray(a))
    assert added == 0
    assert_close(factor @ factor.T, a)
    # The error of the factor is about the condition number, 1e8, times 1e-16.
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
    assert_close(factor[1], np.linalg.cholesky(a[1]))
    assert added[1] == 0
    assert np.isnan(jax.jit(cholesky)(jnp.asarray(a))[0]).any()


def test_chunks_of_a_large_batch_have_the_factors_of_its_matrices(monkeypatch):
    """The last chunk overlaps the one before it, and one matrix of another chunk is not positive definite."""
    a = positive_definite(3, 7, size=9)
    a[2, 1] = -a[2, 1]
    a = jnp.asarray(a)
    expected = cholesky_with_added(a)
    monkeypatch.setattr(linalg, "ENTRIES_PER_CHUNK", 4 * 9**2)
    factor, added = cholesky_with_added(a)
    assert_close(factor, expected[0])
    assert_close(added, expected[1])
    assert np.count_nonzero(added) == 1
