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
from support.sweeps import SWEEP, finished, killed_at_the_end, leased, make_sweep, sessions, wait_for

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.evaluation import UPDATE
from recurrent_laplace.runs.tables import write_table
from recurrent_laplace.sweeps import directory as sweeps
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.leases import Leases

pytestmark = pytest.mark.slow

FAILING = """
[[stage]]
name = "doomed"
set.task.name = "two_arm_bandit"
set.agent.hidden_size = 4
set.agent.features = 2
set.learning.learning_rate = 1e18

[[stage]]
name = "orphan"
parent = "doomed"
set.learning.updates = 0
set.posterior.kind = "laplace"
"""


@pytest.fixture
def sweep(tmp_path, shared):
    """Starts a `sweep` command on a file of this text, in a folder of its own."""
    program = Path(sys.executable).parent / "recurrent-laplace"
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }

    def start(text: str, *options: str, cwd: Path | None = None) -> subprocess.Popen:
        file = tmp_path / "small.toml"
        file.write_text(text)
        process = subprocess.Popen(
            [program, "sweep", file, "--workers", "1", "--out", tmp_path / "out", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | kept,
            cwd=cwd,
            start_new_session=True,
        )
        started.append(process)
        return process

    with killed_at_the_end() as started:
        yield start


def worker_log(out: Path) -> str:
    return "".join(file.read_text() for file in out.glob("logs/*.txt"))


def test_failures_are_told_and_do_not_stop_the_others(sweep, tmp_path):
    text = SWEEP.format(updates=4) + FAILING
    said = finished(sweep(text), 1)
    assert "TrainingFailedError: the loss is not finite at update 2" in said
    assert "2 of 4 runs failed; the same command tries them again." in said
    directory = SweepDirectory.open(tmp_path / "out")
    words = {job.stage: directory.status(job).state for job in directory.plan.jobs}
    assert words == {"rnn": "done", "posthoc": "done", "doomed": "failed", "orphan": "blocked"}
    # What is finished is not touched again; what failed is tried again.
    before = sessions(tmp_path / "out")
    finished(sweep(text), 1)
    after = sessions(tmp_path / "out")
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {job.id for job in directory.plan.jobs if job.stage == "doomed"}
    status = finished(sweep(text, "--status"))
    assert status.startswith("2 done, 0 running, 0 ready, 0 waiting, 1 failed, 1 blocked\n2 runs took ")


def test_killed_workers_and_sweepers_lose_nothing(sweep, tmp_path):
    """A worker killed at work is replaced; a killed sweeper takes its workers along; all is finished."""
    out = tmp_path / "out"
    text = SWEEP.format(updates=400)
    first = sweep(text)
    wait_for(lambda: leased(out) and list(out.glob("runs/*/log.txt")))
    (victim,) = leased(out).values()
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: set(leased(out).values()) not in (set(), {victim}))
    (heir,) = leased(out).values()
    first.kill()
    wait_for(lambda: not Path(f"/proc/{heir}").exists())
    finished(sweep(text))
    directory = SweepDirectory.open(out)
    assert all(directory.is_done(job) for job in directory.plan.jobs)
    metrics = pl.read_parquet(directory.runs / directory.plan.jobs[0].id / "metrics.parquet")
    losses = metrics.filter(pl.col("metric") == "loss")
    assert losses["update"].to_list() == list(range(1, 401))


def test_workers_that_die_together_are_replaced(sweep, tmp_path):
    out = tmp_path / "out"
    process = sweep(SWEEP.format(updates="400, 401"), "--workers", "2")
    wait_for(lambda: len(leased(out)) == 2 and len(list(out.glob("runs/*/log.txt"))) == 2)
    # The sweeper sees both deaths in one look.
    os.kill(process.pid, signal.SIGSTOP)
    for worker in leased(out).values():
        os.kill(worker, signal.SIGKILL)
    os.kill(process.pid, signal.SIGCONT)
    finished(process)
    directory = SweepDirectory.open(out)
    attempts = {job.id: directory.leases.entry(job.id).attempts for job in directory.plan.jobs}
    assert attempts == {job.id: 2 if job.parent is None else 1 for job in directory.plan.jobs}


WORKER = """
import pathlib, sys
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.runs.tables import write_table
directory = SweepDirectory.open(pathlib.Path(sys.argv[1]))
directory.leases.seconds = 1.0
print("looks", flush=True)
directory.work()
"""


