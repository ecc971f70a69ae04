"""Ctrl-C and SIGTERM as requests to stop, which long computations poll."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Flag of a requested stop."""

    requested = False


@contextmanager
def graceful() -> Iterator[Stop]:
    """Turn the first Ctrl-C (or a cluster's SIGTERM) into a request to stop; the second acts as usual.

    The first raises no exception, because one that is raised in a callback of the garbage collector, such as
    JAX's, is lost.
    """
    stop = Stop()
    handlers = {}

    def request(number: int, frame: Any) -> None:
        del frame
        if stop.requested:
            signal.signal(number, handlers[number])
            os.kill(os.getpid(), number)
        stop.requested = True

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers[number] = signal.signal(number, request)
    except ValueError:  # Only the main thread may set handlers.
        pass
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
