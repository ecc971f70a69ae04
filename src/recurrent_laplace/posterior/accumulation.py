"""Running sums that do not drift, and windows over the past."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class RunningSum(eqx.Module):
    """A sum and the rounding error it has gathered (Knuth's two-sum).

    Plain float32 stalls once the sum is a hundred thousand times its terms.
    """

    total: Float[Array, "..."]
    lost: Float[Array, "..."]

    @classmethod
    def start(cls, value: Float[Array, "..."]) -> "RunningSum":
        """A sum that holds `value`."""
        return cls(value, jnp.zeros_like(value))

    def value(self) -> Float[Array, "..."]:
        """The sum, with what was lost put back."""
        return self.total + self.lost

    def add(self, term: Float[Array, "..."]) -> "RunningSum":
        """The sum with one more term."""
        total = self.total + term
        took = total - self.total
        lost = (self.total - (total - took)) + (term - took)
        return RunningSum(total, self.lost + lost)

    def relax(self, keep: float, rest: Float[Array, "..."]) -> "RunningSum":
        """`keep` of the sum and `1 - keep` of `rest`."""
        if keep == 1:
            return self
        return RunningSum(keep * self.total, keep * self.lost).add((1 - keep) * rest)


class Window(eqx.Module):
    """A ring of the last projected inputs, for use one step at a time."""

    projected: Float[Array, "W G"]
    count: Int[Array, ""]

    @classmethod
    def start(cls, size: int, like: jax.ShapeDtypeStruct) -> "Window":
        """An empty ring for inputs of the shape of `like`."""
        return cls(jnp.zeros((size, *like.shape), like.dtype), jnp.zeros((), jnp.int32))

    @property
    def size(self) -> int:
        """How many inputs the ring holds at most."""
        return self.projected.shape[0]

    def push(self, projected: Float[Array, " G"]) -> "Window":
        """The ring with one more input, in the place of the oldest."""
        return Window(self.projected.at[self.count % self.size].set(projected), self.count + 1)

    def valid(self) -> Bool[Array, " W"]:
        """Which places hold an input."""
        return jnp.arange(self.size) < self.count

    def doubled(self) -> "Window":
        """The same inputs with twice the room; right only while the ring has not wrapped."""
        return Window(jnp.concatenate([self.projected, jnp.zeros_like(self.projected)]), self.count)
