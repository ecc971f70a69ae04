"""Devices of a run, as a mesh over which its seeds or tasks are sharded."""

import contextlib
import os
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from recurrent_laplace.chunks import largest_divisor
from recurrent_laplace.learning.sharding import TASKS, ShardedAxis

Devices = int | Literal["auto"]
"""Number of devices; `"auto"`: one, or with several seeds on a CPU one core per shard of the seeds."""


def choose_mesh(devices: Devices, seeds: int) -> tuple[Mesh | None, ShardedAxis]:
    """Mesh of a run and its sharded axis: the seeds if the devices divide them, else the tasks."""
    mesh = make_mesh(_cores_for(seeds) if devices == "auto" else devices)
    # Process 0 stores all seeds, so it needs them on its own devices.
    even = mesh is not None and seeds % mesh.size == 0 and jax.process_count() == 1
    return mesh, "seeds" if even else "tasks"


def _cores_for(seeds: int) -> int:
    """Largest number of CPU devices that divides the number of seeds."""
    count = largest_divisor(seeds, len(cores()))
    if count == 1:
        return 1
    _split_cpu(count)
    is_cpu_alone = jax.default_backend() == "cpu" and jax.process_count() == 1
    return largest_divisor(seeds, min(count, jax.device_count())) if is_cpu_alone else 1


def make_mesh(devices: int) -> Mesh | None:
    """One-dimensional mesh of the first `devices` devices of every process; None for a single device."""
    if devices > 1:
        _split_cpu(devices)
    rows = devices_by_process()
    if devices > len(rows[0]):
        raise ValueError(
            f"devices must be at most {len(rows[0])}, the number that JAX finds here; got {devices}. "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} splits a CPU into as many."
        )
    chosen = [device for row in rows for device in row[:devices]]
    return None if len(chosen) == 1 else Mesh(np.array(chosen), (TASKS,))


def _split_cpu(devices: int) -> None:
    """Split the CPU into `devices` devices of one core each: for small networks faster than one device."""
    chosen_by_user = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen_by_user or devices > len(cores()):
        return
    # JAX refuses once its devices are initialised.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", devices)


def cores() -> list[int]:
    """CPU cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def devices_by_process() -> list[list[Any]]:
    """Devices of each process, by process index."""
    rows: list[list[Any]] = [[] for _ in range(jax.process_count())]
    for device in jax.devices():
        rows[device.process_index].append(device)
    return rows
