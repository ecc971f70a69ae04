"""Reader of Stable-Baselines3 files that executes nothing in them."""

import dataclasses
import io
import json
import math
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np

from recurrent_laplace.interop._archive import LIMIT, Archive, open_file
from recurrent_laplace.interop._pickle import Inert, NotAllowedError, is_shape, read_pickle
from recurrent_laplace.interop.torch_files import read_state_dict

MOST_SEPARATORS = 200_000
"""Maximum number of brackets, commas and colons in a model's JSON, each up to a hundred bytes in memory."""


def read_model(path: str | Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read the JSON part of a `model.zip`, and the policy's weights by name.

    Pickles inside the JSON stay text. Torch is not needed.
    """
    with open_file(path) as file:
        archive = Archive(file, str(path))
        for name in ("data", "policy.pth"):
            if name not in archive.names:
                raise ValueError(f"{path} is no model of Stable-Baselines3: it has no member {name!r}.")
        text, weights = archive.read("data"), archive.read("policy.pth")
    data = _read_json(text, f"{path}: its member 'data'")
    return data, read_state_dict(weights, f"{path}: its member 'policy.pth'")


def _read_json(text: bytes, source: str) -> dict[str, Any]:
    if sum(text.count(separator) for separator in (b"[", b"{", b",", b":")) > MOST_SEPARATORS:
        raise ValueError(f"{source} has more than {MOST_SEPARATORS} brackets, commas and colons.")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source} is no JSON: {error}.") from None
    if not isinstance(data, dict):
        raise ValueError(f"{source} must be a JSON object; got {type(data).__name__}.")
    return data


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@dataclasses.dataclass(frozen=True)
class Normalization:
    """Normalisation of observations by `VecNormalize`."""

    mean: np.ndarray
    variance: np.ndarray
    clip: float
    epsilon: float

    def __call__(self, observation: Any) -> np.ndarray:
        """Standardise and clip an observation."""
        apart = (np.asarray(observation) - self.mean) / np.sqrt(self.variance + self.epsilon)
        return np.clip(apart, -self.clip, self.clip).astype(np.float32)


def read_normalization(path: str | Path, *, trust: bool = False) -> Normalization | None:
    """Read the statistics of a `vecnormalize.pkl`; None if it does not normalise observations.

    The pickle is read as data, with placeholders for its objects, and refused if it names classes that no
    `VecNormalize` has. `trust=True` unpickles it with `pickle`, which executes the code in it.
    """
    with open_file(path) as file:
        thing = _unpickle(file, path) if trust else _inspect(file, path)
    try:
        return _normalization(_state_of(thing))
    except _UnreadableError as problem:
        raise ValueError(f"{path} holds no VecNormalize that can be read: {problem}.") from None


def _unpickle(file: IO[bytes], path: str | Path) -> Any:
    """Unpickle a file with `pickle`."""
    try:
        return pickle.load(file)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} needs {error.name}, which is not installed: what a VecNormalize needs comes with "
            'pip install "recurrent-laplace[sb3]".'
        ) from None
    except Exception as error:
        # What a pickle calls can fail in any way.
        raise ValueError(f"{path} cannot be unpickled: {_first_line(error).rstrip('.')}.") from None


def _inspect(file: IO[bytes], path: str | Path) -> Any:
    """Read a pickle with placeholders for its objects."""
    if file.seek(0, io.SEEK_END) > LIMIT:
        raise ValueError(f"{path} must have at most {LIMIT / 1e6:.0f} MB, as statistics have.")
    file.seek(0)
    try:
        return read_pickle(file.read(LIMIT), _is_allowed)
    except NotAllowedError as refusal:
        raise ValueError(
            f"{path} asks for {refusal}, which the statistics of a VecNormalize are not made of: it "
            "was not read. If you know who wrote it, trust=True unpickles it, and runs what is in it."
        ) from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged or no pickle: {_first_line(error).rstrip('.')}.") from None


class _UnreadableError(Exception):
    """The content of a pickle is not that of a `VecNormalize`."""


ARRAYS = {
    "numpy.ndarray",
    "numpy.dtype",
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *(f"numpy.{core}.numeric._frombuffer" for core in ("core", "_core")),
}
"""Names in pickles of NumPy's arrays and numbers."""

IGNORED = (
    *("stable_baselines3.common.vec_env.", "stable_baselines3.common.running_mean_std."),
    *("gymnasium.spaces.", "gym.spaces."),
    # Spaces carry their random generators along.
    *("numpy.random._pickle.", "numpy.random._pcg64.", "numpy.random.bit_generator."),
)
"""Prefixes of the other classes in a `VecNormalize`, which are not read."""

NUMBERS = {
    f"{kind}{size}" for kind, sizes in {"f": "248", "i": "1248", "u": "1248"}.items() for size in sizes
}
"""Dtypes of arrays that are read."""


def _is_allowed(origin: str) -> bool:
    return origin in ARRAYS or origin.startswith(IGNORED)


def _state_of(thing: Any) -> dict[str, Any]:
    """Attributes of an object or of its placeholder."""
    state = thing.state if isinstance(thing, Inert) else getattr(thing, "__dict__", None)
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
    """Array of a number, an array or its placeholder."""
    try:
        if isinstance(value, Inert):
            value = _rebuild(value)
        if isinstance(value, (int, float, np.number, np.ndarray)):
            return np.asarray(value, np.float64)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise _UnreadableError(f"an array is damaged: {_first_line(error)}") from None
    raise _UnreadableError(f"where an array of numbers should be there is a {type(value).__name__}")


def _rebuild(inert: Inert) -> np.ndarray:
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
    if not is_shape(shape):
        raise ValueError("its shape is no tuple of numbers")
    if len(raw) != math.prod(shape) * int(kind[1]):
        raise ValueError(f"{len(raw)} bytes do not fill shape {shape}")
    return np.frombuffer(raw, np.dtype(endian.strip("|") + kind)).reshape(shape, order=order)
