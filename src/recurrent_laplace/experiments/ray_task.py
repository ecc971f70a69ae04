"""What Ray runs on a node: a worker process for one job, as on one machine.

Ray sends this file's text, not its name: so that a node where the package is missing can say so, it imports
nothing of the package.
"""

import hashlib
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

LOOK_SECONDS = 0.2
"""How often the task looks at its worker; between two looks Ray can cancel it."""


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
    """What came of it: a worker's exit code, or the reason why there was no worker."""

    node: str
    code: int
    problem: str


def perform(order: Order) -> Outcome:
    """Check that the node can do the job, and let a worker do it."""
    node = platform.node()
    problem = _what_is_missing(order)
    if problem:
        return Outcome(node=node, code=-1, problem=f"node {node} {problem}")
    command = [sys.executable, "-m", "recurrent_laplace.experiments.worker", *order["arguments"]]
    try:
        log = open(order["log"], "a")  # noqa: SIM115
    except OSError as error:
        return Outcome(
            node=node, code=-1, problem=f"node {node} cannot write {order['log']}: {error.strerror}."
        )
    with log:
        worker = subprocess.Popen(
            command,
            env=os.environ | order["environment"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert worker.stdin is not None
        try:
            # Not `wait()`: Ray cancels by an interrupt that a blocking call does not see.
            while worker.poll() is None:
                time.sleep(LOOK_SECONDS)
        finally:
            # Also when this process dies: the worker's input closes, which tells it to store and stop.
            worker.stdin.close()
            worker.wait()
    return Outcome(node=node, code=worker.returncode, problem="")


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
