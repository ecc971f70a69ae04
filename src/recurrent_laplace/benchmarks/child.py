"""Functions in a fresh process, and the peak memory of a process."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


class ChildDiedError(Exception):
    """The subprocess died before its function returned."""


def run_in_subprocess(function: Callable[..., Result], *args: object) -> Result:
    """Call a module-level function in a fresh process and return its result."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *args).result()
        except BrokenProcessPool:
            raise ChildDiedError("the measured process died, perhaps because it ran out of memory.") from None


def process_peak_mb(pid: int | None = None) -> float:
    """Peak memory of this process, or of a child, so far, in MB."""
    # `getrusage` includes the memory of the parent at the time of the fork.
    status = Path(f"/proc/{pid or 'self'}/status")
    if status.is_file():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0]) / 1e6
    import resource

    who = resource.RUSAGE_SELF if pid is None else resource.RUSAGE_CHILDREN
    return resource.getrusage(who).ru_maxrss / 1e6
