"""Serialization to one safetensors file with a versioned JSON header, without executable content.

The header names the class of each object; only classes in `encoding.REGISTERED` are instantiated.
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
import numpy as np
import safetensors
import safetensors.numpy

from recurrent_laplace.errors import check_size, shown
from recurrent_laplace.files import replacing
from recurrent_laplace.monitoring.alarm import ShiftAlarm
from recurrent_laplace.monitoring.encoding import UnregisteredClassError, decode, encode
from recurrent_laplace.monitoring.monitor import Monitor, StreamState, initial_state
from recurrent_laplace.monitoring.own_classes import check_traceable
from recurrent_laplace.monitoring.readings import Heads
from recurrent_laplace.posterior import AbstractPosterior

SCHEMA = 1
"""Schema version, incremented when older versions cannot read new files."""

HEADER = "recurrent-laplace"
"""Metadata key of the JSON header."""

HEADER_LIMIT = 32 * 1024**2
"""Largest header in bytes. Parsed JSON takes up to twenty times its length in memory."""

FILE_LIMIT = 16 * 1024**3
"""Largest file in bytes."""

MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions that values of wrong types, shapes and sizes can raise."""


def save(path: str | os.PathLike, thing: eqx.Module | Monitor | ShiftAlarm) -> None:
    """Write a posterior, an agent, a `ShiftAlarm` or a `Monitor` to one file.

    **Arguments:**

    - `path`: file to write.
    - `thing`: object to save. A monitor is saved with its running state and `monitor.alarm`. Classes of
      your own must be registered first, see `rl.register_serializable`.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    rl.save("belief.safetensors", posterior)
    posterior = rl.load("belief.safetensors")
    ```
    """
    tensors: dict[str, np.ndarray] = {}
    if isinstance(thing, Monitor):
        spec = {
            "monitor": {"streams": thing.streams, "samples": thing.samples},
            "posterior": encode(thing.posterior, "posterior", tensors),
            "heads": encode(thing.heads, "heads", tensors),
            "mind": encode(thing.state, "mind", tensors),
            "alarm": None if thing.alarm is None else thing.alarm.to_json(),
        }
    elif isinstance(thing, ShiftAlarm):
        spec = {"alarm": thing.to_json()}
    else:
        spec = {"module": encode(thing, "", tensors)}
    spec |= {"schema": SCHEMA, "version": importlib.metadata.version("recurrent-laplace")}
    text = json.dumps(spec, sort_keys=True)
    content = safetensors.numpy.save(tensors, metadata={HEADER: text, "checksum": _checksum(text, tensors)})
    _check_sizes(f"the content of {path}", content[:8], len(content))
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(content)


def load(path: str | os.PathLike) -> Any:
    """Load an object written by `rl.save` onto the default device.

    Nothing in the file is executed or imported: classes from outside this package must be registered in
    this process (`rl.register_serializable`). A damaged, crafted or foreign file raises a `ValueError`, an
    unreadable one an `OSError`, before it takes more memory than its size.

    **Arguments:**

    - `path`: file to read.

    ```python
    rl.save("memory.safetensors", rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    memory = rl.load("memory.safetensors")
    ```
    """
    path = Path(path)
    text, tensors = _read(path)
    try:
        spec = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"{path} does not hold what its header says: {_sentence(problem)}") from None
    schema = spec.get("schema") if isinstance(spec, dict) else None
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise ValueError(f"{path} does not hold what its header says: it has schema {shown(schema)}.")
    if schema > SCHEMA:
        raise ValueError(
            f"{path} has schema {shown(schema)}, written by version {str(spec.get('version'))[:20]}; "
            f"this version reads up to {SCHEMA}."
        )
    try:
        if "module" in spec:
            return _load_module(spec, tensors)
        if "monitor" in spec:
            return _load_monitor(spec, tensors)
        return ShiftAlarm.from_json(spec["alarm"])
    except UnregisteredClassError as problem:
        raise UnregisteredClassError(f"{path} {problem}") from None
    except KeyError as problem:
        raise ValueError(f"{path} does not hold what its header says: there is no {problem}.") from None
    except MALFORMED as problem:
        raise ValueError(f"{path} does not hold what its header says: {_sentence(problem)}") from None


