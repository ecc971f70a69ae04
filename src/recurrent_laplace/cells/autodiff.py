"""Recurrent cell from an arbitrary step function."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractCell, Carry
from recurrent_laplace.errors import check_size


def _identity(carry: Carry) -> Array:
    return carry


class Autodiff(AbstractCell):
    """Recurrent cell from any function `step(carry, x) -> carry`, with its Jacobian by forward mode.

    `step` and `hidden` are static: arrays that they close over are constants, so gradients reach only
    `initial_carry` and the readout of the memory.

    **Arguments:**

    - `step`: function from a carry and an input to the next carry.
    - `initial_carry`: pytree of float arrays, the carry before any input.
    - `hidden`: function that selects the hidden state from a carry, as a vector of shape `(H,)`. It may pick
      and reorder entries of the carry but not transform them. Default: the carry itself.
    - `input_size`: length D of an input. Optional; shape checks, `posterior.cost` and windows need it.

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
        hidden: Callable[[Carry], Array] = _identity,
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
                raise ValueError(f"initial_carry must hold float arrays; got one of dtype {leaf.dtype}.")
        self.step_function = step
        self.hidden_function = hidden
        self.hidden_entries = _selected_entries(hidden, self.initial_carry)
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


def _selected_entries(hidden: Callable[[Carry], Array], carry: Carry) -> tuple[int, ...]:
    """Indices into the flattened carry of the entries that `hidden` returns.

    They are found by applying `hidden` to a carry whose entries are their own indices.
    """
    leaves, treedef = jax.tree.flatten(carry)
    starts = np.cumsum([0, *(leaf.size for leaf in leaves)])
    indices = [
        np.arange(start, start + leaf.size, dtype=np.float64).reshape(leaf.shape)
        for start, leaf in zip(starts, leaves, strict=False)
    ]

    def selected(shift: float) -> np.ndarray:
        with jax.ensure_compile_time_eval():
            shifted = [jnp.asarray(leaf + shift) for leaf in indices]
            return np.asarray(hidden(jax.tree.unflatten(treedef, shifted)))

    entries = selected(0.0)
    # A selection commutes with adding a constant, also one that makes all entries negative.
    shifts = (1.0, -1.0 - starts[-1])
    is_selection = (
        entries.ndim == 1
        and all(np.array_equal(selected(shift), entries + shift) for shift in shifts)
        and np.isin(entries, np.arange(starts[-1])).all()
        and len(np.unique(entries)) == len(entries)
    )
    if not is_selection:
        shapes = [leaf.shape for leaf in leaves]
        raise ValueError(
            "hidden must select entries of the carry, each at most once, as a vector of shape (H,); "
            f"got an output of shape {entries.shape} from a carry whose leaves have shapes {shapes}."
        )
    return tuple(int(entry) for entry in entries)
