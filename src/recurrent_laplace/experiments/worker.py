"""A worker of a sweep, as a process of its own: `python -m recurrent_laplace.experiments.worker`."""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from recurrent_laplace.experiments.compilation import keep_compiled_programs
from recurrent_laplace.experiments.runner import InterruptedRunError
from recurrent_laplace.experiments.sweeps import SweepDirectory
from recurrent_laplace.files import StorageError

STOPPED = 130
"""Exit code of a worker that was asked to stop."""


def main() -> None:
    """Work on a sweep, or on one job of it, until nothing is left to do, or the sweeper is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--job")
    options = parser.parse_args()
    threading.Thread(target=_stop_with_the_sweeper, daemon=True).start()
    keep_compiled_programs()
    try:
        directory = SweepDirectory.open(options.directory, tuple(options.stages))
        directory.attempts = options.attempts
        if options.job is None:
            directory.work()
        else:
            directory.work_on(options.job)
    except (InterruptedRunError, KeyboardInterrupt):
        raise SystemExit(STOPPED) from None
    except (StorageError, ValueError) as problem:
        print(problem, file=sys.stderr)
        raise SystemExit(2) from problem


def _stop_with_the_sweeper() -> None:
    """The sweeper holds the other end of standard input: when it dies, however it dies, that closes."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
