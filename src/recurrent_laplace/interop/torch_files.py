"""Reader of state dicts of `torch.save`, without torch and without executing anything in them."""

import io
import math
from typing import Any

import numpy as np

from recurrent_laplace.interop._archive import Archive
from recurrent_laplace.interop._pickle import Inert, Name, NotAllowedError, is_shape, read_pickle

STORAGES = {
    "torch.HalfStorage": "f2",
    "torch.BFloat16Storage": "u2",  # NumPy has no bfloat16: its bits are the upper half of a float32's.
    "torch.FloatStorage": "f4",
    "torch.DoubleStorage": "f8",
}
"""NumPy dtypes of the storages that are read."""

TENSOR, PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
ALLOWED = {"collections.OrderedDict", TENSOR, PARAMETER, *STORAGES}
BYTE_ORDERS = {b"little": "<", b"big": ">"}


def read_state_dict(raw: bytes, source: str) -> dict[str, np.ndarray]:
    """Read the arrays of a state dict as float32, equal to those of `torch.load(..., weights_only=True)`.

    The file must be in torch's zip format, the default since torch 1.6: members are stored uncompressed, one
    is a pickle of the tensors, the others are the bytes of their storages.

    **Arguments:** `raw`, the file; `source`, its name in messages.
    """
    archive = Archive(io.BytesIO(raw), source, stored=True)
    pickles = [name for name in archive.names if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError(f"{source} is no file of torch.save: it must have one data.pkl, not {len(pickles)}.")
    try:
        weights = read_pickle(archive.read(pickles[0]), ALLOWED.__contains__, persistent_ids=True)
    except NotAllowedError as refusal:
        raise ValueError(f"{source} asks for {refusal}, which is no weight: it was not read.") from None
    except ValueError as error:
        raise ValueError(f"{source} is damaged or holds more than weights: {error}.") from None
    if not isinstance(weights, dict) or not all(type(name) is str for name in weights):
        raise ValueError(f"{source} must be a dict of weights by name; got {type(weights).__name__}.")
    root = pickles[0].removesuffix("data.pkl")
    order = archive.read(f"{root}byteorder") if f"{root}byteorder" in archive.names else b"little"
    if order not in BYTE_ORDERS:
        raise ValueError(f"{source} must have a byte order of little or big; got {order[:20]!r}.")
    folder = f"{root}data/"
    storages = {
        name.removeprefix(folder): archive.read(name) for name in archive.names if name.startswith(folder)
    }
    arrays: dict[str, np.ndarray] = {}
    left = len(raw)
    for name, tensor in weights.items():
        try:
            arrays[name] = _array(tensor, storages, BYTE_ORDERS[order], left)
        except ValueError as problem:
            reason = str(problem).rstrip(".")
            raise ValueError(
                f"{source} must hold plain arrays of numbers; {name[:60]!r} is something else: {reason}."
            ) from None
        left -= arrays[name].size
    return arrays


def _array(tensor: Any, storages: dict[str, bytes], order: str, left: int) -> np.ndarray:
    """Elements of a tensor, at most `left` of them, since tensors can share a storage."""
    if isinstance(tensor, Inert) and tensor.origin == PARAMETER and tensor.made_of:
        tensor = tensor.made_of[0]
    if not (isinstance(tensor, Inert) and tensor.origin == TENSOR and len(tensor.made_of) == 6):
        raise ValueError("it is no dense tensor")
    reference, offset, shape, stride, _, _ = tensor.made_of
    if not (is_shape(shape) and is_shape(stride) and is_shape((offset,)) and len(shape) == len(stride)):
        raise ValueError("its shape, strides and offset do not fit together")
    storage = _storage(reference, storages, order)
    size = math.prod(shape)
    # A stride of zero could make much out of little.
    if size > min(len(storage), left):
        raise ValueError("it has more elements than its storage or the file")
    if size == 0:
        return np.zeros(shape, np.float32)
    if offset + sum((length - 1) * step for length, step in zip(shape, stride, strict=True)) >= len(storage):
        raise ValueError("it reaches beyond its storage")
    steps = [step * storage.itemsize * (length > 1) for length, step in zip(shape, stride, strict=True)]
    view = np.lib.stride_tricks.as_strided(storage[offset:], shape, steps, writeable=False)
    if storage.dtype.kind == "u":
        return np.asarray(view.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(over="ignore"):  # to infinity, as in torch
        return view.astype(np.float32)


def _storage(reference: Any, storages: dict[str, bytes], order: str) -> np.ndarray:
    """Flat array that a persistent id refers to."""
    match reference:
        case Inert("persistent id", (("storage", Name(kind), str(key), str(), length),)):
            pass
        case _:
            raise ValueError("it has no storage")
    if kind not in STORAGES or key not in storages:
        raise ValueError("its storage is missing or of another type")
    dtype = np.dtype(order + STORAGES[kind])
    if type(length) is not int or length * dtype.itemsize != len(storages[key]):
        raise ValueError(f"its storage has another length than {len(storages[key])} bytes")
    return np.frombuffer(storages[key], dtype)