def _load_module(spec: dict[str, Any], tensors: dict[str, np.ndarray]) -> Any:
    module = decode(spec["module"], tensors)
    if not dataclasses.is_dataclass(module):
        raise ValueError(f"module must be an object of a registered class; got {shown(module)}")
    check_traceable(module)
    return module


def _load_monitor(spec: dict[str, Any], tensors: dict[str, np.ndarray]) -> Monitor:
    classes = {"posterior": AbstractPosterior, "heads": Heads, "mind": StreamState}
    posterior, heads, state = parts = [decode(spec[name], tensors) for name in classes]
    options = spec["monitor"]
    if not all(map(isinstance, parts, classes.values())):
        raise ValueError("a monitor must have a posterior, heads and a running state")
    if not isinstance(options, dict) or set(options) != {"streams", "samples"}:
        raise ValueError(f"a monitor has streams and samples; got {shown(options)}")
    check_traceable(posterior)
    # Shapes are compared before arrays are allocated, since the file determines their sizes.
    if options["streams"] is not None:
        check_size("streams", options["streams"])
    capacity = posterior.capacity(state.state)
    expected = jax.eval_shape(lambda: initial_state(posterior, options["streams"], capacity))
    if _structure(expected) != _structure(state):
        raise ValueError("its running state does not fit its posterior")
    monitor = Monitor(posterior, policy=heads.policy, value=heads.value, **options)
    monitor.state = state
    if spec["alarm"] is not None:
        monitor.alarm = ShiftAlarm.from_json(spec["alarm"])
    return monitor


def _structure(state: StreamState) -> tuple[Any, ...]:
    """Classes, dtypes and shapes."""
    leaves, treedef = jax.tree.flatten(state)
    return treedef, [(leaf.dtype, leaf.shape) for leaf in leaves]


def _read(path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """Read the text of the header and the arrays."""
    try:
        # Checked before opening: a pipe could block, and a device has no end.
        status = path.stat()
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a directory, not a file that rl.save wrote.")
        if not path.is_file():
            raise OSError(f"{path} is not a regular file.")
        with path.open("rb") as file:
            _check_sizes(str(path), file.read(8), status.st_size)
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if HEADER not in header:
                raise ValueError(f"{path} is a safetensors file, but not one of recurrent-laplace.")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} does not exist.") from None
    except OSError as problem:
        if problem.strerror is None:
            raise
        raise type(problem)(f"{path} cannot be read: {problem.strerror}.") from None
    except safetensors.SafetensorError as problem:
        raise ValueError(f"{path} is cut short, or no safetensors file: {_sentence(problem)}") from None
    except (AttributeError, LookupError, OverflowError, TypeError) as problem:
        raise ValueError(f"{path} has arrays of an unknown type: {_sentence(problem)}") from None
    if header.get("checksum") != _checksum(header[HEADER], tensors):
        raise ValueError(f"{path} was changed after it was written: its checksum does not fit.")
    return header[HEADER], tensors


def _check_sizes(name: str, first_bytes: bytes, size: int) -> None:
    """Raise if a file or its header is too long; the first 8 bytes are the header's length."""
    if size > FILE_LIMIT:
        raise ValueError(f"{name} has {size} bytes; files of at most {FILE_LIMIT} bytes are read.")
    header_size = int.from_bytes(first_bytes, "little")
    # A header longer than its file means that the file was cut short, which is reported elsewhere.
    if HEADER_LIMIT < header_size <= size:
        raise ValueError(
            f"{name} has a header of {header_size} bytes; headers of at most {HEADER_LIMIT} bytes are read."
        )


def _sentence(problem: BaseException) -> str:
    """First line of an exception's message, shortened, with a full stop."""
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return lines[0][:300].rstrip(".: ") + "."


def _checksum(text: str, tensors: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
