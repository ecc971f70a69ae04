"""Time that a run has taken, from the records of its sweep or of its sessions."""

import contextlib
import datetime
from collections.abc import Sequence
from typing import Any, NamedTuple

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.provenance import read_sessions
from recurrent_laplace.sweeps.leases import Leases

HOUR = 3600.0


class Work(NamedTuple):
    """Time of a run, and the cores that it could use."""

    seconds: float
    """Of all attempts, from the start of each to the end of its evaluation; without a sweep, of the training
    alone."""
    cores: int

    @property
    def hours(self) -> float:
        """Core-hours."""
        return self.seconds * self.cores / HOUR


def work_of(directory: RunDirectory, sessions: Sequence[dict[str, Any]]) -> Work:
    """Time of a run with these sessions."""
    # Records of version 0.1 have the cores of the machine alone.
    counts = [session.get("available_cores") or session.get("cores") for session in sessions]
    recorded = 0.0
    with contextlib.suppress(StorageError):  # A damaged record does not make the run useless.
        recorded = Leases(directory.path.parent.parent / "jobs").entry(directory.run.id).seconds
    seconds = recorded or sum(map(_session_seconds, sessions))
    return Work(seconds, max((count for count in counts if count), default=1))


def core_hours(directory: RunDirectory) -> float:
    """Core-hours of a run that may be damaged; 0 if its records cannot be read."""
    with contextlib.suppress(StorageError):
        return work_of(directory, read_sessions(directory.provenance_path)).hours
    return 0.0


def _session_seconds(session: dict[str, Any]) -> float:
    began, ended = session.get("began"), session.get("ended")
    if not began or not ended:
        return 0.0
    # Times from elsewhere may be no times, or lack a time zone.
    with contextlib.suppress(ValueError, TypeError):
        start, end = (datetime.datetime.fromisoformat(time) for time in (began, ended))
        return max((end - start).total_seconds(), 0.0)
    return 0.0
