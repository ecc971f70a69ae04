"""Presets, configurations that ship with the package: `smoke`, `small`, `laptop`, `reproduction`, `paper`.

Importing them does not import JAX.
"""

import functools
from importlib import resources
from pathlib import Path

from recurrent_laplace.errors import check_choice
from recurrent_laplace.runs.toml import Tables, merge, parse_toml

PRESETS = ("smoke", "small", "laptop", "reproduction", "paper")


@functools.cache
def load_preset(name: str, task: str, posterior: str) -> Tables:
    """Tables of a preset for a task and a posterior.

    A preset file has the sections of a configuration, `[tasks.NAME.SECTION]` for the values of one task,
    `[posteriors.NAME.SECTION]` for those of one posterior on any task, and
    `[tasks.NAME.posteriors.NAME.SECTION]` for those of both.
    """
    check_choice("preset", name, PRESETS)
    file = resources.files(__name__) / f"{name}.toml"
    tables = parse_toml(file.read_text(), Path(f"{name}.toml"))
    by_task = tables.pop("tasks", {}).get(task, {})
    by_posterior = tables.pop("posteriors", {}).get(posterior, {})
    by_both = by_task.pop("posteriors", {}).get(posterior, {})
    return merge(tables, by_task, by_posterior, by_both)


def load_sweep(name: str) -> tuple[Tables, Path]:
    """Tables of a sweep file that ships with the package, and its name for messages."""
    file = resources.files(__name__) / f"{name}.toml"
    return parse_toml(file.read_text(), Path(f"{name}.toml")), Path(f"{name}.toml")
