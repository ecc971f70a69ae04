"""The devices that a run is shared out among."""

import contextlib
import os
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from recurrent_laplace.chunks import largest_divisor
from recurrent_laplace.learning.sharding import TASKS, Shared

Devices = int | Literal["auto"]
"""How many: `"auto"` for one, or with several seeds on a CPU a core for each share of them."""


def share_out(devices: Devices, seeds: int) -> tuple[Mesh | None, Shared]:
    """Devices for a run, and what they share: its seeds where that comes out even, else the tasks."""
    mesh = make_mesh(_cores_for(seeds) if devices == "auto" else devices)
    # The seeds of another process could not be stored by this one.
    even = mesh is not None and seeds % mesh.size == 0 and jax.process_count() == 1
    return mesh, "seeds" if even else "tasks"


def _cores_for(seeds: int) -> int:
    """The most devices made of a CPU's cores that share so many seeds out evenly."""
    count = largest_divisor(seeds, len(cores()))
    if count == 1:
        return 1
    _split_cpu(count)
    is_cpu_alone = jax.default_backend() == "cpu" and jax.process_count() == 1
    return largest_divisor(seeds, min(count, jax.device_count())) if is_cpu_alone else 1


def make_mesh(devices: int) -> Mesh | None:
    """The first `devices` devices of every process, in a row; None where one device is all."""
    if devices > 1:
        _split_cpu(devices)
    rows = devices_by_process()
    if devices > len(rows[0]):
        raise ValueError(
            f"devices must be at most {len(rows[0])}, the number that JAX finds here; got {devices}. "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} makes so many of a CPU."
        )
    chosen = [device for row in rows for device in row[:devices]]
    return None if len(chosen) == 1 else Mesh(np.array(chosen), (TASKS,))


def _split_cpu(devices: int) -> None:
    """Let a CPU pass for as many devices, a core for each: faster than one for small networks."""
    chosen_by_user = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen_by_user or devices > len(cores()):
        return
    # Once JAX has been used, it is what it is.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def devices_by_process() -> list[list[Any]]:
    """The devices of each process, in order."""
    rows: list[list[Any]] = [[] for _ in range(jax.process_count())]
    for device in jax.devices():
        rows[device.process_index].append(device)
    return rows
