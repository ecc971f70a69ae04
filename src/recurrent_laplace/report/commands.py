"""The command that made a directory of runs, and its preset."""

import shlex
import typing
from pathlib import Path

from recurrent_laplace.files import read_sealed
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.runs.toml import Tables, parse_toml
from recurrent_laplace.sweeps.looks import FILE, Scale

SWEEP = "sweep.toml"
"""Name of the file that describes a sweep."""


def preset_of(folder: Path) -> str | None:
    """Preset of the sweep or reproduction that made the runs; None for other directories."""
    for name in (FILE, SWEEP):
        if (folder / name).is_file():
            return _tables(folder / name).get("preset")
    return None


def scale_of(folder: Path) -> str | None:
    """Scale of a reproduction; None if the directory has none, or one of another version."""
    if not (folder / FILE).is_file():
        return None
    stored = _tables(folder / FILE)
    scales = typing.get_args(Scale)
    return next((scale for scale in scales if load_sweep(f"reproduce-{scale}")[0] == stored), None)


def command_of(folder: Path) -> str | None:
    """Command that made the runs of a directory, if it is a sweep or a reproduction."""
    if (scale := scale_of(folder)) is not None:
        words = ["reproduce", "--scale", scale, "--out", str(folder)]
    elif (folder / SWEEP).is_file():
        words = ["sweep", str(folder / SWEEP), "--out", str(folder)]
    else:
        return None
    return shlex.join(["recurrent-laplace", *words])


def _tables(file: Path) -> Tables:
    return parse_toml(read_sealed(file), file)
