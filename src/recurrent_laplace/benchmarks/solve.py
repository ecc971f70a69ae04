"""`bench solve`: linear algebra of many small matrices, against LAPACK."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import SolveBench
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.gaussians.linalg import (
    accretive_inverse,
    cholesky,
    solve_lower,
    transpose,
    triangular_inverse,
)
from recurrent_laplace.machine.memory import require_memory

HEADINGS = ("operation-size", "ours, ms", "LAPACK, ms", "LAPACK / ours", "memory of ours, MB")


class Operation(NamedTuple):
    """Two programs for the same operation, and a function that makes their arguments from random matrices."""

    ours: Callable[..., Array]
    reference: Callable[..., Array]
    arguments: Callable[[Float[Array, "N M M"]], tuple[Array, ...]]


# A reference makes its LAPACK calls one after the other, since concurrent calls can hang.


def _lapack_inverse(factor: Array) -> Array:
    eye = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    return jax.lax.linalg.triangular_solve(factor, eye, left_side=True, lower=True)


def _lapack_solve(factor: Array, b: Array) -> Array:
    return jax.lax.linalg.triangular_solve(factor, b[..., None], left_side=True, lower=True)[..., 0]


def _positive(a: Array) -> Array:
    return jnp.eye(a.shape[-1], dtype=a.dtype) + a @ transpose(a) / a.shape[-1]


def _lower(a: Array) -> Array:
    return jnp.eye(a.shape[-1], dtype=a.dtype) + jnp.tril(a) / (2 * a.shape[-1])


def _accretive(a: Array) -> Array:
    return jnp.eye(a.shape[-1], dtype=a.dtype) + (a - transpose(a)) / a.shape[-1] ** 0.5


OPERATIONS = {
    "cholesky": Operation(cholesky, jnp.linalg.cholesky, lambda a: (_positive(a),)),
    "triangular-inverse": Operation(triangular_inverse, _lapack_inverse, lambda a: (_lower(a),)),
    "triangular-solve": Operation(solve_lower, _lapack_solve, lambda a: (_lower(a), a[..., 0])),
    "accretive-inverse": Operation(accretive_inverse, jnp.linalg.inv, lambda a: (_accretive(a),)),
}


def title(bench: SolveBench) -> str:
    """Title of the table, with the measured sizes."""
    return f"Batches of {bench.count} small matrices, float32: ours, and LAPACK through jax.numpy.linalg."


def run(bench: SolveBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per operation and size; the ratio is reference / ours."""
    for size in bench.sizes:
        needed = 6 * 4 * bench.count * size**2
        require_memory(needed, f"bench solve --sizes {size}", "Take a smaller --count.")
    for name in bench.only:
        operation = OPERATIONS[name]
        for size in bench.sizes:
            progress(f"{name}-{size}: compile, then time in turn with LAPACK")
            args = operation.arguments(jax.random.normal(jax.random.key(0), (bench.count, size, size)))
            ours, peak_mb = compile_program(operation.ours, *args)
            programs = {"ours": ours, "reference": compile_program(operation.reference, *args)[0]}
            times = time_together(programs, dict.fromkeys(programs, args), bench.repeats, bench.seconds)
            ratio = times["reference"] / times["ours"]
            yield Row(f"{name}-{size}", times["ours"], times["reference"], ratio, peak_mb)
