"""Small sweeps, and the processes that work on them."""

import contextlib
import json
import subprocess
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

from recurrent_laplace.sweeps.directory import SweepDirectory

SWEEP = """
preset = "smoke"

[[stage]]
name = "rnn"
set.task.name = "two_arm_bandit"
set.agent.hidden_size = 4
set.agent.features = 2
axes.learning.updates = [{updates}]

[[stage]]
name = "posthoc"
parent = "rnn"
set.learning.updates = 0
set.posterior.kind = "laplace"
"""


def make_sweep(out: Path, text: str) -> SweepDirectory:
    """The directory of a new sweep."""
    tables = tomllib.loads(text)
    directory = SweepDirectory.make(out, tables, out / "sweep.toml")
    directory.write(tables)
    return directory


@contextlib.contextmanager
def killed_at_the_end() -> Iterator[list[subprocess.Popen]]:
    """A list of processes, which are killed when the block ends."""
    started: list[subprocess.Popen] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def finished(process: subprocess.Popen, *codes: int) -> str:
    """Output of a process that ends with one of these exit codes, by default 0."""
    out, err = process.communicate(timeout=400)
    said = out + (err or "")
    assert process.returncode in (codes or (0,)), said
    assert "Traceback" not in said
    return said


def wait_for(condition, seconds: float = 240):
    """Wait until the condition holds, and return its value."""
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "the condition never held"
        time.sleep(0.05)
    return found


def leased(out: Path) -> dict[str, int]:
    """Process of each leased job."""
    entries = {file.stem: json.loads(file.read_text()) for file in out.glob("jobs/*.json")}
    return {job: entry["process"] for job, entry in entries.items() if entry["owner"]}


def sessions(out: Path) -> dict[str, int]:
    """Number of sessions of each run."""
    files = out.glob("runs/*/provenance.json")
    return {file.parent.name: len(json.loads(file.read_text())["sessions"]) for file in files}
