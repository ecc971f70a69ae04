"""Executor on a Ray cluster. Ray runs in a child process, which this module starts and monitors."""

import importlib.util
import os
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path

from recurrent_laplace.errors import check_size
from recurrent_laplace.files import StorageError
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.local import AbstractExecutor, Process, last_line, python_module
from recurrent_laplace.sweeps.worker import STOPPED, task_arguments

PROBE_SECONDS = 4.0
"""Timeout of an address to answer."""
SHOWN = 8
"""Maximum number of running jobs whose output is shown."""


class RayExecutor(AbstractExecutor):
    """Executor on a Ray cluster; without an address, on the one of this machine, started if necessary."""

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
        command = [*python_module("recurrent_laplace.sweeps.ray.driver"), str(directory.path), *only]
        command += ["--attempts", str(directory.attempts), "--cpus-per-run", str(cpus_per_run)]
        command += ["--address", address] if address else []
        command += task_arguments(directory.references, Path.cwd())
        # If the disk of the sweep is full, the driver records attempts here, where this process reads them.
        leases = directory.leases
        leases.overflow = Path(tempfile.mkdtemp(prefix="recurrent-laplace-"))
        weakref.finalize(leases, shutil.rmtree, leases.overflow, ignore_errors=True)
        command += ["--overflow", str(leases.overflow)]
        # No usage statistics are sent.
        environment = {"RAY_USAGE_STATS_ENABLED": "0"} | os.environ
        super().__init__(directory, [Process(command, directory.path / "logs" / "ray.txt", environment)])

    def about(self) -> str:
        return f"Ray at {self.address}" if self.address else "Ray on this machine"

    def lines(self, running: Iterable[str]) -> list[str]:
        lines = (last_line(log_of(self.directory, job)) for job in list(running)[:SHOWN])
        return [self.processes[0].last_line(), *filter(None, lines)]

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
    """Log of a job's workers."""
    return directory.path / "logs" / f"{job_id}.txt"


def answers(address: str) -> bool:
    """Whether a server listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def check_answers(address: str) -> None:
    """Raise an error for an invalid address, or one where no server answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ValueError(f"address must be HOST:PORT of a Ray cluster's head, or auto; got {address!r}.")
    if not answers(address):
        raise StorageError(f"no Ray cluster answers at {address}: start its head there (ray start --head).")
