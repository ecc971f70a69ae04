"""A Ray cluster as a team. Ray itself is in a process of its own, which this one starts and looks after."""

import importlib.util
import os
import shutil
import socket
import sys
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from recurrent_laplace.errors import check_size
from recurrent_laplace.experiments.sweeps import SweepDirectory
from recurrent_laplace.experiments.teams import AbstractTeam, Process, last_line
from recurrent_laplace.experiments.worker import STOPPED
from recurrent_laplace.files import StorageError

PROBE_SECONDS = 4.0
"""How long an address may take to answer."""
SHOWN = 8
"""So many of the runs that are at work are heard."""


class RayTeam(AbstractTeam):
    """The nodes of a Ray cluster; without an address, of the one that runs here or is started here."""

    def __init__(
        self,
        directory: SweepDirectory,
        *,
        address: str | None = None,
        cpus_per_run: int = 1,
        only: tuple[str, ...] = (),
    ):
        check_size("cpus_per_run", cpus_per_run)
        if importlib.util.find_spec("ray") is None:
            raise ValueError("executor 'ray' needs ray: pip install 'recurrent-laplace[ray]'.")
        self.address = address = address or os.environ.get("RAY_ADDRESS")
        if address is not None and address != "auto":
            check_answers(address)
        command = [
            sys.executable,
            "-m",
            "recurrent_laplace.experiments.ray_driver",
            str(directory.path),
            *only,
        ]
        command += ["--attempts", str(directory.attempts), "--cpus-per-run", str(cpus_per_run)]
        command += ["--address", address] if address else []
        # Attempts that the sweep's disk has no room for: the driver counts them here, for us to see.
        leases = directory.leases
        leases.overflow = Path(tempfile.mkdtemp(prefix="recurrent-laplace-"))
        weakref.finalize(leases, shutil.rmtree, leases.overflow, ignore_errors=True)
        command += ["--overflow", str(leases.overflow)]
        # Nobody is told that there is a sweep.
        environment = {"RAY_USAGE_STATS_ENABLED": "0"} | os.environ
        super().__init__(directory, [Process(command, directory.path / "logs" / "ray.txt", environment)])

    def about(self) -> str:
        return f"Ray at {self.address}" if self.address else "Ray on this machine"

    def lines(self, running: Iterable[str]) -> list[str]:
        heard = (last_line(log_of(self.directory, job)) for job in list(running)[:SHOWN])
        return [self.processes[0].last_line(), *filter(None, heard)]

    def is_working(self) -> bool:
        (driver,) = self.processes
        if driver.code is None:
            return True
        if driver.code == STOPPED:
            self.was_stopped = True
        elif driver.code == 2:
            raise StorageError(driver.last_line())
        elif driver.code != 0:
            raise StorageError(
                f"the Ray cluster is lost, its driver ended with code {driver.code} ({driver.log}): nothing "
                "that was stored is lost, and the same command continues the sweep."
            )
        return False


def log_of(directory: SweepDirectory, job_id: str) -> Path:
    """What a job's workers print."""
    return directory.path / "logs" / f"{job_id}.txt"


def answers(address: str) -> bool:
    """Whether anyone listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def check_answers(address: str) -> None:
    """Refuse an address that is none, or that nobody answers at."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"address must be HOST:PORT of a Ray cluster's head, or auto; got {address!r}.")
    if not answers(address):
        raise StorageError(f"no Ray cluster answers at {address}: start its head there (ray start --head).")
