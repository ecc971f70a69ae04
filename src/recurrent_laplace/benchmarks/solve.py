"""`bench solve`: batches of small matrices, ours against LAPACK's."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from rich.table import Table

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import SolveBench
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.experiments.memory import require_memory
from recurrent_laplace.gaussians.factorization import (
    accretive_inverse,
    cholesky,
    solve_lower,
    transpose,
    triangular_inverse,
)


class Operation(NamedTuple):
    """Two programs for the same, and how to make their arguments out of random matrices."""

    ours: Callable[..., Array]
    reference: Callable[..., Array]
    arguments: Callable[[Float[Array, "N M M"]], tuple[Array, ...]]


# A reference that calls LAPACK more than once does so one call after the other: only two side by side hang.


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
    """What is measured."""
    return f"Batches of {bench.count} small matrices, float32: ours, and LAPACK's through jax.numpy.linalg."


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(
        ("operation-size", "ours, ms", "LAPACK, ms", "LAPACK / ours", "memory of ours, MB"), rows
    )


def run(bench: SolveBench, say: Say) -> Iterator[Row]:
    """A row for each operation and size; the ratio is reference / ours."""
    for size in bench.sizes:
        needed = 6 * 4 * bench.count * size**2
        require_memory(needed, f"bench solve --sizes {size}", "Take a smaller --count.")
    for name in bench.only:
        operation = OPERATIONS[name]
        for size in bench.sizes:
            say(f"{name}-{size}: compile, then take turns with LAPACK")
            args = operation.arguments(jax.random.normal(jax.random.key(0), (bench.count, size, size)))
            ours, peak_mb = compile_program(operation.ours, *args)
            programs = {"ours": ours, "reference": compile_program(operation.reference, *args)[0]}
            times = time_together(programs, dict.fromkeys(programs, args), bench.repeats, bench.seconds)
            ratio = times["reference"] / times["ours"]
            yield Row(f"{name}-{size}", times["ours"], times["reference"], ratio, peak_mb)
