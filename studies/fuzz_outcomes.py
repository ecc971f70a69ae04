"""Outcomes of cases: what a reader or a command did with its input."""

import contextlib
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recurrent_laplace.files import StorageError

OUTCOMES = ("refused", "same value", "accepted", "changed value", "traceback", "unclear message", "too long")
FAILURES = OUTCOMES[3:]
CASE_SECONDS = 20
"""Longest time that a case in this process may take."""


class Case(NamedTuple):
    """What was done, and what came of it."""

    kind: str
    index: int
    what: str
    outcome: str
    detail: str = ""


class OverdueError(BaseException):
    """A case took too long. No `Exception`, so that no reader takes it for one of its own."""


@contextlib.contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Raise `OverdueError` in the block when its time is over."""

    def ring(*_: object) -> None:
        raise OverdueError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(read: Callable[[], Any], judge: Callable[[Any], str]) -> tuple[str, str]:
    """The outcome of a reader, with the message of its error; `judge` names the outcome of a value."""
    try:
        with deadline(CASE_SECONDS):
            return judge(read()), ""
    except (StorageError, ValueError, OSError) as problem:
        message = str(problem)
        return ("refused" if len(message.splitlines()) == 1 else "unclear message"), message
    except OverdueError:
        return "too long", f"more than {CASE_SECONDS} s"
    except Exception:
        # Any other exception is what this study is looking for.
        return "traceback", traceback.format_exc(limit=-3)
