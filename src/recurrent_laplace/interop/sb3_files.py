"""Stable-Baselines3's files, read without running anything that is in them."""

import dataclasses
import io
import json
import math
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from recurrent_laplace.interop._weights import require

LIMIT = 2 * 1024**3
"""Bytes that a zip may hold when unpacked."""


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON part of a `model.zip`, and the policy's weights by name.

    Pickles inside the JSON stay the text that they are, and torch reads the weights with `weights_only`.
    """
    with open(path, "rb") as file:
        members = _unpack(file, str(path), ("data", "policy.pth"))
    try:
        data = json.loads(members["data"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: its member 'data' is no JSON: {error}.") from None
    if not isinstance(data, dict):
        raise ValueError(f"{path}: its member 'data' must be a JSON object; got {type(data).__name__}.")
    return data, _read_weights(members["policy.pth"], f"{path}: its member 'policy.pth'")


def _unpack(file: IO[bytes], source: str, wanted: Sequence[str]) -> dict[str, bytes]:
    """Members of a zip, if it is whole and neither too big nor strange. Nothing is written."""
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:
        raise ValueError(f"{source} is damaged or no zip file: {error}.") from None
    with archive:
        for name in archive.namelist():
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or parts[:1] == ("/",):
                raise ValueError(f"{source} has a member {name!r} that points out of it.")
        size = sum(info.file_size for info in archive.infolist())
        if size > LIMIT:
            raise ValueError(
                f"{source} would unpack to {size / 1e9:.1f} GB; at most {LIMIT / 1e9:.1f} is read."
            )
        missing = sorted({*wanted} - {*archive.namelist()})
        if missing:
            raise ValueError(f"{source} is no model of Stable-Baselines3: it has no member {missing[0]!r}.")
        try:
            return {name: archive.read(name) for name in wanted}
        except Exception as error:
            raise ValueError(f"{source} is damaged: {error}.") from None


def _read_weights(raw: bytes, source: str) -> dict[str, np.ndarray]:
    """A state dict, as numpy arrays of float32: the type that Stable-Baselines3 computes in."""
    _unpack(io.BytesIO(raw), source, ())
    torch = require("torch", extra="torch")
    try:
        weights = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except Exception as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked:
            raise ValueError(f"{source} asks for {asked[1]}, which is no weight: it was not read.") from None
        raise ValueError(f"{source} is damaged or holds more than weights: {_first_line(error)}") from None
    if not isinstance(weights, dict):
        raise ValueError(f"{source} must be a dict of weights; got {type(weights).__name__}.")
    arrays = {}
    for name, tensor in weights.items():
        dense = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
        plain = dense and tensor.is_floating_point() and tensor.device.type == "cpu"
        # Strides of zero could make much out of little.
        if not (isinstance(name, str) and plain and tensor.numel() * tensor.element_size() <= len(raw)):
            raise ValueError(
                f"{source} must hold plain arrays of numbers; {str(name)[:60]!r} is something else."
            )
        arrays[name] = tensor.detach().float().numpy()
    return arrays


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@dataclasses.dataclass(frozen=True)
class Normalization:
    """What `VecNormalize` does to an observation."""

    mean: np.ndarray
    variance: np.ndarray
    clip: float
    epsilon: float

    def __call__(self, observation: Any) -> np.ndarray:
        """The observation in stddevs from the mean, clipped."""
        apart = (np.asarray(observation) - self.mean) / np.sqrt(self.variance + self.epsilon)
        return np.clip(apart, -self.clip, self.clip).astype(np.float32)


def read_normalization(path: str | Path, *, trust: bool = False) -> Normalization | None:
    """The statistics of a `vecnormalize.pkl`; None if it leaves observations as they are.

    A pickle is a program. Here it gets to see stand-ins that keep what they are given and do nothing;
    one that asks for anything else than a `VecNormalize` is made of is refused. `trust=True` runs it.
    """
    with open(path, "rb") as file:
        if trust:
            thing = pickle.load(file)
        else:
            try:
                thing = _Unpickler(file).load()
            except _NotAllowedError as refusal:
                raise ValueError(
                    f"{path} asks for {refusal}, which the statistics of a VecNormalize are not made of: it "
                    "was not read. If you know who wrote it, trust=True unpickles it, and runs what is in it."
                ) from None
            except Exception as error:
                raise ValueError(f"{path} is damaged or no pickle: {_first_line(error)}.") from None
    try:
        return _normalization(_state_of(thing))
    except _UnreadableError as problem:
        raise ValueError(f"{path} holds no VecNormalize that can be read: {problem}.") from None


class _NotAllowedError(Exception):
    """A pickle asked for this name."""


class _UnreadableError(Exception):
    """What was found is not what it should be."""


class _Inert:
    """Stands for an object in a pickle: keeps what that would have been made of, and does nothing."""

    origin: str
    made_of: tuple
    state: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> "_Inert":
        inert = super().__new__(cls)
        inert.made_of, inert.state = args, None
        return inert

    def __setstate__(self, state: Any) -> None:
        self.state = state


ARRAYS = {
    "numpy.ndarray",
    "numpy.dtype",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
}
"""What numpy's arrays and numbers are pickled as."""

