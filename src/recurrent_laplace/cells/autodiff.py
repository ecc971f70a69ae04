"""Any step function as a cell."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractCell, Carry
from recurrent_laplace.errors import check_size


def _carry_itself(carry: Carry) -> Array:
    return carry


class Autodiff(AbstractCell):
    """Any callable `step(carry, x) -> carry` as a cell; its Jacobian by forward mode.

    `hidden` picks the state that Jacobians are taken by: entries of the carry, as a vector of shape
    `(H,)`. `step` and `hidden` are static: what they close over is constant, gradients reach
    `initial_carry` and the readout alone.

    **Arguments:** `step`, `initial_carry` (a pytree of float arrays), `hidden`; `input_size`, the length
    of an input: optional, with it wrong inputs are refused by name and `cost` can be asked.

    ```python
    cell = rl.Autodiff(lambda h, x: jnp.tanh(h + jnp.sum(x)), jnp.zeros(16))
    h = cell.step(cell.init(), jnp.ones(3))
    ```
    """

    initial_carry: Carry
    step_function: Callable[[Carry, Array], Carry] = eqx.field(static=True)
    hidden_function: Callable[[Carry], Array] = eqx.field(static=True)
    input_size: int | None = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)
    hidden_entries: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        step: Callable[[Carry, Array], Carry],
        initial_carry: Carry,
        hidden: Callable[[Carry], Array] = _carry_itself,
        *,
        input_size: int | None = None,
    ):
        _check_static("step", step)
        _check_static("hidden", hidden)
        if input_size is not None:
            check_size("input_size", input_size)
        self.initial_carry = jax.tree.map(jnp.asarray, initial_carry)
        for leaf in jax.tree.leaves(self.initial_carry):
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise ValueError(f"initial_carry must hold arrays of floats; got one of {leaf.dtype}.")
        self.step_function = step
        self.hidden_function = hidden
        self.hidden_entries = _entries_picked_by(hidden, self.initial_carry)
        self.hidden_size = len(self.hidden_entries)
        self.input_size = input_size

    def init(self) -> Carry:
        return self.initial_carry

    def project(self, inputs: Float[Array, "*lead D"]) -> Float[Array, "*lead D"]:
        return inputs

    def advance(self, carry: Carry, projected: Float[Array, " D"]) -> Carry:
        return self.step_function(carry, projected)

    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        return self.hidden_function(carry)

    def state_jacobian(self, carry: Carry, projected: Float[Array, " D"]) -> Float[Array, "H H"]:
        flat, unravel = ravel_pytree(carry)
        entries = np.array(self.hidden_entries)

        def new_hidden(hidden: Array) -> Array:
            return self.hidden(self.advance(unravel(flat.at[entries].set(hidden)), projected))

        return jax.jacfwd(new_hidden)(flat[entries])


def _check_static(name: str, function: Callable) -> None:
    try:
        hash(function)
    except TypeError:
        raise ValueError(
            f"{name} must be hashable, since it is kept static; got {function!r}. "
            "Wrap a module in a function: lambda carry, x: module(carry, x)."
        ) from None


def _entries_picked_by(hidden: Callable[[Carry], Array], carry: Carry) -> tuple[int, ...]:
    """Which entries of the flattened carry `hidden` returns: a carry of running numbers tells."""
    leaves, treedef = jax.tree.flatten(carry)
    starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
    numbered = [
        np.arange(start, start + leaf.size, dtype=np.float64).reshape(leaf.shape)
        for start, leaf in zip(starts, leaves, strict=False)
    ]

    def picked(shift: float) -> np.ndarray:
        with jax.ensure_compile_time_eval():
            moved = [jnp.asarray(leaf + shift) for leaf in numbered]
            return np.asarray(hidden(jax.tree.unflatten(treedef, moved)))

    entries = picked(0.0)
    # A pick, and nothing but a pick, moves as every entry does, also below zero, and repeats none.
    shifts = (1.0, -1.0 - starts[-1])
    is_pick = entries.ndim == 1 and all(np.array_equal(picked(shift), entries + shift) for shift in shifts)
    is_pick = is_pick and np.isin(entries, np.arange(starts[-1])).all()
    if not is_pick or len(np.unique(entries)) != len(entries):
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(
            "hidden must pick entries of the carry, as a vector of shape (H,); "
            f"got something of shape {entries.shape} from a carry whose leaves have shapes {shapes}."
        )
    return tuple(int(entry) for entry in entries)
