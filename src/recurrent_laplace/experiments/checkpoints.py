"""States of training on disk."""

import logging
import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from recurrent_laplace.experiments.files import StorageError, check_seal, remove, seal

Tree = TypeVar("Tree")

ARRAYS = "arrays"


class Checkpoints:
    """A folder with one sealed subfolder for each state, named by the number of updates.

    A state is stored with orbax as arrays by name, and read back into the shapes that are expected: a
    file that is damaged, or of another network, is an error, and nothing in it is ever executed.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        # What went wrong is said in our own errors.
        logging.getLogger("absl").setLevel(logging.CRITICAL)
        self._orbax = ocp.PyTreeCheckpointer()

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
                self._orbax.save((temporary / ARRAYS).absolute(), _named_arrays(state))
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
        try:
            arrays = self._orbax.restore((folder / ARRAYS).absolute())
        except Exception as problem:
            raise StorageError(f"cannot read {folder}: {_first_line(problem)}") from problem
        return _into(like, arrays, folder)


def _first_line(problem: Exception) -> str:
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def _named_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {_name(path): np.asarray(_raw(leaf)) for path, leaf in leaves}


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
