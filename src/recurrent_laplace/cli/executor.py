"""Executor options that `sweep` and `reproduce` share."""

import dataclasses
from typing import Annotated, Literal

from recurrent_laplace.cli.display import unset
from recurrent_laplace.machine.devices import cores
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.local import AbstractExecutor, LocalExecutor
from recurrent_laplace.sweeps.ray.executor import RayExecutor


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options of the executor of a sweep."""

    only: Annotated[tuple[str, ...], unset("STAGE ...")] = ()
    """Stages to execute, with their dependencies; all but the optional ones by default."""
    executor: Literal["local", "ray"] = "local"
    """Where runs execute: in local processes, or on a Ray cluster (docs/scaling.md)."""
    workers: Annotated[int | None, unset("INT")] = None
    """Processes of the local executor; one per core by default."""
    address: Annotated[str | None, unset("HOST:PORT|auto")] = None
    """Head of the Ray cluster; by default RAY_ADDRESS, or else a cluster on this machine."""
    cpus_per_run: Annotated[int | None, unset("INT")] = None
    """CPUs, and therefore threads, per run on a Ray cluster; 1 by default."""

    def make_executor(self, directory: SweepDirectory) -> AbstractExecutor:
        """Build the executor of a sweep."""
        unsupported = ("address", "cpus_per_run") if self.executor == "local" else ("workers",)
        for name in unsupported:
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} has no meaning with executor {self.executor!r}; got {value!r}.")
        if self.executor == "ray":
            cpus = 1 if self.cpus_per_run is None else self.cpus_per_run
            return RayExecutor(directory, address=self.address, cpus_per_run=cpus, only=self.only)
        workers = len(cores()) if self.workers is None else self.workers
        return LocalExecutor(directory, workers=workers, only=self.only)
