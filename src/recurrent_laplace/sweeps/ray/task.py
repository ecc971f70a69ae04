"""Ray task: starts a worker process for one job on a node.

Ray ships the code of this file to the nodes. It imports nothing of the package, so that a node where the
package is missing can report it.
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
"""Polling interval of the task, in which Ray can cancel it."""
TAIL_BYTES = 2000
"""Bytes at the end of a worker's output that are searched for its last line."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Order(TypedDict):
    """A job for a node."""

    directory: str
    """Absolute path of the sweep directory."""
    digest: str
    """Checksum of the sweep file."""
    version: str
    """Required version of the package."""
    arguments: list[str]
    """Command line arguments of the worker."""
    environment: dict[str, str]
    """Variables added to the environment of the node."""
    log: str
    """File for the output of the worker."""


class Outcome(TypedDict):
    """Result of a job: how its worker ended, or a problem of the node."""

    node: str
    code: int
    """Exit code of the worker."""
    last_line: str
    """Last line of its output."""
    problem: str
    """Reason why the node cannot execute any job."""


def perform(order: Order) -> Outcome:
    """Check the node, then execute the job in a worker process."""
    outcome = Outcome(node=platform.node(), code=2, last_line="", problem="")
    if problem := _node_problem(order):
        outcome["problem"] = f"node {outcome['node']} {problem}"
        return outcome
    try:
        log = open(order["log"], "ab", buffering=0)  # noqa: SIM115
    except OSError as error:
        message = f"cannot write {order['log']}: {error.strerror}."
        if error.errno in NO_ROOM:
            outcome["last_line"] = message
        else:
            outcome["problem"] = f"node {outcome['node']} {message}"
        return outcome
    # `-P`: a file of the node's current directory must not replace a module.
    command = [sys.executable, "-P", "-m", "recurrent_laplace.sweeps.worker", *order["arguments"]]
    # Not to the log itself: its disk may be full, and then the output of the worker has the reason.
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
            # Not `wait()`: Ray cancels by an interrupt, which does not reach a blocking call.
            while worker.poll() is None:
                time.sleep(LOOK_SECONDS)
                copied = _copy(output, log, copied)
        finally:
            # A closed input tells the worker to store its state and stop, also when this process dies.
            worker.stdin.close()
            worker.wait()
            copied = _copy(output, log, copied)
        tail = os.pread(output.fileno(), TAIL_BYTES, max(copied - TAIL_BYTES, 0)).decode(errors="replace")
    outcome["code"] = worker.returncode
    outcome["last_line"] = (tail.strip().splitlines() or [""])[-1]
    return outcome


def _copy(output: IO[bytes], log: IO[bytes], start: int) -> int:
    """Copy new output of a worker to its log, unless the disk is full; return the end position."""
    # `pread` leaves the position of the file, at which the worker writes, unchanged.
    while text := os.pread(output.fileno(), 2**16, start):
        with contextlib.suppress(OSError):
            log.write(text)
        start += len(text)
    return start


def _node_problem(order: Order) -> str:
    """Reason why the node cannot execute the job; empty if it can."""
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
    program = "import recurrent_laplace; print(recurrent_laplace.__version__)"
    result = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False
    )
    if result.returncode:
        reason = (result.stderr.strip().splitlines() or ["no output"])[-1]
        return f"has no package recurrent-laplace for its {sys.executable} ({reason}): install it there."
    if result.stdout.strip() != order["version"]:
        versions = f"{result.stdout.strip()} and the sweeper {order['version']}"
        return f"has recurrent-laplace {versions}: install the same on all nodes."
    return ""
