"""Conversion of recurrent cells from Flax: parameters of Linen, and modules of NNX."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from recurrent_laplace.cells import GRU, LSTM, Elman, Memory
from recurrent_laplace.errors import check_choice
from recurrent_laplace.interop._optional import require
from recurrent_laplace.interop._weights import as_arrays, as_memory, as_readout

CELLS = {"LSTMCell": LSTM, "OptimizedLSTMCell": LSTM, "GRUCell": GRU, "SimpleCell": Elman}
GATES = {LSTM: "ifgo", GRU: "rzn", Elman: ("",)}
"""In our order. Linen names a cell's layers `i` + gate on its input and `h` + gate on its state."""

Tree = Mapping[str, Any]
Layer = dict[str, Any]


def from_linen(params: Tree, cell: str, readout: Tree | None = None) -> Memory:
    """Convert the parameters of a Linen cell to a `Memory`, without importing Flax.

    **Arguments:** `params`, the parameters of the cell, or of a module that holds one such cell, with or
    without `{"params": ...}` around them; `cell`, `"LSTMCell"`, `"OptimizedLSTMCell"`, `"GRUCell"` or
    `"SimpleCell"`; `readout`, the parameters of a `Dense` on its output.

    Options that parameters do not show must have their defaults: activations (sigmoid, tanh), no `residual`,
    the `dtype` of the parameters, and a zero initial carry.

    ```python
    params = nn.GRUCell(16).init(jax.random.key(0), jnp.zeros(16), jnp.zeros(3))
    memory = rl.interop.flax.from_linen(params, cell="GRUCell")
    ```
    """
    check_choice("cell", cell, tuple(CELLS))
    found = _find(_unwrapped("params", params), cell)
    # Of two layers that are summed Linen gives one a bias; a GRU's `hn` is not summed.
    biased = {f"{_biased_side(cell)}{gate}" for gate in GATES[CELLS[cell]]} | {"hn"}
    layers = {name: _dense(name, found[name], [name in biased]) for name in _names(cell)}
    head = None if readout is None else _dense("readout", _unwrapped("readout", readout), [True, False])
    return _memory(cell, layers, head)


def from_nnx(module: Any, readout: Any = None) -> Memory:
    """Convert an NNX cell to a `Memory`.

    **Arguments:** `module`, an `nnx.LSTMCell`, `OptimizedLSTMCell`, `GRUCell` or `SimpleCell`, or an
    `nnx.RNN` of one; `readout`, an `nnx.Linear` on its output. Activations other than Flax's defaults, a
    `residual`, a `dtype` other than the parameters', and an initial carry other than zero are refused.

    ```python
    cell = nnx.GRUCell(3, 16, rngs=nnx.Rngs(0))
    memory = rl.interop.flax.from_nnx(cell, readout=nnx.Linear(16, 4, rngs=nnx.Rngs(1)))
    ```
    """
    nnx = require("flax.nnx", extra="flax")
    if type(module) is nnx.Bidirectional or (type(module) is nnx.RNN and module.reverse):
        raise ValueError(
            f"module must run forwards only; got an nnx.{type(module).__name__} that runs backwards, "
            "which needs inputs that are yet to come."
        )
    cell = module.cell if type(module) is nnx.RNN else module
    kind = type(cell).__name__
    # A subclass, or another module of that name, may compute something else.
    if kind not in CELLS or type(cell) is not getattr(nnx, kind):
        raise ValueError(f"module must be an nnx.{', nnx.'.join(CELLS)} or an nnx.RNN of one; got {kind}.")
    _check_as_ours(nnx, cell)
    if kind == "LSTMCell":
        layers = {name: _linear(getattr(cell, "if_" if name == "if" else name)) for name in _names(kind)}
    else:  # one layer holds all gates
        layers = {"i": _linear(cell.dense_i), "h": _linear(cell.dense_h)}
    if readout is None:
        return _memory(kind, layers, None)
    if type(readout) is not nnx.Linear:
        raise ValueError(f"readout must be an nnx.Linear or None; got {type(readout).__name__}.")
    _check_dtype("readout", readout)
    return _memory(kind, layers, _linear(readout))


def _names(cell: str) -> list[str]:
    return [f"{side}{gate}" for side in "ih" for gate in GATES[CELLS[cell]]]


