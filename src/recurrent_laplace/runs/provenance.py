"""Provenance of a run: versions, machine, commands, times."""

import contextlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import NoneType
from typing import Any

import jax

from recurrent_laplace.errors import shown
from recurrent_laplace.files import DamagedError, read_json, write_json
from recurrent_laplace.machine.devices import cores

PACKAGES = ("recurrent-laplace", "jax", "jaxlib", "equinox", "optax", "numpy", "orbax-checkpoint", "polars")

FIELDS = {
    "command": (list, NoneType),
    "began": (str, NoneType),
    "ended": (str, NoneType),
    "platform": (str, NoneType),
    "processor": (str, NoneType),
    "python": (str, NoneType),
    "packages": (dict, NoneType),
    "commit": (str, NoneType),
    "cores": (int, NoneType),
    "available_cores": (int, NoneType),
}
"""Types of the members of a session that are read back; any may be absent."""
SECONDS = ("update_seconds", "compile_seconds")
"""Measured times of a session, from 0 to `MOST_SECONDS`; any may be absent."""
MOST_SECONDS = 1e9


def describe_session(command: list[str] | None = None) -> dict[str, Any]:
    """Record of a session that starts now: command, machine and versions."""
    return {
        "command": sys.argv if command is None else command,
        "began": now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "available_cores": len(cores()),
        "devices": [str(device) for device in jax.devices()],
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
        "commit": commit(),
    }


def commit(package: str = PACKAGES[0]) -> str | None:
    """Commit of the installed package, with `-dirty` if its files have changed since; None if unknown.

    Known of installations from a repository (`pip install git+file:///path@COMMIT`), and of editable ones.
    """
    text = importlib.metadata.distribution(package).read_text("direct_url.json")
    origin = json.loads(text) if text else {}
    if "vcs_info" in origin:
        return origin["vcs_info"]["commit_id"]
    if not origin.get("dir_info", {}).get("editable"):
        return None
    # Without a tag or history the name is the commit itself.
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()
    return None


def describe_machine() -> str:
    """One-line description of this machine, for tables of measured times."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib"))
    processor = _processor() or platform.machine()
    return (
        f"Machine: {processor}, {os.cpu_count()} cores, {platform.system()}; "
        f"Python {platform.python_version()}, {versions}."
    )


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """Read the sessions of a run; empty if there is no file."""
    if not path.exists():
        return []
    sessions = read_json(path).get("sessions")
    if not isinstance(sessions, list) or not all(isinstance(session, dict) for session in sessions):
        raise DamagedError(f"{path} is damaged: its sessions must be a list of objects.")
    for session in sessions:
        for name, kinds in FIELDS.items():
            if not isinstance(session.get(name), kinds):
                raise DamagedError(f"{path} is damaged: {name} of a session is {shown(session[name])}.")
        for name in SECONDS:
            seconds = session.get(name)
            is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
            if seconds is not None and not (is_number and 0 <= seconds <= MOST_SECONDS):
                raise DamagedError(f"{path} is damaged: {name} of a session is {shown(seconds)}.")
        if not all(isinstance(word, str) for word in session.get("command") or []):
            raise DamagedError(f"{path} is damaged: command of a session must be a list of texts.")
    return sessions


def write_sessions(path: Path, sessions: list[dict[str, Any]]) -> None:
    """Write the sessions of a run."""
    write_json(path, {"sessions": sessions})


def now() -> str:
    """Current time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
