"""Where numbers come from: versions, machine, commands, times."""

import importlib.metadata
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from recurrent_laplace.files import StorageError, read_text, write_text

PACKAGES = ("recurrent-laplace", "jax", "jaxlib", "equinox", "optax", "numpy", "orbax-checkpoint", "polars")


def describe_session(command: list[str] | None = None) -> dict[str, Any]:
    """One session of work on a run: what ran it, and when it began."""
    return {
        "command": sys.argv if command is None else command,
        "began": now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "devices": [str(device) for device in jax.devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def describe_machine() -> str:
    """What times were measured on, in a line."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib"))
    processor = _processor() or platform.machine()
    return (
        f"Machine: {processor}, {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, {versions}."
    )


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """The sessions so far."""
    if not path.exists():
        return []
    try:
        sessions = json.loads(read_text(path))["sessions"]
    except (ValueError, KeyError, TypeError) as problem:
        raise StorageError(f"{path} is damaged: {problem}.") from problem
    return list(sessions)


def write_sessions(path: Path, sessions: list[dict[str, Any]]) -> None:
    """Store the sessions."""
    write_text(path, json.dumps({"sessions": sessions}, indent=2) + "\n")


def now() -> str:
    """The time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
