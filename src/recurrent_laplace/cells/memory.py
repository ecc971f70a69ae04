"""A recurrent cell and what is read from it."""

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells.base import AbstractCell, Carry
from recurrent_laplace.errors import check_shape, check_size


class Affine(eqx.Module):
    """`weight @ h + bias`."""

    weight: Float[Array, "F H"]
    bias: Float[Array, " F"] | None

    @classmethod
    def init(cls, in_size: int, out_size: int, *, dtype: Any = None, key: Array) -> "Affine":
        """Uniform in +-1/sqrt(in_size), as `torch.nn.Linear` and `equinox.nn.Linear`."""
        limit = in_size**-0.5
        dtype = dtype or jnp.result_type(float)
        key_weight, key_bias = jax.random.split(key)
        weight = jax.random.uniform(key_weight, (out_size, in_size), dtype, -limit, limit)
        return cls(weight, jax.random.uniform(key_bias, (out_size,), dtype, -limit, limit))

    def __call__(self, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F"]:
        out = h @ self.weight.T
        return out if self.bias is None else out + self.bias


class Trace(eqx.Module):
    """What a memory leaves behind on a sequence: all with a leading axis of time.

    Projected inputs and carries are those of the memory's own cell, not of layers below it.
    """

    projected: Float[Array, "T G"]
    carries: Carry
    features: Float[Array, "T F"]


class Memory(eqx.Module):
    """A recurrent cell with an optional affine readout: `phi = R h + r`, or `phi = h` without one.

    The readout is not fed back. Cells `below` stand between the inputs and `cell`, first one first:
    each one's hidden states are the next one's inputs. Their carries are part of the carry, which is then
    `(carries below, carry of cell)`; Jacobians are taken in `cell` alone.

    **Arguments:** `cell`; `features`, the size F of the readout (None: no readout) and the `key` to
    initialise it, or a `readout` that exists already; `below`, cells.

    ```python
    k1, k2 = jax.random.split(jax.random.key(0))
    memory = rl.Memory(rl.LSTM(3, 128, key=k1), features=64, key=k2)
    carry, phi = memory.step(memory.init(), jnp.ones(3))
    jacobian = memory.jacobian(carry, jnp.ones(3))  # (64, 128), at that carry
    ```
    """

    cell: AbstractCell
    readout: Affine | None
    below: tuple[AbstractCell, ...]

    def __init__(
        self,
        cell: AbstractCell,
        features: int | None = None,
        *,
        readout: Affine | None = None,
        below: Sequence[AbstractCell] = (),
        key: Array | None = None,
    ):
        if features is not None:
            check_size("features", features)
            if readout is not None:
                raise ValueError("features and readout are two ways to say one thing: give one of them.")
            if key is None:
                raise ValueError(f"key must be a JAX random key when features={features}; got None.")
            dtype = cell.hidden(cell.init()).dtype
            readout = Affine.init(cell.hidden_size, features, dtype=dtype, key=key)
        if readout is not None:
            check_shape("readout.weight", readout.weight, ("features", cell.hidden_size))
        for lower, upper in itertools.pairwise([*below, cell]):
            if upper.input_size not in (None, lower.hidden_size):
                raise ValueError(
                    f"below: a cell of {lower.hidden_size} units feeds one with {upper.input_size} inputs."
                )
        self.cell = cell
        self.readout = readout
        self.below = tuple(below)

    @property
    def input_size(self) -> int | None:
        """D: the length of an input, where it is known."""
        return (*self.below, self.cell)[0].input_size

    @property
    def feature_size(self) -> int:
        """F: the size of phi."""
        return self.cell.hidden_size if self.readout is None else self.readout.weight.shape[-2]

    @property
    def dtype(self) -> Any:
        """The floating-point type of the state."""
        return self.cell.hidden(self.cell.init()).dtype

    def init(self) -> Carry:
        """The carry before any input."""
        top = self.cell.init()
        return (tuple(cell.init() for cell in self.below), top) if self.below else top

    def step(self, carry: Carry, x: Array) -> tuple[Carry, Float[Array, " F"]]:
        """Consume one input of shape `(D,)`: the new carry and its features."""
        carry, _ = self.consume(carry, x)
        return carry, self.read(carry)

    def consume(self, carry: Carry, x: Array) -> tuple[Carry, Float[Array, " G"]]:
        """Consume one input: the new carry, and the cell's own projected input, which made it."""
        check_shape("x", x, (self.input_size or "D",))
        if not self.below:
            projected = self.cell.project(x)
            return self.cell.advance(carry, projected), projected
        lower, top = carry
        new = []
        for cell, old in zip(self.below, lower, strict=True):
            new.append(cell.advance(old, cell.project(x)))
            x = cell.hidden(new[-1])
        projected = self.cell.project(x)
        return (tuple(new), self.cell.advance(top, projected)), projected

    def top(self, carry: Carry) -> Carry:
        """The share of `cell` in a carry."""
        return carry[1] if self.below else carry

    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        """The hidden state of a carry: what is read out, and what Jacobians are taken by."""
        return self.cell.hidden(self.top(carry))

    def read(self, carry: Carry) -> Float[Array, " F"]:
        """The features of a carry."""
        return self.features(self.hidden(carry))

    def features(self, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F"]:
        """The features of hidden states."""
        return h if self.readout is None else self.readout(h)

    def jacobian(self, carry: Carry, x: Array) -> Float[Array, "F H"]:
        """`d features / d h` of one step on `x`, taken at `carry` (an LSTM's `c` held fixed)."""
        _, projected = self.consume(carry, x)
        return self.project_jacobian(self.cell.state_jacobian(self.top(carry), projected))

    def project_jacobian(self, jacobian: Float[Array, "H H"]) -> Float[Array, "F H"]:
        """A state Jacobian seen through the readout."""
        return jacobian if self.readout is None else self.readout.weight @ jacobian

    def unroll(self, inputs: Array, resets: Bool[Array, " T"] | None = None) -> Trace:
        """Consume a sequence of shape `(T, D)`; a reset acts before the input of its step."""
        check_shape("inputs", inputs, ("T", self.input_size or "D"))
        for cell in self.below:
            _, carries = _scan(cell, inputs, resets)
            inputs = jax.vmap(cell.hidden)(carries)
        projected, carries = _scan(self.cell, inputs, resets)
        return Trace(projected, carries, self.features(jax.vmap(self.cell.hidden)(carries)))


def _scan(cell: AbstractCell, inputs: Float[Array, "T D"], resets: Array | None) -> tuple[Array, Carry]:
    """A cell on a sequence: its projected inputs, and the carry after each."""
    start = cell.init()
    projected = cell.project(inputs)

    def step(carry: Carry, now: tuple[Array, Array | None]) -> tuple[Carry, Carry]:
        projected, reset = now
        if reset is not None:
            carry = select(reset, start, carry)
        carry = cell.advance(carry, projected)
        return carry, carry

    _, carries = jax.lax.scan(step, start, (projected, resets))
    return projected, carries


def select(condition: Bool[Array, ""] | bool, yes: Any, no: Any) -> Any:
    """`yes` where `condition`, else `no`, leaf by leaf."""
    return jax.tree.map(lambda y, n: jnp.where(condition, y, n), yes, no)
