"""Compensated running sums, and ring buffers of recent inputs."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


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
