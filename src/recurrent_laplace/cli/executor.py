"""Where the runs of a sweep are made: options that `sweep` and `reproduce` have in common."""

import dataclasses
from typing import Literal

from recurrent_laplace.experiments.devices import cores
from recurrent_laplace.experiments.ray_team import RayTeam
from recurrent_laplace.experiments.sweeps import SweepDirectory
from recurrent_laplace.experiments.teams import AbstractTeam, LocalTeam


@dataclasses.dataclass(frozen=True, kw_only=True)
class Executor:
    """Who works on a sweep."""

    only: tuple[str, ...] = ()
    """Stages to do, with all that they hang on; all but the optional ones by default."""
    executor: Literal["local", "ray"] = "local"
    """Where runs are made: in processes of this machine, or on a Ray cluster (docs/scaling.md)."""
    workers: int | None = None
    """Processes of the local executor; one for each core by default."""
    address: str | None = None
    """HOST:PORT of the Ray cluster's head, or auto: the cluster of this machine. By default what RAY_ADDRESS
    says, else the cluster of this machine, which is started if there is none."""
    cpus_per_run: int | None = None
    """CPUs, and so threads, of a run on a Ray cluster; 1 by default."""

    def team(self, directory: SweepDirectory) -> AbstractTeam:
        """Who is to work on the sweep."""
        foreign = ("address", "cpus_per_run") if self.executor == "local" else ("workers",)
        for name in foreign:
            if (value := getattr(self, name)) is not None:
                raise ValueError(f"{name} has no meaning with executor {self.executor!r}; got {value!r}.")
        if self.executor == "ray":
            cpus = 1 if self.cpus_per_run is None else self.cpus_per_run
            return RayTeam(directory, address=self.address, cpus_per_run=cpus, only=self.only)
        workers = len(cores()) if self.workers is None else self.workers
        return LocalTeam(directory, workers=workers, only=self.only)
