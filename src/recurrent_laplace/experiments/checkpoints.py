"""States of training on disk."""

import contextlib
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

from recurrent_laplace.files import StorageError, check_seal, read_text, remove, seal

Tree = TypeVar("Tree")

ARRAYS = "arrays"
LABEL = "label"
THREADS_END_SECONDS = 1.0
"""How long threads of a failed write may go on."""


class Checkpoints:
    """A folder with one sealed subfolder for each state, named by the number of updates.

    A state is stored with orbax as arrays by name, and read back into the shapes that are expected: a
    file that is damaged, or of another network, is an error, and nothing in it is ever executed.
    """

    def __init__(self, folder: Path, run: str):
        self.folder = folder
        self.run = run
        # What went wrong is said in our own errors.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").addFilter(_is_not_of_orbax)
        # Where a run has several processes, only the first is here.
        alone = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
        handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
        self._orbax = ocp.Checkpointer(handler, multiprocessing_options=alone)

    def updates(self) -> list[int]:
        """Numbers of updates for which there is a complete state."""
        if not self.folder.is_dir():
            return []
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())

    def save(self, update: int, state: Any, keep: Collection[int] = ()) -> None:
        """Store a state, then drop all others but those of the updates to `keep`."""
        final = self.folder / str(update)
        temporary = self.folder / f".{update}.writing"
        try:
            if not final.exists():
                self.folder.mkdir(exist_ok=True)
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir()
                with _quiet():
                    self._orbax.save((temporary / ARRAYS).absolute(), _named_arrays(state))
                (temporary / LABEL).write_text(self._label(update))
                seal(temporary)
                os.replace(temporary, final)
        except Exception as problem:  # orbax and tensorstore have errors of many kinds for a full disk
            shutil.rmtree(temporary, ignore_errors=True)
            raise StorageError(f"cannot write {final}: {_first_line(problem)}") from problem
        for other in self.updates():
            if other not in keep and other != update:
                remove(self.folder / str(other))

    def load(self, update: int, like: Tree) -> Tree:
        """Read a state of the structure, shapes and types of `like`."""
        folder = self.folder / str(update)
        check_seal(folder)
        label = read_text(folder / LABEL)
        if label != self._label(update):
            raise StorageError(f"{folder} is of another run, or of another update: {label.strip()}.")
        try:
            with _quiet():
                arrays = self._orbax.restore((folder / ARRAYS).absolute())
        except Exception as problem:
            raise StorageError(f"cannot read {folder}: {_first_line(problem)}") from problem
        return _into(like, arrays, folder)

    def _label(self, update: int) -> str:
        return f"{self.run} after update {update}\n"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep standard error to ourselves while orbax works.

    When its writes fail, its threads print tracebacks of a closed event loop there, some after the error has
    been raised. What went wrong is said by the error.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    except BaseException:
        time.sleep(THREADS_END_SECONDS)
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a complaint about a task is about somebody else's.

    Of several writes that fail together orbax looks at one. Python complains about the others when it deletes
    their tasks, which may be long after the error and its `_quiet`.
    """
    return "orbax" not in record.getMessage()


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def _named_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    # Where there are several devices, each has all of a state.
    return {_name(path): np.asarray(_raw(leaf.addressable_data(0))) for path, leaf in leaves}


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _raw(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _into(like: Tree, arrays: dict[str, Any], source: Path) -> Tree:
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    expected = {_name(path): leaf for path, leaf in leaves}
    for name in sorted(expected.keys() ^ arrays.keys()):
        which = "lacks" if name in expected else "has"
        raise StorageError(f"{source} is of another network: it {which} {name}.")
    filled = []
    for name, leaf in expected.items():
        array = np.asarray(arrays[name])
        raw = jax.eval_shape(_raw, leaf)
        if array.shape != raw.shape or array.dtype != raw.dtype:
            raise StorageError(
                f"{source} is of another network: {name} is {array.dtype}{list(array.shape)}, "
                f"expected {raw.dtype}{list(raw.shape)}."
            )
        filled.append(jax.random.wrap_key_data(jnp.asarray(array)) if _is_key(leaf) else jnp.asarray(array))
    return jax.tree.unflatten(structure, filled)
