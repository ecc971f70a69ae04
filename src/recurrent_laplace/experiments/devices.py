"""The devices that a run is shared out among."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from recurrent_laplace.learning.sharding import TASKS


def make_mesh(devices: int) -> Mesh | None:
    """The first `devices` devices of every process, in a row; None where one device is all."""
    rows = devices_by_process()
    if devices > len(rows[0]):
        raise ValueError(
            f"devices must be at most {len(rows[0])}, the number that JAX finds here; got {devices}. "
            f"XLA_FLAGS=--xla_force_host_platform_device_count={devices} makes so many of a CPU."
        )
    chosen = [device for row in rows for device in row[:devices]]
    return None if len(chosen) == 1 else Mesh(np.array(chosen), (TASKS,), axis_types=(AxisType.Auto,))


def devices_by_process() -> list[list[Any]]:
    """The devices of each process, in order."""
    rows: list[list[Any]] = [[] for _ in range(jax.process_count())]
    for device in jax.devices():
        rows[device.process_index].append(device)
    return rows
