"""A posterior in one file: safetensors with a versioned header, and nothing that could be executed.

The header's JSON says which of our classes stand where; only the classes listed here are ever made.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from recurrent_laplace import cells, gaussians, models, posterior
from recurrent_laplace.deploy.alarm import ShiftAlarm
from recurrent_laplace.deploy.monitor import Mind, Monitor
from recurrent_laplace.deploy.readings import Heads
from recurrent_laplace.files import replacing
from recurrent_laplace.models import mlp
from recurrent_laplace.posterior import accumulation, laplace

SCHEMA = 1
"""Raised when files written now cannot be read by an older version."""

HEADER = "recurrent-laplace"

CLASSES = {
    cls.__name__: cls
    for cls in (
        *(cells.LSTM, cells.GRU, cells.Elman, cells.Linear, cells.Affine, cells.Memory),
        *(posterior.PointPosterior, posterior.VariationalPosterior, posterior.LaplacePosterior),
        *(mlp.LayerNorm, mlp.MLP, mlp.Embedder, mlp.Head, models.Agent, models.Regressor),
        # The running state of a monitor.
        *(Mind, Heads, laplace.LaplaceState, accumulation.RunningSum, accumulation.Window),
        *(gaussians.DiagonalGaussian, gaussians.DenseGaussian, gaussians.SpectralGaussian),
    )
}


def save(path: str | os.PathLike, thing: eqx.Module | Monitor | ShiftAlarm) -> None:
    """Write a posterior, a whole agent, a `ShiftAlarm`, or a `Monitor` to one file.

    A monitor is written with its running state, and with the alarm in `monitor.alarm` if there is one.

    ```python
    rl.save("belief.safetensors", posterior)
    posterior = rl.load("belief.safetensors")
    ```
    """
    tensors: dict[str, np.ndarray] = {}
    if isinstance(thing, Monitor):
        spec = {
            "monitor": {"streams": thing.streams, "samples": thing.samples},
            "posterior": _encode(thing.posterior, "posterior", tensors),
            "heads": _encode(thing.heads, "heads", tensors),
            "mind": _encode(thing.mind, "mind", tensors),
            "alarm": None if thing.alarm is None else thing.alarm.to_json(),
        }
    elif isinstance(thing, ShiftAlarm):
        spec = {"alarm": thing.to_json()}
    else:
        spec = {"module": _encode(thing, "", tensors)}
    spec |= {"schema": SCHEMA, "version": importlib.metadata.version("recurrent-laplace")}
    text = json.dumps(spec, sort_keys=True)
    header = {HEADER: text, "checksum": _checksum(text, tensors)}
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(safetensors.numpy.save(tensors, metadata=header))


def load(path: str | os.PathLike) -> Any:
    """What `save` wrote: the same object, on the default device. Nothing in the file is executed."""
    path = Path(path)
    text, tensors = _read(path)
    spec = json.loads(text)
    if spec.get("schema", 0) > SCHEMA:
        raise ValueError(
            f"{path} has schema {spec['schema']}, written by version {spec.get('version')}; "
            f"this version reads up to {SCHEMA}."
        )
    try:
        if "module" in spec:
            thing = _decode(spec["module"], tensors)
            _try_out(thing)
            return thing
        if "monitor" not in spec:
            return ShiftAlarm.from_json(spec["alarm"])
        decoded = {name: _decode(spec[name], tensors) for name in ("posterior", "heads", "mind")}
        heads = decoded["heads"]
        monitor = Monitor(decoded["posterior"], policy=heads.policy, value=heads.value, **spec["monitor"])
        if not _same_structure(monitor.mind, decoded["mind"]):
            raise ValueError("its running state does not fit its posterior")
        monitor.mind = decoded["mind"]
        if spec["alarm"] is not None:
            monitor.alarm = ShiftAlarm.from_json(spec["alarm"])
        return monitor
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ValueError(f"{path} does not hold what its header says: {problem}.") from None


def _encode(value: Any, place: str, tensors: dict[str, np.ndarray]) -> Any:
    """A value as JSON; its arrays go to `tensors` under the name of their place."""
    if isinstance(value, jax.Array | np.ndarray):
        tensors[place] = np.array(value, order="C")
        return {"tensor": place}
    if isinstance(value, list | tuple):
        items = [_encode(item, f"{place}.{i}".strip("."), tensors) for i, item in enumerate(value)]
        return {type(value).__name__: items}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    name = type(value).__name__
    if CLASSES.get(name) is not type(value):
        if isinstance(value, cells.Autodiff) or (callable(value) and not isinstance(value, eqx.Module)):
            raise ValueError(
                f"{place or name} holds a Python function, which no safe file can keep; "
                "save what is made of weights alone."
            )
        raise ValueError(f"{place or 'thing'} must be one of our modules to be saved; got {name}.")
    fields = {
        field.name: _encode(getattr(value, field.name), f"{place}.{field.name}".strip("."), tensors)
        for field in dataclasses.fields(value)
    }
    return {"class": name, "fields": fields}


def _decode(spec: Any, tensors: dict[str, np.ndarray]) -> Any:
    """The value that `_encode` described."""
    match spec:
        case {"tensor": str(name)}:
            return _as_jax(name, tensors[name])
        case {"list": list(items)}:
            return [_decode(item, tensors) for item in items]
        case {"tuple": list(items)}:
            return tuple(_decode(item, tensors) for item in items)
        case {"value": None | bool() | int() | float() | str() as value}:
            return value
        case {"class": str(name), "fields": dict(specs)} if name in CLASSES:
            cls = CLASSES[name]
            names = {field.name for field in dataclasses.fields(cls)}
            if set(specs) != names:
                raise ValueError(f"a {name} has {', '.join(sorted(names))}, not {', '.join(sorted(specs))}")
            return _make(cls, {key: _decode(value, tensors) for key, value in specs.items()})
    raise ValueError(f"no such class or value: {str(spec)[:80]}")


def _make(cls: type, fields: dict[str, Any]) -> Any:
    """An object with these fields. Those whose constructors check their arguments are made by them."""
    if cls is cells.Memory:
        return cells.Memory(fields["cell"], readout=fields["readout"], below=fields["below"])
    if cls in (posterior.PointPosterior, posterior.LaplacePosterior):
        return cls(**fields)
    made = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _as_jax(name: str, array: np.ndarray) -> jax.Array:
    if array.dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{name} is float64 and would be rounded: call jax.config.update('jax_enable_x64', True) first"
        )
    return jnp.asarray(array)


def _try_out(thing: Any) -> None:
    """Trace one step, so that shapes that do not fit are found now."""
    belief = getattr(thing, "posterior", thing)
    if isinstance(belief, posterior.AbstractPosterior):
        x = jax.ShapeDtypeStruct((belief.memory.input_size,), belief.memory.dtype)  # pyright: ignore[reportArgumentType]
        jax.eval_shape(lambda x: belief.update(belief.init(), x), x)


def _same_structure(first: Any, second: Any) -> bool:
    """Same classes and types; shapes too, but for a history that has grown."""
    if jax.tree.structure(first) != jax.tree.structure(second):
        return False
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(a.dtype == b.dtype and a.ndim == b.ndim and a.shape[-1:] == b.shape[-1:] for a, b in pairs)


def _read(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """The header's text and the arrays, as they were written."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist.") from None
    except safetensors.SafetensorError as problem:
        raise ValueError(f"{path} is cut short, or no safetensors file: {problem}.") from None
    if HEADER not in header:
        raise ValueError(f"{path} is a safetensors file, but not one of recurrent-laplace.")
    if header.get("checksum") != _checksum(header[HEADER], tensors):
        raise ValueError(f"{path} was changed after it was written: its checksum does not fit.")
    return header[HEADER], tensors


def _checksum(text: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
