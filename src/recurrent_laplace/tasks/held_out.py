"""Held-out test tasks, and the numbers of steps after which agents are evaluated."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.tasks.base import split_like

LENGTHS = (0, 1, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 100, 200)
"""Numbers of steps after which an agent is evaluated: the paper's."""

TEST_SEED = 2024
"""Seed of the test tasks of every run; fewer tasks are the first of more."""

TASKS_AT_ONCE = 128
"""Test tasks per chunk of an evaluation, which bounds its memory."""


def test_keys(tasks: int) -> tuple[Array, Array]:
    """Keys of the test problems, and of the randomness within them."""
    problem, play = jax.random.split(jax.random.key(TEST_SEED))
    return split_like(problem, tasks), split_like(play, tasks)


def at_lengths(
    series: Float[Array, " T"], first: Array | float = jnp.nan, lengths: Sequence[int] = LENGTHS
) -> Float[Array, " L"]:
    """Entries of a series over steps 1 .. T at `lengths`; `first` is the entry at length 0."""
    whole = jnp.concatenate([jnp.asarray(first, series.dtype)[None], series])
    return whole[jnp.array(lengths)]
