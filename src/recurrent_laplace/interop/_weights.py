"""Shared parts of weight converters: arrays that keep their dtype, and memories made of them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from recurrent_laplace.cells import AbstractCell, Affine, Memory
from recurrent_laplace.errors import check_shape


def as_arrays(weights: Mapping[str, Any]) -> dict[str, jax.Array]:
    """JAX arrays with equal values and dtypes, independent of later changes of the source.

    Nothing is rounded: float64 needs JAX's 64-bit mode, and all arrays must have one dtype.
    """
    arrays = {name: _as_array(name, value) for name, value in weights.items()}
    _check_one_type(arrays.values())
    return arrays


def as_readout(weight: Any, bias: Any) -> Affine:
    """Readout from a matrix of shape `(F, H)` and an optional bias."""
    given = {"readout weight": weight} | ({} if bias is None else {"readout bias": bias})
    arrays = as_arrays(given)
    check_shape("readout weight", arrays["readout weight"], ("F", "H"))
    return Affine(arrays["readout weight"], arrays.get("readout bias"))


def as_memory(cells: Sequence[AbstractCell], readout: Affine | None) -> Memory:
    """Memory of a stack of cells, from the bottom up."""
    *below, cell = cells
    memory = Memory(cell, readout=readout, below=below)
    _check_one_type(jax.tree.leaves(memory))
    return memory


def _as_array(name: str, value: Any) -> jax.Array:
    dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    if dtype not in ("float32", "float64"):
        raise ValueError(f"{name} must be an array of float32 or float64; got {dtype}.")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise ValueError(
            f"{name} is float64, which JAX would round: call jax.config.update('jax_enable_x64', True) "
            "first, or convert the weights to float32."
        )
    if isinstance(value, jax.Array):
        return value
    if hasattr(value, "detach"):  # a torch tensor
        value = value.detach().cpu().numpy()
    # A copy: JAX may share the memory of a NumPy array, and that is torch's.
    return jnp.array(value, copy=True)


def _check_one_type(arrays: Iterable[jax.Array]) -> None:
    types = sorted({str(array.dtype) for array in arrays})
    if len(types) > 1:
        raise ValueError(f"weights must be of one type; got {' and '.join(types)}.")
