"""Long work a part at a time."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

Result = TypeVar("Result", bound=PyTree[Array])


def chunk_size(count: int, most: int) -> int:
    """How many of `count` items `map_chunks` works on together: as few chunks as can be, of one size."""
    return -(-count // -(-count // most))


def largest_divisor(count: int, most: int) -> int:
    """The size, up to `most`, of the largest parts that `count` items come out even in."""
    return max(size for size in range(1, min(most, count) + 1) if count % size == 0)


def map_chunks(function: Callable[..., Result], items: PyTree[Array], most: int) -> Result:
    """`function` of all items, along their leading axis, for at most `most` of them at a time.

    Chunks are of one size, so that there is one program; where they do not come out even, the last overlaps
    what is before it.
    """
    count = jax.tree.leaves(items)[0].shape[0]
    size = chunk_size(count, most)
    if size == count:
        return function(items)

    def start(chunk: Array | int) -> Array:
        return jnp.minimum(chunk * size, count - size)

    def take(chunk: Array | int) -> PyTree[Array]:
        return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start(chunk), size), items)

    def step(chunk: Array, state: tuple[PyTree[Array], Result]) -> tuple[PyTree[Array], Result]:
        now, results = state
        results = jax.tree.map(
            lambda all, part: jax.lax.dynamic_update_slice_in_dim(all, part, start(chunk), 0),
            results,
            function(now),
        )
        # Carried to where it is used: else XLA would take the slice anew for every number made of it.
        return take(chunk + 1), results

    shapes = jax.eval_shape(function, take(0))
    results = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape[1:]), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // size), step, (take(0), results))[1]
