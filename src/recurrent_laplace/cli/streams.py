"""Standard streams and Ctrl-C: no tracebacks for closed or full streams, broken pipes or interrupts."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO

INTERRUPTED = 130
"""Exit code after Ctrl-C, by convention 128 + SIGINT."""


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """Replace closed standard streams, and flush them at the end.

    A reader that closes the pipe (`| head`) is not an error. If standard output cannot be written, as on a
    full disk, the process exits with a one-sentence message and code 1.
    """
    _open_closed_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
    except OSError as problem:
        # The verbs handle errors of files: an error that arrives here is about a standard stream.
        _discard(sys.stdout)
        with contextlib.suppress(OSError):
            print(
                f"recurrent-laplace: cannot write to standard output: {problem.strerror or problem}.",
                file=sys.stderr,
            )
        raise SystemExit(1) from None
    finally:
        # Python flushes again at exit, and would print a traceback.
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                _discard(stream)


@contextlib.contextmanager
def quick_interrupts(message: str) -> Iterator[None]:
    """Exit immediately on Ctrl-C, with a message.

    `KeyboardInterrupt` would surface as another exception while modules are imported, and be lost in
    callbacks of JAX. Files are written atomically, so there is nothing to clean up.
    """

    def leave(number: int, frame: Any) -> None:
        del number, frame
        with contextlib.suppress(OSError):
            os.write(2, f"recurrent-laplace: {message}\n".encode())
        os._exit(INTERRUPTED)

    before = None
    with contextlib.suppress(ValueError):  # Only the main thread can set signal handlers.
        before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _open_closed_streams() -> None:
    """Open the null device for closed descriptors, which the next opened file would get otherwise."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # Gets the lowest free descriptor, which is this one.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115


def _discard(stream: TextIO) -> None:
    """Redirect a stream, with what is left in its buffer, to the null device."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
