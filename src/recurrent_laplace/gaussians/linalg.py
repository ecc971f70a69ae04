"""Batched factorisation of small matrices by recursive halving, without LAPACK.

On a CPU, jaxlib 0.10 can deadlock when two batched LAPACK calls run concurrently in one compiled program, and
a library cannot control which other calls share the program. These functions use matrix products and
elementwise operations only. They act on the last two axes, with any leading axes, and support forward-mode
and reverse-mode differentiation.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.chunks import map_chunks

BASE = 8
"""Largest size that is eliminated row by row instead of halved."""

ENTRIES_PER_CHUNK = 2**20
"""Matrix entries per chunk of a factorisation; larger chunks fall out of the cache, and smaller ones lose
time to launching operations."""

BLOCKS = 8
"""Number of blocks of a triangular system, unless they would be smaller than `BASE`."""


def transpose(a: Float[Array, "*lead M N"]) -> Float[Array, "*lead N M"]:
    """Swap the last two axes."""
    return jnp.swapaxes(a, -1, -2)


def _split(n: int) -> int:
    return BASE * (((n + BASE - 1) // BASE + 1) // 2)


def _take(a: Array, index: Array | int, axis: int) -> Array:
    return jax.lax.dynamic_index_in_dim(a, index, axis, keepdims=False)


def _blocks(a11: Array, a12: Array, a21: Array, a22: Array) -> Array:
    return jnp.concatenate(
        [jnp.concatenate([a11, a12], axis=-1), jnp.concatenate([a21, a22], axis=-1)], axis=-2
    )


def smallest_precision(dtype: Any) -> float:
    """Smallest precision that counts as positive: inverses, and sums of them, are finite."""
    return float(jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps)


# Cholesky factor


def cholesky_with_added(
    a: Float[Array, "*lead N N"],
) -> tuple[Float[Array, "*lead N N"], Float[Array, "*lead"]]:
    """Cholesky factor `L` with `L L^T = a`, and the largest correction added to a pivot.

    The correction is exactly zero unless `a` is not positive definite in floating point. A pivot below the
    floor of `N * eps` times its diagonal entry consists of rounding errors: it is raised to the floor, and
    its row is decoupled from the others. Corrections of singular matrices are about as large as the floor; in
    rare float32 cases they reach a hundredth of the largest entry. NaN inputs give NaN outputs.
    """
    diagonal = jnp.diagonal(a, axis1=-2, axis2=-1)
    reference = jnp.where(diagonal > 0, diagonal, jnp.max(diagonal, axis=-1, keepdims=True))
    floor = jnp.maximum(a.shape[-1] * jnp.finfo(a.dtype).eps * reference, smallest_precision(a.dtype))
    if a.size <= ENTRIES_PER_CHUNK:
        return _cholesky(a, floor, with_inverse=False)[::2]

    def factorise(chunk: tuple[Array, Array]) -> tuple[Array, Array]:
        return _cholesky(*chunk, with_inverse=False)[::2]

    n, lead = a.shape[-1], a.shape[:-2]
    flat = a.reshape(-1, n, n), floor.reshape(-1, n)
    factor, added = map_chunks(factorise, flat, max(ENTRIES_PER_CHUNK // n**2, 1))
    return factor.reshape(a.shape), added.reshape(lead)


@jax.custom_jvp
def cholesky(a: Float[Array, "*lead N N"]) -> Float[Array, "*lead N N"]:
    """Cholesky factor `L` with `L L^T = a`, for symmetric positive-definite `a`."""
    return cholesky_with_added(a)[0]


@cholesky.defjvp
def _cholesky_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    factor = cholesky(*primals)
    inverse = triangular_inverse(factor)
    (da,) = tangents
    middle = inverse @ ((da + transpose(da)) / 2) @ transpose(inverse)
    n = factor.shape[-1]
    return factor, factor @ (jnp.tril(middle) * (1 - 0.5 * jnp.eye(n, dtype=factor.dtype)))


@functools.partial(jax.jit, static_argnames="with_inverse")
def _cholesky(a: Array, floor: Array, with_inverse: bool) -> tuple[Array, Array, Array]:
    n = a.shape[-1]
    if n <= BASE:
        return _cholesky_base(a, floor)
    h = _split(n)
    l11, inv11, added1 = _cholesky(a[..., :h, :h], floor[..., :h], True)
    l21 = a[..., h:, :h] @ transpose(inv11)
    schur = a[..., h:, h:] - l21 @ transpose(l21)
    l22, inv22, added2 = _cholesky(schur, floor[..., h:], with_inverse)
    zeros = jnp.zeros_like(transpose(l21))
    inverse = inv22
    if with_inverse:
        inverse = _blocks(inv11, zeros, -inv22 @ (l21 @ inv11), inv22)
    return _blocks(l11, zeros, l21, l22), inverse, jnp.maximum(added1, added2)


def _cholesky_base(a: Array, floor: Array) -> tuple[Array, Array, Array]:
    # Elimination on [a | I] leaves [L^T | L^-1]. Raised rows are left out of the inverse, where they would
    # only spread rounding errors.
    n = a.shape[-1]
    rows = jnp.concatenate([a, jnp.broadcast_to(jnp.eye(n, dtype=a.dtype), a.shape)], axis=-1)

    def scaled(rows: Array, j: Array | int) -> tuple[Array, Array]:
        row, least = _take(rows, j, -2), _take(floor, j, -1)
        pivot = _take(row, j, -1)
        decoupled = jnp.where(jnp.arange(2 * n) == j, jnp.sqrt(least)[..., None], 0)
        row = jnp.where((pivot <= least)[..., None], decoupled, row * jax.lax.rsqrt(pivot)[..., None])
        return row, jnp.where(pivot > least, 0, least - pivot)

    def body(j: Array, state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        rows, row, done, added = state
        done = jnp.where((jnp.arange(n) == j)[:, None], row[..., None, :], done)
        # By symmetry, row j is also column j of the factor.
        rows = rows - row[..., :n, None] * row[..., None, :]
        # The next row is scaled here and carried: where it is used, XLA would take its root for every entry.
        row, correction = scaled(rows, jnp.minimum(j + 1, n - 1))
        return rows, row, done, jnp.maximum(added, jnp.where(j + 1 < n, correction, 0))

    row, added = scaled(rows, 0)
    _, _, done, added = jax.lax.fori_loop(0, n, body, (rows, row, jnp.zeros_like(rows), added))
    return jnp.tril(transpose(done[..., :n])), jnp.tril(done[..., n:]), added


# Inverses


@jax.custom_jvp
def triangular_inverse(factor: Float[Array, "*lead N N"]) -> Float[Array, "*lead N N"]:
    """Inverse of a lower-triangular matrix."""
    return _triangular_inverse(factor)


@triangular_inverse.defjvp
def _triangular_inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = triangular_inverse(*primals)
    return inverse, -inverse @ (jnp.tril(tangents[0]) @ inverse)


@jax.jit
def _triangular_inverse(factor: Array) -> Array:
    n = factor.shape[-1]
    if n <= BASE:
        return _triangular_inverse_base(factor)
    h = _split(n)
    first, second = factor[..., :h, :h], factor[..., h:, h:]
    if 2 * h == n:
        # Independent halves of equal size are batched, which takes half the operations.
        both = _triangular_inverse(jnp.stack([first, second], axis=-3))
        inv11, inv22 = both[..., 0, :, :], both[..., 1, :, :]
    else:
        inv11, inv22 = _triangular_inverse(first), _triangular_inverse(second)
    inv21 = -inv22 @ (factor[..., h:, :h] @ inv11)
    return _blocks(inv11, jnp.zeros_like(transpose(inv21)), inv21, inv22)


def _triangular_inverse_base(factor: Array) -> Array:
    n = factor.shape[-1]

    def body(i: Array, inverse: Array) -> Array:
        # Rows from i on are still zero.
        row = _take(factor, i, -2)
        is_i = jnp.arange(n) == i
        inverse_row = (is_i - jnp.einsum("...k,...kj->...j", row, inverse)) / _take(row, i, -1)[..., None]
        return jnp.where(is_i[:, None], inverse_row[..., None, :], inverse)

    return jax.lax.fori_loop(0, n, body, jnp.zeros_like(factor))


@jax.custom_jvp
def accretive_inverse(a: Float[Array, "*lead N N"]) -> Float[Array, "*lead N N"]:
    """Inverse of a matrix whose symmetric part is positive definite, such as `I + skew`.

    No pivoting is needed, because every leading block and every Schur complement has the same property.
    """
    return _accretive_inverse(a)


@accretive_inverse.defjvp
def _accretive_inverse_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    inverse = accretive_inverse(*primals)
    return inverse, -inverse @ (tangents[0] @ inverse)


@jax.jit
def _accretive_inverse(a: Array) -> Array:
    n = a.shape[-1]
    if n <= BASE:
        return _gauss_jordan(a)
    h = _split(n)
    inv11 = _accretive_inverse(a[..., :h, :h])
    a12, a21 = a[..., :h, h:], a[..., h:, :h]
    left = a21 @ inv11
    inv22 = _accretive_inverse(a[..., h:, h:] - left @ a12)
    upper = -(inv11 @ a12) @ inv22
    return _blocks(inv11 - upper @ left, upper, -inv22 @ left, inv22)


def _gauss_jordan(a: Array) -> Array:
    n = a.shape[-1]

    def body(j: Array, a: Array) -> Array:
        # One exchange step: swaps the roles of the j-th unknown and the j-th right-hand side.
        is_j = jnp.arange(n) == j
        row, column = _take(a, j, -2), _take(a, j, -1)
        pivot = 1 / _take(row, j, -1)[..., None]
        column = jnp.where(is_j, 0, column)
        row = jnp.where(is_j, pivot, row * pivot)
        a = jnp.where(is_j, 0, a) - column[..., None] * row[..., None, :]
        return jnp.where(is_j[:, None], row[..., None, :], a)

    return jax.lax.fori_loop(0, n, body, a)


# Triangular systems


def solve_lower(factor: Float[Array, "*#lead N N"], b: Float[Array, "*#lead N"]) -> Float[Array, "*#lead N"]:
    """Solve `L x = b` by substitution, for vectors `b` along the last axis; leading axes broadcast."""
    return _solve(factor, b, transposed=False)


def solve_lower_transposed(
    factor: Float[Array, "*#lead N N"], b: Float[Array, "*#lead N"]
) -> Float[Array, "*#lead N"]:
    """Solve `L^T x = b` by substitution, for vectors `b` along the last axis; leading axes broadcast."""
    return _solve(factor, b, transposed=True)


# Compiled once per shape, as `custom_linear_solve` outside of `jit` would be compiled at every call.
@functools.partial(jax.jit, static_argnames="transposed")
def _solve(factor: Array, b: Array, transposed: bool) -> Array:
    lead = jnp.broadcast_shapes(factor.shape[:-2], b.shape[:-1])
    b = jnp.broadcast_to(b, (*lead, b.shape[-1]))

    def product(x: Array) -> Array:
        # Used by derivatives only.
        matrix = jnp.tril(factor)
        return jnp.einsum("...ij,...j->...i", transpose(matrix) if transposed else matrix, x)

    return jax.lax.custom_linear_solve(
        product,
        b,
        lambda _, rhs: _substitute(factor, rhs, transposed),
        lambda _, rhs: _substitute(factor, rhs, not transposed),
    )


@functools.partial(jax.jit, static_argnames="transposed")
def _substitute(lower: Array, b: Array, transposed: bool) -> Array:
    # Each block is solved by the inverse of its triangle, then eliminated from the remaining right-hand side.
    n = b.shape[-1]
    size = max(BASE, -(-n // BLOCKS))
    solved, rest = [], b
    for start in reversed(range(0, n, size)) if transposed else range(0, n, size):
        end = min(start + size, n)
        inverse = _triangular_inverse(lower[..., start:end, start:end])
        if transposed:
            x = _row_times(rest[..., start:], inverse)
            rest = rest[..., :start] - _row_times(x, lower[..., start:end, :start])
        else:
            x = _row_times(rest[..., : end - start], transpose(inverse))
            rest = rest[..., end - start :] - _row_times(x, transpose(lower[..., end:, start:end]))
        solved.append(x)
    return jnp.concatenate(solved[::-1] if transposed else solved, axis=-1)


def _row_times(row: Array, matrix: Array) -> Array:
    return jnp.einsum("...i,...ij->...j", row, matrix)
