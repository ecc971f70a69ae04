"""Available memory, and an error for computations that would not fit."""

import os
from pathlib import Path

import jax

from recurrent_laplace.posterior.cost import format_bytes


def available_bytes() -> int | None:
    """Free memory of the default device in bytes; None if unknown."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return _host_bytes()


def _host_bytes() -> int | None:
    limits = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        limits.append(1024 * int(fields["MemAvailable"].split()[0]))
    elif hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        limits.append(int(limit.read_text()) - int(used.read_text()))
    return min(limits, default=None)


class TooLargeError(ValueError):
    """A computation would not fit in memory; raised before it starts."""


def require_memory(needed: int, computation: str, remedy: str) -> None:
    """Raise `TooLargeError` if a computation needs more bytes than are available."""
    available = available_bytes()
    if available is not None and needed > available:
        raise TooLargeError(
            f"{computation} needs about {format_bytes(needed)} of memory; "
            f"{format_bytes(available)} are available. {remedy}"
        )
