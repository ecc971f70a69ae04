"""Small runs for tests of run directories, and their checkpoints."""

import shutil
from pathlib import Path

import filelock
import numpy as np
import orbax.checkpoint as ocp

# Compilation takes most of the time: a plain cell without layer norms compiles faster.
SIZES = ("--preset", "smoke", "--steps", "5", "--batch", "4", "--cell", "elman", "--no-layer-norm")
VERSION_01 = Path(__file__).parents[1] / "fixtures" / "version-0.1"


def copy_of_run(command, shared: Path, folder: Path, name: str, *args) -> Path:
    """A copy, under `folder`, of a run that is made once per session."""
    out = shared / name
    with filelock.FileLock(shared / f"{name}.lock"):
        if not out.exists():
            command(*args, "--out", out).check(0)
    (directory,) = out.iterdir()
    return Path(shutil.copytree(directory, folder / "runs" / directory.name))


def run_of_version_01(folder: Path) -> Path:
    """A copy, under `folder`, of a run on the bandit that version 0.1 made: for tests that train nothing."""
    shutil.copytree(VERSION_01, folder, dirs_exist_ok=True)
    (directory,) = folder.glob("bandit-laplace-*")
    return directory


def arrays(run: Path, update: int) -> dict[str, np.ndarray]:
    """Arrays of a checkpoint, read without code of the package."""
    stored = ocp.PyTreeCheckpointer().restore((run / "checkpoints" / str(update) / "arrays").absolute())
    return {name: np.asarray(array) for name, array in stored.items()}