IGNORED = (
    *("stable_baselines3.common.vec_env.", "stable_baselines3.common.running_mean_std."),
    *("gymnasium.spaces.", "gym.spaces."),
    # Spaces carry their random generators along.
    *("numpy.random._pickle.", "numpy.random._pcg64.", "numpy.random.bit_generator."),
)
"""Where the classes come from that a `VecNormalize` is made of beside arrays."""

NUMBERS = {
    f"{kind}{size}" for kind, sizes in {"f": "248", "i": "1248", "u": "1248"}.items() for size in sizes
}
"""Types of arrays that are read."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but stand-ins and Python's own lists, dicts, numbers and texts."""

    def find_class(self, module: str, name: str) -> type[_Inert]:
        origin = f"{module}.{name}"
        if origin in ARRAYS or origin.startswith(IGNORED):
            return type(name, (_Inert,), {"origin": origin})
        raise _NotAllowedError(origin)


def _state_of(thing: Any) -> dict[str, Any]:
    """The attributes of an object, or of what stands for it."""
    state = thing.state if isinstance(thing, _Inert) else getattr(thing, "__dict__", None)
    if not isinstance(state, dict):
        raise _UnreadableError(f"{getattr(thing, 'origin', type(thing).__name__)} has no attributes")
    return state


def _normalization(state: dict[str, Any]) -> Normalization | None:
    missing = [name for name in ("norm_obs", "clip_obs", "epsilon") if name not in state]
    if missing:
        raise _UnreadableError(f"it has no {missing[0]}")
    if not state["norm_obs"]:
        return None
    if isinstance(state.get("obs_rms"), dict):
        raise _UnreadableError("it normalises observations that are dictionaries")
    statistics = _state_of(state.get("obs_rms"))
    mean, variance = _array(statistics.get("mean")), _array(statistics.get("var"))
    clip, epsilon = _array(state["clip_obs"]), _array(state["epsilon"])
    if mean.shape != variance.shape or clip.shape != () or epsilon.shape != ():
        raise _UnreadableError("mean and variance must have one shape, clip_obs and epsilon be numbers")
    if not (np.isfinite(mean).all() and np.all(variance + epsilon > 0) and clip > 0):
        raise _UnreadableError("its statistics are not finite and positive")
    return Normalization(mean, variance, float(clip), float(epsilon))


def _array(value: Any) -> np.ndarray:
    """An array or a number, from what a pickle says of it."""
    try:
        if isinstance(value, _Inert):
            value = _rebuild(value)
        if isinstance(value, (int, float, np.number, np.ndarray)):
            return np.asarray(value, np.float64)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise _UnreadableError(f"an array is damaged: {_first_line(error)}") from None
    raise _UnreadableError(f"where an array of numbers should be there is a {type(value).__name__}")


def _rebuild(inert: _Inert) -> np.ndarray:
    match inert.origin.rsplit(".")[-1]:
        case "_reconstruct":
            shape, dtype, column_major, raw = inert.state[-4:]
            order = "F" if column_major else "C"
        case "_frombuffer":
            raw, dtype, shape, order = inert.made_of
        case "scalar":
            (dtype, raw), shape, order = inert.made_of, (), "C"
        case _:
            raise ValueError(f"{inert.origin} is none")
    kind, endian = dtype.made_of[0], "=" if dtype.state is None else dtype.state[1]
    if type(kind) is not str or kind not in NUMBERS or endian not in ("<", ">", "|", "="):
        raise ValueError("its type is not one of plain numbers")
    if type(shape) is not tuple or any(type(length) is not int for length in shape):
        raise ValueError("its shape is no tuple of numbers")
    if len(raw) != math.prod(shape) * int(kind[1]):
        raise ValueError(f"{len(raw)} bytes do not fill shape {shape}")
    return np.frombuffer(raw, np.dtype(endian.strip("|") + kind)).reshape(shape, order=order)