@pytest.fixture
def worker(tmp_path, shared):
    """Starts a worker whose leases are short, on a sweep of this text; its output is in `<name>.txt`."""

    def start(name: str, text: str) -> subprocess.Popen:
        make_sweep(tmp_path / "out", text)
        with (tmp_path / f"{name}.txt").open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, tmp_path / "out"],
                stdout=file,
                stderr=file,
                env=os.environ | {"JAX_COMPILATION_CACHE_DIR": str(shared / "compiled")},
            )
        started.append(process)
        return process

    with killed_at_the_end() as started:
        yield start


def stop_beyond_the_lease(process: subprocess.Popen, out: Path) -> None:
    wait_for(lambda: leased(out) and list(out.glob("runs/*/log.txt")))
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.2)


def test_a_stopped_worker_keeps_its_run(worker, tmp_path):
    out, text = tmp_path / "out", SWEEP.format(updates=50)
    first = worker("first", text)
    stop_beyond_the_lease(first, out)
    directory = SweepDirectory.open(out, ("rnn",))
    assert {status.state for status in directory.statuses().values()} == {"running"}
    second = worker("second", text)
    wait_for(lambda: "looks" in (tmp_path / "second.txt").read_text())
    time.sleep(1.5)
    os.kill(first.pid, signal.SIGCONT)
    assert (first.wait(240), second.wait(240)) == (0, 0)
    said = (tmp_path / "first.txt").read_text() + (tmp_path / "second.txt").read_text()
    assert "failed" not in said
    directory = SweepDirectory.open(out)
    assert {directory.leases.entry(job.id).attempts for job in directory.plan.jobs} == {1}
    assert set(sessions(out).values()) == {1}


def test_a_worker_whose_lease_was_taken_over_leaves_the_run(worker, tmp_path):
    out, text = tmp_path / "out", SWEEP.format(updates=100_000)
    first = worker("first", text)
    stop_beyond_the_lease(first, out)
    (job,) = (file.stem for file in out.glob("jobs/*.json"))
    # As on a disk whose locks other machines do not see.
    (out / "jobs" / f"{job}.lock").unlink()
    other = Leases(out / "jobs")
    assert other.acquire(job, attempts=2)
    taken = other.entry(job)
    os.kill(first.pid, signal.SIGCONT)
    wait_for(lambda: f"left: {job}: another worker has taken over" in (tmp_path / "first.txt").read_text())
    assert first.poll() is None
    assert other.entry(job) == taken
    assert (out / "runs" / job / "status").read_text().startswith("interrupted")


TRAP = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\nraise ImportError('hostile')\n"


