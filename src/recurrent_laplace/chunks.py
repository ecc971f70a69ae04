"""Computations over a long leading axis, in chunks."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

Result = TypeVar("Result", bound=PyTree[Array])


def chunk_size(count: int, most: int) -> int:
    """Chunk size of `map_chunks`: the smallest that needs no more chunks than size `most` does."""
    return -(-count // -(-count // most))


def largest_divisor(count: int, most: int) -> int:
    """Largest divisor of `count` that is at most `most`."""
    return max(size for size in range(1, min(most, count) + 1) if count % size == 0)


def map_chunks(function: Callable[..., Result], items: PyTree[Array], most: int) -> Result:
    """Apply `function` along the leading axis of `items`, to at most `most` items at a time.

    All chunks have the same size, so that one program serves for all; if the size does not divide the number
    of items, the last chunk overlaps the one before it.
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
        current, results = state
        results = jax.tree.map(
            lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, start(chunk), 0),
            results,
            function(current),
        )
        # The next slice is part of the carry: otherwise XLA would slice again for every number computed from
        # it.
        return take(chunk + 1), results

    shapes = jax.eval_shape(function, take(0))
    results = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape[1:]), leaf.dtype), shapes)
    return jax.lax.fori_loop(0, -(-count // size), step, (take(0), results))[1]
