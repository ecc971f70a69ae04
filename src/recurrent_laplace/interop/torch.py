"""Conversion of recurrent modules from and to PyTorch."""

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.cells import GRU, LSTM, AbstractCell, Affine, Elman, Memory
from recurrent_laplace.errors import check_choice, check_shape
from recurrent_laplace.interop._optional import require
from recurrent_laplace.interop._weights import as_arrays, as_memory, as_readout

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
Layer = dict[str, jax.Array]

_PARAMETER = re.compile(r"((?:weight|bias)_(?:ih|hh)|weight_hr)(?:_l(\d+))?(_reverse)?")
_WEIGHTS = {"weight_ih", "weight_hh"}
_BIASES = {"bias_ih", "bias_hh"}


def from_torch(module: Any, readout: Any = None, layer: int = -1) -> Memory:
    """Convert a recurrent PyTorch module to a `Memory`, with a copy of its weights in the same dtype.

    **Arguments:** `module`, an `nn.LSTM`, `nn.GRU` or `nn.RNN`, or one of their `Cell`s; `readout`, an
    `nn.Linear` on its output; `layer`, the layer whose state has the belief. Layers below it become
    `Memory.below`, layers above it are dropped.

    `batch_first` makes no difference: a `Memory` takes one sequence `(T, D)`.

    ```python
    net = torch.nn.LSTM(3, 16, num_layers=2)
    memory = rl.interop.torch.from_torch(net, readout=torch.nn.Linear(16, 4))
    beliefs = rl.LaplacePosterior(memory).unroll(jnp.ones((5, 3)))
    ```
    """
    nn = require("torch", extra="torch").nn
    kind = _kind_of_module(nn, module)
    if getattr(module, "bidirectional", False):
        raise ValueError(
            "module must run forwards only; got bidirectional=True, which needs inputs that are yet to come."
        )
    if getattr(module, "proj_size", 0):
        raise ValueError(
            f"module must have proj_size=0; got {module.proj_size}: no cell of ours projects its state."
        )
    if module.training and getattr(module, "dropout", 0) > 0:
        raise ValueError(
            f"module must not be random; got dropout={module.dropout:g} in training mode: "
            "call module.eval() first."
        )
    affine = None
    if readout is not None:
        if type(readout) is not nn.Linear:
            raise ValueError(f"readout must be a torch.nn.Linear or None; got {type(readout).__name__}.")
        affine = as_readout(readout.weight, readout.bias)
    return _memory(_layers(module.state_dict(), ""), kind, affine, layer)


def from_state_dict(
    weights: Mapping[str, Any],
    kind: str | None = None,
    readout: str | None = None,
    layer: int = -1,
    prefix: str = "",
) -> Memory:
    """Convert a PyTorch state dict, or any mapping with its names, to a `Memory`, without torch.

    **Arguments:** `weights`, arrays of NumPy, JAX or torch by name, such as
    `safetensors.numpy.load_file(path)`; `kind`, one of `"lstm"`, `"gru"`, `"rnn_tanh"`, `"rnn_relu"` (None:
    inferred from shapes, except for a plain RNN, whose activation they do not show); `readout`, the name of a
    linear layer in the same mapping; `layer`, as in `from_torch`; `prefix`, the name of the recurrent module.

    Only names and shapes are checked. A GRU exported to ONNX with `linear_before_reset = 0` has the same
    shapes but is another function.

    ```python
    shapes = {"core.weight_ih_l0": (16, 3), "core.weight_hh_l0": (16, 4), "head.weight": (2, 4)}
    weights = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    memory = rl.interop.torch.from_state_dict(weights, prefix="core", readout="head")
    ```
    """
    layers = _layers(weights, prefix)
    kind = _kind_by_shape(layers[0]["weight_hh"]) if kind is None else kind
    check_choice("kind", kind, KINDS)
    affine = None
    if readout is not None:
        name = _with_dot(readout)
        if f"{name}weight" not in weights:
            raise ValueError(f"readout={readout!r} must name a linear layer; weights have no '{name}weight'.")
        affine = as_readout(weights[f"{name}weight"], weights.get(f"{name}bias"))
    return _memory(layers, kind, affine, layer)


