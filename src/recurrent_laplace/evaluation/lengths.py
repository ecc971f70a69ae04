"""Which tasks, and after how many steps."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.tasks.base import split_like

LENGTHS = (0, 1, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 100, 200)
"""Numbers of steps after which an agent is looked at: the paper's."""

TEST_SEED = 2024
"""Test tasks are the same for every run; the first 128 of 1024 are the 128."""

TASKS_AT_ONCE = 128
"""Bounds the memory of an evaluation, whatever the number of tasks."""


def test_keys(tasks: int) -> tuple[Array, Array]:
    """Keys of the test problems, and of all that is random in them."""
    problem, play = jax.random.split(jax.random.key(TEST_SEED))
    return split_like(problem, tasks), split_like(play, tasks)


def at_lengths(
    series: Float[Array, " T"], first: Array | float = jnp.nan, lengths: Sequence[int] = LENGTHS
) -> Float[Array, " L"]:
    """The entries of a series of steps 1 .. T at `lengths`; `first` is that of length 0."""
    whole = jnp.concatenate([jnp.asarray(first, series.dtype)[None], series])
    return whole[jnp.array(lengths)]
