"""Sweeps as people run them: real workers, real kills."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import polars as pl
import pytest

from recurrent_laplace.experiments import sweeps
from recurrent_laplace.experiments.sweeps import SweepDirectory
from recurrent_laplace.files import StorageError

pytestmark = pytest.mark.slow

SMALL = """
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

FAILING = """
[[stage]]
name = "doomed"
set.task.name = "two_arm_bandit"
set.agent.hidden_size = 4
set.agent.features = 2
set.learning.learning_rate = 1e30

[[stage]]
name = "orphan"
parent = "doomed"
set.learning.updates = 0
set.posterior.kind = "laplace"
"""


@pytest.fixture
def sweep(tmp_path, shared):
    """Starts a `sweep` command on a file of this text, in a folder of its own."""
    started = []
    program = Path(sys.executable).parent / "recurrent-laplace"
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }

    def start(text: str, *options: str) -> subprocess.Popen:
        file = tmp_path / "small.toml"
        file.write_text(text)
        process = subprocess.Popen(
            [program, "sweep", file, "--workers", "1", "--out", tmp_path / "out", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | kept,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def finished(process: subprocess.Popen, code: int = 0) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, (out, err)
    assert "Traceback" not in out + err
    return out + err


def sessions(out: Path) -> dict[str, int]:
    return {
        file.parent.name: len(json.loads(file.read_text())["sessions"])
        for file in out.glob("runs/*/provenance.json")
    }


def wait_for(condition, seconds: float = 120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.05)


def worker_log(out: Path) -> str:
    return "".join(file.read_text() for file in out.glob("logs/*.txt"))


def workers_of(out: Path) -> list[int]:
    entries = [json.loads(file.read_text()) for file in out.glob("jobs/*.json")]
    return [entry["process"] for entry in entries if entry["owner"]]


def test_failures_are_told_and_do_not_stop_the_others(sweep, tmp_path):
    text = SMALL.format(updates=4) + FAILING
    said = finished(sweep(text), code=1)
    assert "TrainingFailedError: the loss is not finite at update 2" in said
    assert "2 of 4 runs failed; the same command tries them again." in said
    directory = SweepDirectory.open(tmp_path / "out")
    words = {job.stage: directory.standing(job).word for job in directory.plan.jobs}
    assert words == {"rnn": "done", "posthoc": "done", "doomed": "failed", "orphan": "blocked"}
    # What is finished is not touched again; what failed is tried again.
    before = sessions(tmp_path / "out")
    finished(sweep(text), code=1)
    after = sessions(tmp_path / "out")
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {job.id for job in directory.plan.jobs if job.stage == "doomed"}
    status = finished(sweep(text, "--status"))
    assert status.startswith("2 done, 0 running, 0 ready, 0 waiting, 1 failed, 1 blocked\n2 runs took ")


def test_killed_workers_and_sweepers_lose_nothing(sweep, tmp_path):
    """A worker killed at work is replaced; a killed sweeper takes its workers along; all is finished."""
    out = tmp_path / "out"
    text = SMALL.format(updates=400)
    first = sweep(text)
    wait_for(lambda: workers_of(out) and list(out.glob("runs/*/log.txt")))
    (victim,) = workers_of(out)
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: workers_of(out) not in ([], [victim]))
    (heir,) = workers_of(out)
    first.kill()
    wait_for(lambda: not Path(f"/proc/{heir}").exists())
    finished(sweep(text))
    directory = SweepDirectory.open(out)
    assert all(directory.is_done(job) for job in directory.plan.jobs)
    metrics = pl.read_parquet(directory.runs / directory.plan.jobs[0].id / "metrics.parquet")
    losses = metrics.filter(pl.col("metric") == "loss")
    assert losses["update"].to_list() == list(range(1, 401))


def test_ctrl_c_stores_and_says_how_to_go_on(sweep, tmp_path):
    out = tmp_path / "out"
    text = SMALL.format(updates=100_000)
    process = sweep(text)
    wait_for(lambda: list(out.glob("runs/*/checkpoints/*")) or "update" in worker_log(out))
    os.killpg(process.pid, signal.SIGINT)
    said = finished(process, code=130)
    assert "stopping: the workers store what they have" in said
    assert "stopped: the same command continues the sweep." in said
    (status,) = out.glob("runs/*/status")
    assert status.read_text().startswith("interrupted")
    (entry,) = out.glob("jobs/*.json")
    assert json.loads(entry.read_text())["attempts"] == 0


def test_two_sweepers_share_the_work(sweep, tmp_path):
    text = SMALL.format(updates="2, 3, 4, 5")
    both = [sweep(text), sweep(text)]
    for process in both:
        finished(process)
    made = sessions(tmp_path / "out")
    assert len(made) == 8
    assert set(made.values()) == {1}


def test_dry_run_lists_and_leaves_no_trace(sweep, tmp_path):
    said = finished(sweep(SMALL.format(updates="2, 3"), "--dry-run"))
    assert "4 runs: about" in said
    assert not (tmp_path / "out").exists()


def test_sweepers_that_begin_at_the_same_moment(tmp_path, monkeypatch):
    tables = tomllib.loads(SMALL.format(updates=2))
    out = tmp_path / "out"
    out.mkdir()
    # One is just writing sweep.toml.
    (out / ".sweep.toml.writing").write_text("")
    second = SweepDirectory.make(out, tables, tmp_path / "sweep.toml")

    # Now it has, while the second was about to: its own unfinished file is gone.
    def overtaken(file: Path, text: str) -> None:
        file.write_text(text)
        raise StorageError(f"cannot write {file}")

    monkeypatch.setattr(sweeps, "write_text", overtaken)
    second.write(tables)
    assert SweepDirectory.open(out).plan == second.plan

    def full(file: Path, text: str) -> None:
        raise StorageError(f"cannot write {file}: no room")

    monkeypatch.setattr(sweeps, "write_text", full)
    with pytest.raises(StorageError, match="no room"):
        SweepDirectory.make(tmp_path / "other", tables, tmp_path / "sweep.toml").write(tables)


def test_bad_places_are_refused(sweep, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert "is not the directory of a sweep" in finished(sweep(SMALL.format(updates=2)), code=2)
    (out / "notes.txt").unlink()
    (out / "sweep.toml").write_text('preset = "paper"\n')
    said = finished(sweep(SMALL.format(updates=2)), code=2)
    assert "is the directory of another sweep" in said
    assert (out / "sweep.toml").read_text() == 'preset = "paper"\n'
    assert "has no values" in finished(sweep(SMALL.format(updates="")), code=2)