def to_torch(memory: Memory) -> tuple[Any, Any]:
    """Convert a memory to a PyTorch module, and its readout to an `nn.Linear` or None.

    The module is an `nn.LSTM`, `nn.GRU` or `nn.RNN` with as many layers as the memory. Torch has no other
    cells, and its layers are of one kind and size; other memories are refused.

    **Arguments:** `memory`, of `rl.LSTM`, `rl.GRU` or `rl.Elman` cells.

    ```python
    module, readout = rl.interop.torch.to_torch(memory)
    outputs, _ = module(torch.ones(5, 3))
    features = readout(outputs)
    ```
    """
    torch = require("torch", extra="torch")
    cells = [_exportable(cell) for cell in (*memory.below, memory.cell)]
    if len({_description(cell) for cell in cells}) > 1:
        found = ", ".join(_description(cell) for cell in cells)
        raise ValueError(f"memory must have layers of one kind and size for torch; got {found}.")
    top = cells[-1]
    makers = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU, Elman: torch.nn.RNN}
    module = makers[type(top)](
        cells[0].input_size,
        top.hidden_size,
        num_layers=len(cells),
        bias=top.bias is not None,
        **({"nonlinearity": top.activation} if isinstance(top, Elman) else {}),
    )
    named = {f"{name}_l{i}": array for i, cell in enumerate(cells) for name, array in _split(cell).items()}
    _fill(torch, module, named)
    if memory.readout is None:
        return module, None
    weight, bias = memory.readout.weight, memory.readout.bias
    readout = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    _fill(torch, readout, {"weight": weight} | ({} if bias is None else {"bias": bias}))
    return module, readout


def _kind_of_module(nn: Any, module: Any) -> str:
    # Not isinstance: a subclass may compute something else.
    kinds = {nn.LSTM: "lstm", nn.LSTMCell: "lstm", nn.GRU: "gru", nn.GRUCell: "gru"}
    if type(module) in (nn.RNN, nn.RNNCell):
        return f"rnn_{module.nonlinearity}"
    if type(module) not in kinds:
        raise ValueError(
            "module must be a torch.nn.LSTM, GRU, RNN, LSTMCell, GRUCell or RNNCell; "
            f"got {type(module).__name__}."
        )
    return kinds[type(module)]


def _kind_by_shape(weight_hh: jax.Array) -> str:
    check_shape("weight_hh", weight_hh, ("rows", "H"))
    rows, size = weight_hh.shape
    if rows == size:
        raise ValueError(
            "kind must be 'rnn_tanh' or 'rnn_relu' for a plain RNN, since weights do not show an activation; "
            "got None."
        )
    kinds = {4 * size: "lstm", 3 * size: "gru"}
    if rows not in kinds:
        raise ValueError(f"weight_hh must have 4 H rows (LSTM), 3 H (GRU) or H (RNN); got {(rows, size)}.")
    return kinds[rows]


def _with_dot(prefix: str) -> str:
    return prefix and f"{prefix.removesuffix('.')}."


def _layers(weights: Mapping[str, Any], prefix: str) -> list[Layer]:
    """Recurrent weights under `prefix`, by their names within a layer."""
    start = _with_dot(prefix)
    names = [name.removeprefix(start) for name in weights if name.startswith(start)]
    matches = {name: match for name in names if (match := _PARAMETER.fullmatch(name))}
    if not matches:
        raise ValueError(_nothing_here(weights, prefix))
    # Without a prefix, names with a dot belong to modules that stand beside this one.
    unknown = [name for name in names if name not in matches and (start or "." not in name)]
    if unknown:
        raise ValueError(
            f"weights must be those of a torch LSTM, GRU or RNN; got {', '.join(unknown)} beside them."
        )
    found: dict[int, dict[str, Any]] = {}
    for name, match in matches.items():
        parameter, layer, reverse = match.groups()
        if reverse:
            raise ValueError(
                f"weights must run forwards only; got {name}, of a bidirectional network, "
                "which needs inputs that are yet to come."
            )
        if parameter == "weight_hr":
            raise ValueError(
                f"weights must be without proj_size; got {name}: no cell of ours projects its state."
            )
        found.setdefault(int(layer or 0), {})[parameter] = weights[start + name]
    for layer, given in enumerate(found.get(i, {}) for i in range(max(found) + 1)):
        if given.keys() not in (_WEIGHTS, _WEIGHTS | _BIASES):
            raise ValueError(
                f"layer {layer} must have weight_ih, weight_hh, and both bias_ih and bias_hh or neither; "
                f"got {', '.join(given) or 'nothing'}."
            )
    return [as_arrays(found[i]) for i in range(len(found))]


