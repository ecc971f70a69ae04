"""Worker process of a sweep: `python -m recurrent_laplace.sweeps.worker`."""

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from recurrent_laplace.files import StorageError
from recurrent_laplace.machine.compilation import keep_compiled_programs
from recurrent_laplace.runs.runner import InterruptedRunError
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.tasks import load_task

STOPPED = 130
"""Exit code of a worker that was asked to stop."""


def main() -> None:
    """Work on a sweep, or on one job of it, until nothing is left to do or the sweeper ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--job")
    parser.add_argument("--owner")
    add_task_arguments(parser)
    options = parser.parse_args()
    threading.Thread(target=_stop_with_the_sweeper, daemon=True).start()
    keep_compiled_programs()
    try:
        load_tasks(options)
        directory = SweepDirectory.open(options.directory, tuple(options.stages))
        directory.attempts = options.attempts
        directory.leases.owner = options.owner or directory.leases.owner
        if options.job is None:
            directory.work()
        else:
            directory.work_on(options.job)
    except (InterruptedRunError, KeyboardInterrupt):
        raise SystemExit(STOPPED) from None
    except (StorageError, ValueError) as problem:
        print(problem, file=sys.stderr)
        raise SystemExit(2) from problem


def add_task_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `task_arguments` to a parser."""
    parser.add_argument("--task", action="append", default=[])
    parser.add_argument("--task-folder", type=Path)


def task_arguments(references: Sequence[str], folder: Path) -> list[str]:
    """Arguments by which a child process loads the tasks that the user has named, from the same folder."""
    return [*(f"--task={reference}" for reference in references), f"--task-folder={folder}"]


def load_tasks(options: argparse.Namespace) -> None:
    """Load the tasks that the parent process was asked to load."""
    for reference in options.task:
        load_task(reference, folder=options.task_folder)


def _stop_with_the_sweeper() -> None:
    """Stop when standard input closes, which happens when the sweeper ends in whatever way."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
