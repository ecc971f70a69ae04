"""How flags are shown by `--help`."""

from typing import Any

import tyro

EXECUTION = tyro.conf.arg(name="execution")
"""Annotation of `RunOptions`."""


def unset(metavar: str) -> Any:
    """Annotation of an option whose default depends on others: its help text says how."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")