def _nothing_here(weights: Mapping[str, Any], prefix: str) -> str:
    parts = [name.rpartition(".") for name in weights]
    others = sorted({repr(module) for module, _, name in parts if _PARAMETER.fullmatch(name)})
    where = f"prefix={prefix!r} must name a recurrent module of weights"
    if others:
        return f"{where}; there is {' and '.join(others)}."
    return f"{where}; none of the names is like weight_ih_l0: {', '.join(weights) or 'there are none'}."


def _memory(layers: list[Layer], kind: str, readout: Affine | None, layer: int) -> Memory:
    count = len(layers)
    if not -count <= layer < count:
        raise ValueError(f"layer must be in [{-count}, {count - 1}], there being {count}; got {layer}.")
    chosen = layer % count
    if readout is not None and chosen != count - 1:
        raise ValueError(
            f"readout must be None for layer {layer}: it reads the top layer, which is number {count - 1}."
        )
    return as_memory([_cell(weights, kind) for weights in layers[: chosen + 1]], readout)


def _cell(weights: Layer, kind: str) -> AbstractCell:
    weight_ih, weight_hh = weights["weight_ih"], weights["weight_hh"]
    bias, bias_hh = weights.get("bias_ih"), weights.get("bias_hh")
    if kind == "gru":
        if bias is None or bias_hh is None:
            return GRU.from_weights(weight_ih, weight_hh)
        # The two biases add but for the one inside of the reset product.
        rows = 2 * weight_hh.shape[-1]
        bias = bias.at[:rows].add(bias_hh[:rows])
        return GRU.from_weights(weight_ih, weight_hh, bias, bias_n=bias_hh[rows:])
    if bias is not None and bias_hh is not None:
        bias = bias + bias_hh
    if kind == "lstm":
        return LSTM.from_weights(weight_ih, weight_hh, bias)
    return Elman.from_weights(weight_ih, weight_hh, bias, options={"activation": kind.removeprefix("rnn_")})


def _exportable(cell: AbstractCell) -> LSTM | GRU | Elman:
    if not isinstance(cell, LSTM | GRU | Elman):
        raise ValueError(f"memory must be of LSTM, GRU or Elman cells for torch; got {type(cell).__name__}.")
    return cell


def _description(cell: LSTM | GRU | Elman) -> str:
    kind = f"{type(cell).__name__} {cell.activation}" if isinstance(cell, Elman) else type(cell).__name__
    return f"{kind} of {cell.hidden_size} units {'without' if cell.bias is None else 'with'} bias"


def _split(cell: LSTM | GRU | Elman) -> Layer:
    """Weights of a cell by torch's names; the second bias is zero except for a GRU's `bias_n`."""
    weights = {"weight_ih": cell.weight_ih, "weight_hh": cell.weight_hh}
    if cell.bias is None:
        return weights
    bias_hh = jnp.zeros_like(cell.bias)
    if isinstance(cell, GRU):
        bias_hh = bias_hh.at[2 * cell.hidden_size :].set(cell.bias_n)
    return {**weights, "bias_ih": cell.bias, "bias_hh": bias_hh}


def _fill(torch: Any, module: Any, weights: Layer) -> None:
    arrays = as_arrays(weights)
    module.to(getattr(torch, str(arrays[next(iter(arrays))].dtype)))
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
