"""Conversion of recurrent cells from and to Equinox."""

from typing import Any

import equinox as eqx
import jax

from recurrent_laplace.cells import GRU, LSTM, Memory
from recurrent_laplace.interop._weights import as_arrays, as_memory, as_readout


def from_equinox(cell: Any, readout: Any = None) -> Memory:
    """Convert an Equinox cell to a `Memory`; weights have the same layout.

    **Arguments:** `cell`, an `eqx.nn.LSTMCell` or `eqx.nn.GRUCell`; `readout`, an `eqx.nn.Linear` on its
    hidden state (a scalar output becomes one feature).

    ```python
    cell = eqx.nn.GRUCell(3, 16, key=jax.random.key(0))
    memory = rl.interop.equinox.from_equinox(cell)
    ```
    """
    # Not isinstance: a subclass may compute something else.
    kinds = {eqx.nn.LSTMCell: LSTM, eqx.nn.GRUCell: GRU}
    if type(cell) not in kinds:
        raise ValueError(f"cell must be an eqx.nn.LSTMCell or eqx.nn.GRUCell; got {type(cell).__name__}.")
    affine = None
    if readout is not None:
        if type(readout) is not eqx.nn.Linear:
            raise ValueError(f"readout must be an eqx.nn.Linear or None; got {type(readout).__name__}.")
        affine = as_readout(readout.weight, readout.bias)
    return as_memory([kinds[type(cell)].from_weights(**as_arrays(_weights(cell)))], affine)


def to_equinox(memory: Memory) -> tuple[Any, Any]:
    """Convert a memory to an Equinox cell, and its readout to an `eqx.nn.Linear` or None.

    Equinox has an LSTM and a GRU of one layer; other memories are refused.

    **Arguments:** `memory`, of an `rl.LSTM` or `rl.GRU`.

    ```python
    cell, readout = rl.interop.equinox.to_equinox(memory)
    ```
    """
    if memory.below:
        raise ValueError(f"memory must have one layer for Equinox; got {1 + len(memory.below)}.")
    cell = memory.cell
    if not isinstance(cell, LSTM | GRU):
        raise ValueError(f"memory must be of an LSTM or GRU cell for Equinox; got {type(cell).__name__}.")
    make = eqx.nn.LSTMCell if isinstance(cell, LSTM) else eqx.nn.GRUCell
    use_bias = cell.bias is not None
    made = _filled(make, cell.input_size, cell.hidden_size, use_bias, weights=_weights(cell))
    if memory.readout is None:
        return made, None
    weight, bias = memory.readout.weight, memory.readout.bias
    sizes = weight.shape[1], weight.shape[0]
    weights = {"weight": weight} | ({} if bias is None else {"bias": bias})
    return made, _filled(eqx.nn.Linear, *sizes, bias is not None, weights=weights)


def _weights(cell: Any) -> dict[str, jax.Array]:
    """The arrays of a cell, ours or Equinox's, by the names that both give them."""
    names = ("weight_ih", "weight_hh", "bias", "bias_n")
    return {name: value for name in names if (value := getattr(cell, name, None)) is not None}


def _filled(make: Any, *args: Any, weights: dict[str, jax.Array]) -> Any:
    shapes = eqx.filter_eval_shape(lambda key: make(*args, key=key), jax.random.key(0))
    return eqx.tree_at(lambda tree: [getattr(tree, name) for name in weights], shapes, [*weights.values()])
