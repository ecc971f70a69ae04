"""First line of `train`, printed before JAX and the rest are imported, which takes seconds."""

import contextlib
from pathlib import Path

from recurrent_laplace.cli.early import peek
from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.presets import load_preset
from recurrent_laplace.runs.toml import Tables, merge, read_toml

FLAGS = ("task", "posterior", "preset", "config", "updates", "out", "process")


def announce_training(argv: list[str]) -> None:
    """Print what the arguments of `train` ask for.

    Nothing is printed for a request for help, for a process that only takes part in a run, and where the
    arguments are not understood: the main parser has the error messages.
    """
    if not {"-h", "--help"}.isdisjoint(argv):
        return
    with contextlib.suppress(ValueError, StorageError, OSError):
        if (line := describe_training(argv)) is not None:
            print(line, flush=True)


def describe_training(argv: list[str]) -> str | None:
    """Task, posterior, preset, number of updates and folder, as far as the arguments say."""
    flags = peek(argv, *FLAGS)
    if flags.process not in (None, "0"):
        return None
    own: Tables = {}
    if flags.config is not None:
        file = Path(flags.config)
        if not file.is_file():  # A pipe can be read once, by the main parser.
            return None
        own = {name: table for name, table in read_toml(file).items() if isinstance(table, dict)}
    given = {name: value for name, value in vars(flags).items() if value is not None}
    task = given.get("task", own.get("task", {}).get("name", "gridworld"))
    posterior = given.get("posterior", own.get("posterior", {}).get("kind", "point"))
    preset = given.get("preset", "laptop")
    tables = merge(load_preset(preset, str(task), str(posterior)), own)
    updates = given.get("updates", tables.get("learning", {}).get("updates"))
    words = [f"train: task {task}", f"posterior {posterior}"]
    words.append(f"preset {preset}" if flags.config is None else f"configuration {flags.config}")
    if updates is not None:
        words.append(f"{updates} updates")
    return ", ".join(words) + f"; the run is written to a folder of {given.get('out', 'runs')}"
