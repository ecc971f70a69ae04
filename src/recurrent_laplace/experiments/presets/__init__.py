"""Configurations that ship with the package: `smoke`, `laptop` and `paper`."""

from importlib import resources
from pathlib import Path

from recurrent_laplace.errors import check_choice
from recurrent_laplace.experiments.config import Tables, check_keys, merge, parse_toml

PRESETS = ("smoke", "laptop", "paper")


def load_preset(name: str, task: str, posterior: str) -> Tables:
    """The preset's tables for a task and a posterior.

    A preset file has the sections of a configuration, `[tasks.NAME.SECTION]` for what is special to a
    task, and `[posteriors.NAME.SECTION]` for what is special to a posterior on any task.
    """
    check_choice("preset", name, PRESETS)
    file = resources.files(__name__) / f"{name}.toml"
    tables = parse_toml(file.read_text(), Path(f"{name}.toml"))
    by_task = tables.pop("tasks", {})
    by_posterior = tables.pop("posteriors", {})
    merged = merge(tables, by_task.get(task, {}), by_posterior.get(posterior, {}))
    check_keys(merge({"task": {"name": task}}, merged))
    return merged
