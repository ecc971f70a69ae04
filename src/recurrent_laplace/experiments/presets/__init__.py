"""Configurations that ship with the package: `smoke`, `small`, `laptop` and `paper`."""

import functools
from importlib import resources
from pathlib import Path

from recurrent_laplace.errors import check_choice
from recurrent_laplace.experiments.config import Tables, check_keys, merge, parse_toml

PRESETS = ("smoke", "small", "laptop", "paper")


@functools.cache
def load_preset(name: str, task: str, posterior: str) -> Tables:
    """The preset's tables for a task and a posterior.

    A preset file has the sections of a configuration, `[tasks.NAME.SECTION]` for what is special to a
    task, `[posteriors.NAME.SECTION]` for what is special to a posterior on any task, and
    `[tasks.NAME.posteriors.NAME.SECTION]` for both.
    """
    check_choice("preset", name, PRESETS)
    file = resources.files(__name__) / f"{name}.toml"
    tables = parse_toml(file.read_text(), Path(f"{name}.toml"))
    by_task = tables.pop("tasks", {}).get(task, {})
    by_posterior = tables.pop("posteriors", {}).get(posterior, {})
    by_both = by_task.pop("posteriors", {}).get(posterior, {})
    merged = merge(tables, by_task, by_posterior, by_both)
    check_keys(merge({"task": {"name": task}}, merged))
    return merged


def load_sweep(name: str) -> tuple[Tables, Path]:
    """The tables of a sweep file that ships with the package, and its name for messages."""
    file = resources.files(__name__) / f"{name}.toml"
    return parse_toml(file.read_text(), Path(f"{name}.toml")), Path(f"{name}.toml")
