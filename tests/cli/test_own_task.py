"""A task of one's own from an empty folder with two files: trained, killed, resumed, evaluated, swept."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
from support.own_task import LEVERS
from support.runs import SIZES
from support.verbs import PATIENCE, Done, finish

pytestmark = pytest.mark.usefixtures("programs")

PROGRAM = str(Path(sys.executable).parent / "recurrent-laplace")
UPDATES = 120

SWEEP = """
preset = "smoke"
test_tasks = 2

[[stage]]
name = "rnn"
set.agent = { cell = "elman", layer_norm = false }
set.learning = { updates = 2, steps = 5, batch = 4 }
axes.task.name = ["mine:Levers"]
axes.task.chance = [0.7, 0.9]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.py").write_text(LEVERS)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path


@pytest.fixture
def start(folder, shared):
    """Starts the installed program in the folder, which Python does not put on the path of a script."""

    def start(*args) -> subprocess.Popen:
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"), "PYTHONUNBUFFERED": "1"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([PROGRAM, *map(str, args)], cwd=folder, env=env, text=True, **pipes)

    return start


def next_command(done: Done) -> list[str]:
    """Arguments of the command that a verb names as the next."""
    found = re.search(r"^next: recurrent-laplace (.*)$", done.check(0).out, re.MULTILINE)
    assert found is not None, done.out
    return shlex.split(found[1])


@pytest.mark.slow
def test_train_kill_resume_evaluate_and_sweep(folder, start):
    train = ("train", "--task", "mine:Levers", *SIZES, "--updates", UPDATES, "--checkpoint-seconds", "0")
    process = start(*train)
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if [path for path in folder.glob("runs/*/checkpoints/*") if path.name.isdecimal()]:
            break
        time.sleep(0.005)  # Until the first checkpoint, which another process writes.
    process.kill()
    assert finish(process).code == -signal.SIGKILL
    (run,) = (folder / "runs").iterdir()
    assert (run / "status").read_text().startswith("running")

    done = finish(start(*train, "--resume"))
    assert next_command(done) == ["evaluate", str(run.relative_to(folder)), "--task", "mine:Levers"]
    assert pl.read_parquet(run / "metrics.parquet")["update"].n_unique() == UPDATES

    finish(start("evaluate", run, "--tasks", "2")).refused("is not loaded: add --task mine:Levers.")
    done = finish(start(*next_command(done), "--tasks", "2"))
    assert "return" in done.check(0).out
    assert "regret" not in done.out

    done = finish(start("sweep", "sweep.toml", "--workers", "1", "--out", "swept"))
    assert next_command(done) == ["report", "swept", "--task", "mine:Levers"]
    finish(start("sweep", "sweep.toml", "--out", "swept", "--status")).check(0)
    finish(start(*next_command(done))).check(0)
    page = (folder / "swept" / "report.html").read_text()
    for path in (folder / "swept" / "runs").iterdir():
        assert path.name.startswith("levers-point-")
        assert path.name in page
