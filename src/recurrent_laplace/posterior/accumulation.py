"""Compensated running sums, ring buffers of recent inputs, and windows along a sequence."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.cells.memory import select

HISTORY_SEGMENTS = 4
"""Segments of a sequence with an unlimited window; each is padded to the history at its end only."""

HISTORY_CAPACITY = 64
"""Initial capacity, in inputs, of a state with an unlimited window."""


class RunningSum(eqx.Module):
    """Compensated sum: the total and its accumulated rounding error (Knuth's two-sum).

    A plain float32 sum stalls once it is a hundred thousand times its terms.
    """

    total: Float[Array, "..."]
    lost: Float[Array, "..."]

    @classmethod
    def start(cls, value: Float[Array, "..."]) -> "RunningSum":
        """Sum that starts at `value`."""
        return cls(value, jnp.zeros_like(value))

    def value(self) -> Float[Array, "..."]:
        """Sum corrected by the accumulated rounding error."""
        return self.total + self.lost

    def add(self, term: Float[Array, "..."]) -> "RunningSum":
        """Add a term."""
        total = self.total + term
        added = total - self.total
        lost = (self.total - (total - added)) + (term - added)
        return RunningSum(total, self.lost + lost)

    def relax(self, keep: float | Float[Array, ""], rest: Float[Array, "..."]) -> "RunningSum":
        """Interpolate to `keep * sum + (1 - keep) * rest`."""
        if isinstance(keep, float) and keep == 1:
            return self
        return RunningSum(keep * self.total, keep * self.lost).add((1 - keep) * rest)


class Window(eqx.Module):
    """Ring buffer of the most recent projected inputs."""

    projected: Float[Array, "*lead W G"]
    count: Int[Array, "*lead"]

    @classmethod
    def start(cls, size: int, like: jax.ShapeDtypeStruct) -> "Window":
        """Empty buffer for `size` inputs of the shape and type of `like`."""
        return cls(jnp.zeros((size, *like.shape), like.dtype), jnp.zeros((), jnp.int32))

    @property
    def size(self) -> int:
        """Capacity of the buffer."""
        return self.projected.shape[-2]

    def push(self, projected: Float[Array, " G"]) -> "Window":
        """Insert an input, in place of the oldest if the buffer is full."""
        return Window(self.projected.at[self.count % self.size].set(projected), self.count + 1)

    def valid(self) -> Bool[Array, " W"]:
        """Mask of the slots that hold an input."""
        return jnp.arange(self.size) < self.count

    def doubled(self) -> "Window":
        """Double the capacity; valid only before the buffer has wrapped around."""
        projected = jnp.concatenate([self.projected, jnp.zeros_like(self.projected)], axis=-2)
        return Window(projected, self.count)

    def refuse_if_full(self) -> "Window":
        """Raise an error inside a compiled function if an unlimited history has no room for another input."""
        projected = eqx.error_if(
            self.projected,
            self.count >= self.size,
            f"the history is full with {self.size} inputs, and a compiled update cannot grow it: "
            "start from posterior.init(capacity=...) with the length of the longest history.",
        )
        return Window(projected, self.count)


def accumulate(
    total: RunningSum,
    prior: RunningSum,
    terms: Float[Array, "T ..."],
    resets: Bool[Array, " T"] | None,
    forgetting: float | Float[Array, ""],
) -> tuple[RunningSum, Float[Array, "T ..."]]:
    """Sum after the last of consecutive steps, and its values after each; a reset returns to `prior`."""

    def add(step: Array, state: tuple[RunningSum, Array]) -> tuple[RunningSum, Array]:
        total, terms = state
        past = total if resets is None else select(resets[step], prior, total)
        total = past.relax(forgetting, prior.total).add(terms[step])
        return total, terms.at[step].set(total.value())

    # Overwrites the terms: they are the largest array, and allocating another takes time.
    return jax.lax.fori_loop(0, terms.shape[0], add, (total, terms))


def map_windows(
    of_window: Callable[[Array, Int[Array, " W"], Bool[Array, " W"]], Float[Array, "..."]],
    steps: int,
    window: int | None,
    resets: Bool[Array, " T"] | None,
) -> Float[Array, "T ..."]:
    """Apply a function to each step, with the indices of the last `window` inputs and a mask of those valid.

    Inputs before the last reset are not valid. None is an unlimited window.
    """
    # First input of each step's episode: the step of the last reset.
    start = jnp.zeros(steps, int)
    if resets is not None:
        start = jax.lax.cummax(jnp.where(resets, jnp.arange(steps), 0))

    def run(first: int, last: int) -> Array:
        width = last if window is None else min(window, last)

        def of_step(step: Array) -> Array:
            newest = last - 1 if window is None else step
            indices = newest - width + 1 + jnp.arange(width)
            valid = (indices >= start[step]) & (indices <= step)
            return of_window(step, jnp.maximum(indices, 0), valid)

        return jax.lax.map(of_step, jnp.arange(first, last))

    if window is not None:
        return run(0, steps)
    segments = min(HISTORY_SEGMENTS, steps)
    ends = [steps * i // segments for i in range(segments + 1)]
    return jnp.concatenate([run(first, last) for first, last in itertools.pairwise(ends)])