def test_files_of_the_current_directory_are_not_run(sweep, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("filelock", "json", "recurrent_laplace"):
        (here / f"{name}.py").write_text(TRAP)
    finished(sweep(SWEEP.format(updates=2), cwd=here))
    assert list(here.glob("*.ran")) == []


def test_ctrl_c_stores_and_says_how_to_go_on(sweep, tmp_path):
    out = tmp_path / "out"
    text = SWEEP.format(updates=100_000)
    process = sweep(text)
    wait_for(lambda: list(out.glob("runs/*/checkpoints/*")) or "update" in worker_log(out))
    os.killpg(process.pid, signal.SIGINT)
    said = finished(process, 130)
    assert "stopping: the workers store what they have" in said
    assert "stopped: the same command continues the sweep." in said
    (status,) = out.glob("runs/*/status")
    assert status.read_text().startswith("interrupted")
    (entry,) = out.glob("jobs/*.json")
    assert json.loads(entry.read_text())["attempts"] == 0


def test_two_sweepers_share_the_work(sweep, tmp_path):
    text = SWEEP.format(updates="2, 3, 4, 5")
    both = [sweep(text), sweep(text)]
    for process in both:
        finished(process)
    made = sessions(tmp_path / "out")
    assert len(made) == 8
    assert set(made.values()) == {1}


def test_dry_run_lists_and_leaves_no_trace(sweep, tmp_path):
    said = finished(sweep(SWEEP.format(updates="2, 3"), "--dry-run"))
    assert "4 runs: about" in said
    assert not (tmp_path / "out").exists()


def test_sweepers_that_begin_at_the_same_moment(tmp_path, monkeypatch):
    tables = tomllib.loads(SWEEP.format(updates=2))
    out = tmp_path / "out"
    out.mkdir()
    # One is just writing sweep.toml.
    (out / ".sweep.toml.writing").write_text("")
    second = SweepDirectory.make(out, tables, tmp_path / "sweep.toml")

    # Now it has, while the second was about to: its own unfinished file is gone.
    def overtaken(file: Path, text: str) -> None:
        file.write_text(text)
        raise StorageError(f"cannot write {file}")

    monkeypatch.setattr(sweeps, "write_sealed", overtaken)
    second.write(tables)
    assert SweepDirectory.open(out).plan == second.plan

    def full(file: Path, text: str) -> None:
        raise StorageError(f"cannot write {file}: no room")

    monkeypatch.setattr(sweeps, "write_sealed", full)
    with pytest.raises(StorageError, match="no room"):
        SweepDirectory.make(tmp_path / "other", tables, tmp_path / "sweep.toml").write(tables)


def test_bad_places_are_refused(sweep, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert "is not the directory of a sweep" in finished(sweep(SWEEP.format(updates=2)), 2)
    (out / "notes.txt").unlink()
    (out / "sweep.toml").write_text('preset = "paper"\n')
    said = finished(sweep(SWEEP.format(updates=2)), 2)
    assert "is the directory of another sweep" in said
    assert (out / "sweep.toml").read_text() == 'preset = "paper"\n'
    assert "has no values" in finished(sweep(SWEEP.format(updates="")), 2)


def test_a_stale_evaluation_is_redone(sweep, tmp_path):
    text = SWEEP.format(updates=2)
    finished(sweep(text, "--only", "rnn"))
    directory = SweepDirectory.open(tmp_path / "out", ("rnn",))
    (job,) = directory.plan.jobs
    path = directory.runs / job.id / "evaluation.parquet"
    current = pl.read_parquet(path)
    # An interrupted run was evaluated after its first update, and trained to its end since.
    write_table(path, current.with_columns(pl.col("value") + 1), {UPDATE: "1"})
    assert directory.is_done(job) is False
    finished(sweep(text, "--only", "rnn"))
    assert directory.is_done(job)
    assert pl.read_parquet(path).equals(current)


def test_a_done_job_is_looked_at_once(sweep, tmp_path, monkeypatch):
    finished(sweep(SWEEP.format(updates=2)))
    looked = []
    monkeypatch.setattr(
        sweeps, "evaluation_is_current", lambda directory, *options: not looked.append(directory)
    )
    directory = SweepDirectory.open(tmp_path / "out")
    for _ in range(3):
        assert {status.state for status in directory.statuses().values()} == {"done"}
    assert len(looked) == len(directory.plan.jobs)


def one_sentence(process: subprocess.Popen) -> str:
    (line,) = finished(process, 2).splitlines()
    return line


def test_a_damaged_lease_is_said(sweep, tmp_path):
    text = SWEEP.format(updates=2)
    directory = make_sweep(tmp_path / "out", text)
    lease = tmp_path / "out" / "jobs" / f"{directory.plan.jobs[0].id}.json"
    lease.parent.mkdir()
    lease.write_text('{"attempts": "two"}')
    for options in (("--status",), ()):
        said = one_sentence(sweep(text, *options))
        assert f"{lease} is damaged" in said
        assert said.endswith("; delete it, and the attempts of its run are counted anew.")


def test_a_changed_sweep_file_is_refused(sweep, tmp_path):
    text, out = SWEEP.format(updates=2), tmp_path / "out"
    directory = make_sweep(out, text)
    file = out / "sweep.toml"
    written = file.read_bytes()
    assert SweepDirectory.open(out).plan == directory.plan
    for index in range(len(written)):
        file.write_bytes(written[:index] + bytes([written[index] ^ 1]) + written[index + 1 :])
        with pytest.raises((StorageError, ValueError)) as caught:
            SweepDirectory.open(out)
        assert "\n" not in str(caught.value)
    assert str(file) in one_sentence(sweep(text, "--status"))
    # Version 0.1 wrote no checksum.
    file.write_text(text)
    assert SweepDirectory.open(out).plan == directory.plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "seeds = 2_000_000_000\nseeds_per_run = 1\n" + SWEEP.format(updates=2),
            "a sweep has at most 100000",
        ),
        ("a = " + "[" * 100_000, "nested"),
        ("#" * 2**25, "has more than 16 MiB"),
    ],
)
def test_a_sweep_file_beyond_measure_is_refused(sweep, text, words):
    began = time.monotonic()
    assert words in one_sentence(sweep(text, "--dry-run"))
    assert time.monotonic() - began < 30
