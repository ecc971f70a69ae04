"""Recurrent memory: a cell, optional cells below it, and an affine readout."""

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
    """Affine map `weight @ h + bias` along the last axis.

    **Arguments:** `weight` of shape `(F, H)`; `bias` of shape `(F,)`, or None.

    ```python
    readout = rl.Affine(jnp.ones((2, 8)), bias=None)
    memory = rl.Memory(rl.GRU(3, 8, key=jax.random.key(0)), readout=readout)
    ```
    """

    weight: Float[Array, "F H"]
    bias: Float[Array, " F"] | None

    @classmethod
    def init(cls, in_size: int, out_size: int, *, dtype: Any = None, key: Array) -> "Affine":
        """Initialise uniformly in +-1/sqrt(in_size), as `torch.nn.Linear` and `equinox.nn.Linear`.

        **Arguments:** `in_size` H, `out_size` F, `dtype` (default: JAX's float), and the `key`.
        """
        limit = in_size**-0.5
        dtype = dtype or jnp.result_type(float)
        key_weight, key_bias = jax.random.split(key)
        weight = jax.random.uniform(key_weight, (out_size, in_size), dtype, -limit, limit)
        return cls(weight, jax.random.uniform(key_bias, (out_size,), dtype, -limit, limit))

    def __call__(self, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F"]:
        out = h @ self.weight.T
        return out if self.bias is None else out + self.bias


class Trace(eqx.Module):
    """States of a memory after one input, or along a sequence with a leading time axis.

    Projected inputs, carries and hidden states are those of the memory's own cell, not of cells below it.
    """

    projected: Float[Array, "*lead G"]
    carries: Carry
    hidden: Float[Array, "*lead H"]
    features: Float[Array, "*lead F"]


class Memory(eqx.Module):
    """Recurrent cell with features `phi = R h + r`, or `phi = h` without a readout.

    The readout is not fed back.

    **Arguments:**

    - `cell`: the cell whose hidden state is read out, and in which Jacobians are taken.
    - `features`: size F of a new readout, initialised with `key`. None: no new readout.
    - `readout`: an existing `rl.Affine`, instead of `features`.
    - `below`: cells of a stacked network between the inputs and `cell`, from the bottom up. The carry of a
      stack is `(carries below, carry of cell)`.
    - `key`: random key, needed with `features`.

    ```python
    k1, k2 = jax.random.split(jax.random.key(0))
    memory = rl.Memory(rl.LSTM(3, 128, key=k1), features=64, key=k2)
    carry, phi = memory.step(memory.init(), jnp.ones(3))
    jacobian = memory.jacobian(carry, jnp.ones(3))  # (64, 128), evaluated at that carry
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
                raise ValueError("features and readout exclude each other: give one of them.")
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
        """Length D of an input, or None if any is accepted."""
        return (*self.below, self.cell)[0].input_size

    @property
    def feature_size(self) -> int:
        """Number F of features."""
        return self.cell.hidden_size if self.readout is None else self.readout.weight.shape[-2]

    @property
    def dtype(self) -> Any:
        """Floating-point type of the hidden state."""
        return jax.eval_shape(lambda: self.cell.hidden(self.cell.init())).dtype

    def init(self) -> Carry:
        """Carry before any input."""
        top = self.cell.init()
        return (tuple(cell.init() for cell in self.below), top) if self.below else top

    def step(self, carry: Carry, x: Array) -> tuple[Carry, Float[Array, " F"]]:
        """Consume one input of shape `(D,)` and return the next carry and its features."""
        carry, _ = self.consume(carry, x)
        return carry, self.read(carry)

    def consume(self, carry: Carry, x: Array) -> tuple[Carry, Float[Array, " G"]]:
        """Consume one input and return the next carry and the projected input of `cell`."""
        check_shape("x", x, (self.input_size or "D",))
        lower, top = carry if self.below else ((), carry)
        next_lower = []
        for cell, cell_carry in zip(self.below, lower, strict=True):
            next_lower.append(cell.advance(cell_carry, cell.project(x)))
            x = cell.hidden(next_lower[-1])
        projected = self.cell.project(x)
        top = self.cell.advance(top, projected)
        return ((tuple(next_lower), top) if self.below else top), projected

    def trace(self, carry: Carry, projected: Float[Array, " G"]) -> Trace:
        """Trace of one step, from the results of `consume`."""
        top = self.top(carry)
        hidden = self.cell.hidden(top)
        return Trace(projected, top, hidden, self.features(hidden))

    def top(self, carry: Carry) -> Carry:
        """Carry of `cell`, without those of the cells below."""
        return carry[1] if self.below else carry

    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        """Hidden state of `cell`."""
        return self.cell.hidden(self.top(carry))

    def read(self, carry: Carry) -> Float[Array, " F"]:
        """Features of a carry."""
        return self.features(self.hidden(carry))

    def features(self, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F"]:
        """Features of hidden states."""
        return h if self.readout is None else self.readout(h)

    def jacobian(self, carry: Carry, x: Array) -> Float[Array, "F H"]:
        """Jacobian `d features / d h` of one step on `x`, evaluated at `carry` (an LSTM's `c` held fixed)."""
        _, projected = self.consume(carry, x)
        return self.project_jacobian(self.cell.state_jacobian(self.top(carry), projected))

    def project_jacobian(self, jacobian: Float[Array, "H H"]) -> Float[Array, "F H"]:
        """Multiply a state Jacobian by the readout."""
        return jacobian if self.readout is None else self.readout.weight @ jacobian

    def unroll(self, inputs: Array, resets: Bool[Array, " T"] | None = None) -> Trace:
        """Consume a sequence of shape `(T, D)`; a reset applies before the input of its step."""
        check_shape("inputs", inputs, ("T", self.input_size or "D"))
        for cell in self.below:
            _, carries = _scan(cell, inputs, resets)
            inputs = jax.vmap(cell.hidden)(carries)
        projected, carries = _scan(self.cell, inputs, resets)
        hidden = jax.vmap(self.cell.hidden)(carries)
        return Trace(projected, carries, hidden, self.features(hidden))


# Compiled once per shape: a scan outside of a user's own `jit` would be compiled again at every call.
@jax.jit
def _scan(cell: AbstractCell, inputs: Float[Array, "T D"], resets: Array | None) -> tuple[Array, Carry]:
    """Run a cell over a sequence and return its projected inputs and the carry after each."""
    start = cell.init()
    projected = cell.project(inputs)

    def step(carry: Carry, xs: tuple[Array, Array | None]) -> tuple[Carry, Carry]:
        projected, reset = xs
        if reset is not None:
            carry = select(reset, start, carry)
        carry = cell.advance(carry, projected)
        return carry, carry

    _, carries = jax.lax.scan(step, start, (projected, resets))
    return projected, carries


def select(condition: Bool[Array, ""] | bool, yes: Any, no: Any) -> Any:
    """Choose `yes` where `condition` holds and `no` elsewhere, leaf by leaf."""
    return jax.tree.map(lambda y, n: jnp.where(condition, y, n), yes, no)
