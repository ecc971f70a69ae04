"""A function in a process of its own, and the memory that a process has taken."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class ChildDiedError(Exception):
    """The process ended before its function did."""


def alone(function: Callable[..., Result], *args: object) -> Result:
    """What a function of a module returns, called in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *args).result()
        except BrokenProcessPool:
            raise ChildDiedError("the process that was measured died, perhaps for want of memory.") from None


def process_peak_mb() -> float:
    """The most memory that this process has had so far."""
    # `getrusage` would count what the parent had when it started this process.
    status = Path("/proc/self/status")
    if status.is_file():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0]) / 1e6
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
