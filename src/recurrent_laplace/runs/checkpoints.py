"""Checkpoints of training states."""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from recurrent_laplace.files import (
    DamagedError,
    StorageError,
    check_seal,
    read_text,
    remove,
    seal,
    sync,
    sync_tree,
    temporary_path,
)

Tree = TypeVar("Tree")

ARRAYS = "arrays"
LABEL = "label"
REASON_LENGTH = 200
"""Maximum number of characters shown of another library's message."""
THREADS_END_SECONDS = 1.0
"""Time for the threads of a failed write to end."""


class Checkpoints:
    """Folder of training states: one checksummed subfolder per state, named by its number of updates.

    A state is stored with orbax as named arrays and restored into an expected structure: a damaged file, or
    one of another network, is an error, and nothing in it is ever executed.
    """

    def __init__(self, folder: Path, run: str):
        self.folder = folder
        self.run = run
        # Problems are reported by our own errors.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").addFilter(_is_not_of_orbax)
        # Of several processes of a run, only process 0 writes checkpoints.
        alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
        self._orbax = ocp.Checkpointer(handler, multiprocessing_options=alone)

    def updates(self) -> list[int]:
        """Numbers of updates of all stored states, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())

    def save(self, update: int, state: Any, keep: Collection[int] = ()) -> None:
        """Store a state, then delete all others except those of the updates in `keep`."""
        final = self.folder / str(update)
        temporary = temporary_path(final)
        try:
            if not self.is_intact(update):
                self.folder.mkdir(exist_ok=True)
                temporary.mkdir()
                arrays = _named_arrays(state)
                with _quiet():
                    self._orbax.save((temporary / ARRAYS).absolute(), arrays)
                (temporary / LABEL).write_text(f"{self._label(update)}weights {_digest(arrays)}\n")
                seal(temporary)
                sync_tree(temporary)
                if final.exists():
                    remove(final)  # A damaged state.
                os.replace(temporary, final)
                sync(self.folder)
        except Exception as problem:  # orbax and tensorstore raise many types for a full disk
            shutil.rmtree(temporary, ignore_errors=True)
            raise StorageError(f"cannot write {final}: {_reason(problem)}.") from problem
        for other in self.updates():
            if other not in keep and other != update:
                remove(self.folder / str(other))

    def is_intact(self, update: int) -> bool:
        """Whether a state of this update exists and its checksums match."""
        try:
            check_seal(self.folder / str(update))
        except DamagedError:
            return False
        return True

    def load(self, update: int, like: Tree, *, prefix: str = "") -> Tree:
        """Restore a state with the structure, shapes and dtypes of `like`.

        Only arrays whose names start with `prefix` are considered.
        """
        folder = self.folder / str(update)
        check_seal(folder)
        label = read_text(folder / LABEL)
        if not label.startswith(self._label(update)):
            first = label.partition("\n")[0]
            raise StorageError(f"{folder} is of another run, or of another update: {first}.")
        arrays = {name: array for name, array in self._read(folder).items() if name.startswith(prefix)}
        return _restore(like, arrays, folder)

    def has(self, update: int, prefix: str) -> bool:
        """Whether a stored state has arrays whose names start with `prefix`."""
        return any(name.startswith(prefix) for name in self._read(self.folder / str(update)))

    def _read(self, folder: Path) -> dict[str, Any]:
        """Named arrays of a state."""
        try:
            with _quiet():
                return self._orbax.restore((folder / ARRAYS).absolute())
        except Exception as problem:
            raise StorageError(f"cannot read {folder}: {_reason(problem)}.") from problem

    def weights_digest(self, update: int) -> str | None:
        """Checksum of a state's weights; None for states of version 0.1, which have none."""
        folder = self.folder / str(update)
        try:
            label = read_text(folder / LABEL)
        except StorageError as problem:
            raise DamagedError(f"{folder} is damaged: {problem}") from problem
        return label.partition("\nweights ")[2].strip() or None

    def _label(self, update: int) -> str:
        return f"{self.run} after update {update}\n"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence standard error while orbax works.

    When its writes fail, its threads print tracebacks of a closed event loop there, some of them after the
    error has been raised.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)
    try:
        yield
    except BaseException:
        time.sleep(THREADS_END_SECONDS)
        raise
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a log record of asyncio is not about a task of orbax.

    Of several writes that fail together, orbax handles one. Python logs the others when it deletes their
    tasks, possibly long after the error and its `_quiet`.
    """
    return "orbax" not in record.getMessage()


def _reason(problem: Exception) -> str:
    """Short reason of a problem: other libraries put whole configurations into their messages."""
    text = str(problem).strip() or type(problem).__name__
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS, errno.EIO):
        if os.strerror(code) in text:
            return os.strerror(code)
    line = text.splitlines()[0].rstrip(".")
    return line if len(line) <= REASON_LENGTH else f"{line[:REASON_LENGTH]} ..."


def _named_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): _gathered(_raw(leaf)) for path, leaf in leaves}


def _gathered(leaf: jax.Array) -> np.ndarray:
    """Full content of an array that may be sharded or replicated over devices."""
    if leaf.is_fully_addressable:
        return np.asarray(leaf)
    # Processes shard the tasks of a batch, never the state: it is replicated.
    assert leaf.is_fully_replicated
    return np.asarray(leaf.addressable_data(0))


def _digest(arrays: dict[str, np.ndarray]) -> str:
    """Checksum of the model's arrays."""
    digest = hashlib.sha256()
    for name in sorted(name for name in arrays if name.partition(".")[0] == "model"):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _raw(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _restore(like: Tree, arrays: dict[str, Any], source: Path) -> Tree:
    """Fill the structure of `like` with named arrays of the same shapes and dtypes."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path): leaf for path, leaf in leaves}
    for name in sorted(expected.keys() ^ arrays.keys()):
        verb = "lacks" if name in expected else "has"
        raise StorageError(f"{source} is of another network: it {verb} {name}.")
    pairs = {name: (np.asarray(arrays[name]), jax.eval_shape(_raw, leaf)) for name, leaf in expected.items()}
    _check_seeds([(array.shape, raw.shape) for array, raw in pairs.values()], source)
    for name, (array, raw) in pairs.items():
        if array.shape != raw.shape or array.dtype != raw.dtype:
            raise StorageError(
                f"{source} is of another network: {name} is {array.dtype}{list(array.shape)}, "
                f"expected {raw.dtype}{list(raw.shape)}."
            )
    filled = [
        jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array)
        for (array, _), leaf in zip(pairs.values(), expected.values(), strict=True)
    ]
    return jax.tree.unflatten(structure, filled)


def _check_seeds(shapes: list[tuple[tuple[int, ...], tuple[int, ...]]], source: Path) -> None:
    """Raise `StorageError` for a state that differs from its run only in the number of seeds."""
    counts = {(got[:1], expected[:1]) for got, expected in shapes}
    if len(counts) == 1 and all(got[1:] == expected[1:] for got, expected in shapes):
        ((got, expected),) = counts
        if got != expected:
            raise StorageError(
                f"{source} has the weights of {got[0]} of {expected[0]} seeds: version 0.1 lost the others "
                "when seeds were sharded over devices. Delete the run's directory and train it again."
            )