def _biased_side(cell: str) -> str:
    return "h" if CELLS[cell] is LSTM else "i"


def _memory(cell: str, layers: dict[str, Layer], readout: Layer | None) -> Memory:
    """A memory from the layers of one cell, by names that begin with their side, gates in our order."""
    named = {f"{name} {leaf}": value for name, layer in layers.items() for leaf, value in layer.items()}
    arrays = as_arrays(named)

    def stacked(side: str, leaf: str) -> jax.Array:
        return jnp.concatenate([arrays[f"{name} {leaf}"] for name in layers if name[0] == side], axis=-1)

    weight_ih, weight_hh = stacked("i", "kernel").T, stacked("h", "kernel").T
    bias = stacked(_biased_side(cell), "bias")
    more = {}
    if cell == "GRUCell":  # NNX's has no bias inside of the reset product
        more["bias_n"] = arrays.get("hn bias", jnp.zeros(weight_hh.shape[-1], weight_hh.dtype))
    made = CELLS[cell].from_weights(weight_ih, weight_hh, bias, **more)
    return as_memory(
        [made], None if readout is None else as_readout(readout["kernel"].T, readout.get("bias"))
    )


def _unwrapped(name: str, tree: Tree) -> Tree:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{name} must be a dictionary of parameters; got {type(tree).__name__}.")
    return tree.get("params", tree)


def _find(params: Tree, cell: str) -> Tree:
    """The only part of `params` that has the layers of such a cell."""
    names = _names(cell)
    found = dict(_search(params, set(names)))
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise ValueError(
            f"params must hold one {cell}; got {', '.join(sorted(found))}: hand over the parameters of one."
        )
    got = ", ".join(
        f"{key} ({', '.join(part)})" if isinstance(part, Mapping) else key for key, part in params.items()
    )
    raise ValueError(
        f"params must hold one {cell}, whose layers are {', '.join(names)}; got {got or 'nothing'}."
    )


def _search(tree: Tree, names: set[str], path: str = "") -> Iterator[tuple[str, Tree]]:
    if set(tree) == names:
        yield path, tree
        return
    for key, part in tree.items():
        if isinstance(part, Mapping):
            yield from _search(part, names, f"{path}/{key}" if path else key)


def _dense(name: str, tree: Any, use_bias: list[bool]) -> Layer:
    """The parameters of a Linen `Dense`, with a bias or not as `use_bias` allows."""
    allowed = [["kernel", "bias"] if biased else ["kernel"] for biased in use_bias]
    got = list(tree) if isinstance(tree, Mapping) else [type(tree).__name__]
    if sorted(got) not in [sorted(leaves) for leaves in allowed]:
        wanted = " or ".join(" and ".join(leaves) for leaves in allowed)
        raise ValueError(f"{name} must hold {wanted}; got {', '.join(got) or 'nothing'}.")
    return dict(tree)


def _linear(layer: Any) -> Layer:
    """The parameters of an `nnx.Linear`."""
    return {"kernel": layer.kernel[...]} | ({"bias": layer.bias[...]} if layer.use_bias else {})


def _check_as_ours(nnx: Any, cell: Any) -> None:
    """Refuse a cell of NNX that computes something else than ours."""
    if getattr(cell, "gate_fn", nnx.sigmoid) is not nnx.sigmoid:
        raise ValueError(f"module must have gate_fn=sigmoid; got {_name(cell.gate_fn)}.")
    if cell.activation_fn is not nnx.tanh:
        raise ValueError(f"module must have activation_fn=tanh; got {_name(cell.activation_fn)}.")
    if getattr(cell, "residual", False):
        raise ValueError("module must have residual=False: no cell of ours adds its state; got True.")
    if cell.carry_init not in (None, nnx.initializers.zeros_init()):
        raise ValueError(f"module must start from zeros; got carry_init={_name(cell.carry_init)}.")
    _check_dtype("module", cell)


def _check_dtype(name: str, module: Any) -> None:
    if module.dtype is not None and jnp.dtype(module.dtype) != jnp.dtype(module.param_dtype):
        raise ValueError(
            f"{name} must compute in the type of its parameters, {jnp.dtype(module.param_dtype)}; "
            f"got dtype={jnp.dtype(module.dtype)}."
        )


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))
