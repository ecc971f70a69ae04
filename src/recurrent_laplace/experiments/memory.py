"""How much memory there is, and a refusal in words where it will not do."""

from pathlib import Path

import jax

from recurrent_laplace.posterior.cost import format_bytes


def available_bytes() -> int | None:
    """What the default device has left; None if it cannot be known."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return _host_bytes()


def _host_bytes() -> int | None:
    known = []
    meminfo = Path("/proc/meminfo")
    if meminfo.is_file():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        known.append(1024 * int(fields["MemAvailable"].split()[0]))
    group = Path("/sys/fs/cgroup")
    limit, used = group / "memory.max", group / "memory.current"
    if limit.is_file() and used.is_file() and limit.read_text().strip() != "max":
        known.append(int(limit.read_text()) - int(used.read_text()))
    return min(known, default=None)


class TooLargeError(Exception):
    """A computation that would not fit in memory, refused before it starts."""


def require_memory(needed: int, what: str, remedy: str) -> None:
    """Refuse `what` if it needs more bytes than there are, and say what to do instead."""
    available = available_bytes()
    if available is not None and needed > available:
        raise TooLargeError(
            f"{what} needs about {format_bytes(needed)} of memory; "
            f"{format_bytes(available)} are available. {remedy}"
        )
