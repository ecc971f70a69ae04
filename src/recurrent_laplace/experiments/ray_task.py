"""What Ray runs on a node: a worker process for one job, as on one machine.

Ray sends this file's text, not its name: so that a node where the package is missing can say so, it imports
nothing of the package.
"""

import contextlib
import errno
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, TypedDict

LOOK_SECONDS = 0.2
"""How often the task looks at its worker; between two looks Ray can cancel it."""
LAST = 2000
"""So many bytes at the end of a worker's output have its last line."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Order(TypedDict):
    """A job for a node."""

    directory: str
    """The sweep's, by its absolute path."""
    digest: str
    """Of the sweep file that has to be there."""
    version: str
    """Of the package that has to be there."""
    arguments: list[str]
    """Of the worker."""
    environment: dict[str, str]
    """What the worker's environment has beside the node's own."""
    log: str
    """File that the worker prints to."""


class Outcome(TypedDict):
    """What came of it: how a worker ended, or what is wrong with the node."""

    node: str
    process: int
    """The worker's; 0 if there was none."""
    code: int
    """The worker's exit code."""
    said: str
    """The last line that it printed."""
    problem: str
    """Why no job can be done on the node."""


def perform(order: Order) -> Outcome:
    """Check that the node can do the job, and let a worker do it."""
    outcome = Outcome(node=platform.node(), process=0, code=2, said="", problem="")
    if problem := _what_is_missing(order):
        outcome["problem"] = f"node {outcome['node']} {problem}"
        return outcome
    try:
        log = open(order["log"], "ab", buffering=0)  # noqa: SIM115
    except OSError as error:
        said = f"cannot write {order['log']}: {error.strerror}."
        if error.errno in NO_ROOM:
            outcome["said"] = said
        else:
            outcome["problem"] = f"node {outcome['node']} {said}"
        return outcome
    command = [sys.executable, "-m", "recurrent_laplace.experiments.worker", *order["arguments"]]
    # Not to the log itself: its disk may be full, and what the worker says then is what must be heard.
    with log, tempfile.TemporaryFile() as output:
        worker = subprocess.Popen(
            command,
            env=os.environ | order["environment"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert worker.stdin is not None
        copied = 0
        try:
            # Not `wait()`: Ray cancels by an interrupt that a blocking call does not see.
            while worker.poll() is None:
                time.sleep(LOOK_SECONDS)
                copied = _copy(output, log, copied)
        finally:
            # Also when this process dies: the worker's input closes, which tells it to store and stop.
            worker.stdin.close()
            worker.wait()
            copied = _copy(output, log, copied)
        last = os.pread(output.fileno(), LAST, max(copied - LAST, 0)).decode(errors="replace")
    outcome["process"], outcome["code"] = worker.pid, worker.returncode
    outcome["said"] = (last.strip().splitlines() or [""])[-1]
    return outcome


def _copy(output: IO[bytes], log: IO[bytes], start: int) -> int:
    """Copy what is new of a worker's output to its log, if there is room for it, and say where that ends."""
    # The worker writes at the file's position: it must not be moved.
    while text := os.pread(output.fileno(), 2**16, start):
        with contextlib.suppress(OSError):
            log.write(text)
        start += len(text)
    return start


def _what_is_missing(order: Order) -> str:
    sweep = Path(order["directory"]) / "sweep.toml"
    try:
        found = hashlib.sha256(sweep.read_bytes()).hexdigest()
    except OSError as error:
        return (
            f"does not see {sweep} ({error.strerror}): the directory of the sweep must be on a disk that all "
            "nodes share, under the same path."
        )
    if found != order["digest"]:
        return f"has another {sweep}: the directory of the sweep must be on a disk that all nodes share."
    look = "import recurrent_laplace; print(recurrent_laplace.__version__)"
    result = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    if result.returncode:
        why = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"has no package recurrent-laplace for its {sys.executable} ({why}): install it there."
    if result.stdout.strip() != order["version"]:
        versions = f"{result.stdout.strip()} and the sweeper {order['version']}"
        return f"has recurrent-laplace {versions}: install the same on all nodes."
    return ""
