"""Leases: one holder at a time, and none for ever."""

import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest
from support.sweeps import killed_at_the_end

from recurrent_laplace.files import StorageError
from recurrent_laplace.sweeps.leases import Entry, Leases


def test_one_holder_at_a_time(tmp_path):
    first, second = Leases(tmp_path), Leases(tmp_path)
    assert first.acquire("job", attempts=3)
    assert not second.acquire("job", attempts=3)
    assert first.is_held("job")
    first.release("job")
    assert not first.is_held("job")
    assert second.acquire("job", attempts=3)


def test_a_lease_expires_and_renewing_keeps_it(tmp_path):
    first, second = Leases(tmp_path, seconds=0.4), Leases(tmp_path)
    assert first.acquire("job", attempts=3)
    with first.renewed("job") as lost:
        time.sleep(0.8)
        assert not second.acquire("job", attempts=3)
    time.sleep(0.6)
    # As on a disk whose locks other machines do not see.
    (tmp_path / "job.lock").unlink()
    assert second.acquire("job", attempts=3)
    # Whoever lost a lease has nothing to give back.
    first.release("job")
    assert not lost.is_set()
    assert second.is_held("job")
    assert second.entry("job").owner == second.owner
    assert (tmp_path / "job.lock").exists()


def test_a_worker_hears_that_its_lease_was_taken_over(tmp_path):
    first, second = Leases(tmp_path, seconds=0.4), Leases(tmp_path)
    heard = threading.Event()
    assert first.acquire("job", attempts=3)
    time.sleep(0.5)
    (tmp_path / "job.lock").unlink()
    assert second.acquire("job", attempts=3)
    taken = second.entry("job")
    with first.renewed("job", heard.set) as lost:
        assert heard.wait(10)
    assert lost.is_set()
    first.release("job", "the worker was stopped.", counts=False)
    assert second.entry("job") == taken


def test_the_lease_of_a_dead_process_is_free_at_once(tmp_path):
    script = (
        "import os, sys, pathlib\n"
        "from recurrent_laplace.sweeps.leases import Leases\n"
        "assert Leases(pathlib.Path(sys.argv[1])).acquire('job', attempts=3)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert result.returncode == -9
    leases = Leases(tmp_path)
    entry = leases.entry("job")
    assert entry.until > time.time()
    assert not entry.is_leased
    assert entry.error == "the worker died."
    assert leases.acquire("job", attempts=3)


def test_attempts_are_counted_unless_interrupted(tmp_path):
    leases = Leases(tmp_path)
    assert leases.acquire("job", attempts=2)
    leases.release("job", "stopped", counts=False)
    assert leases.entry("job").attempts == 0
    for _ in range(2):
        assert leases.acquire("job", attempts=2)
        leases.release("job", "it broke")
    assert not leases.acquire("job", attempts=2)
    assert leases.entry("job").error == "it broke"
    leases.reset_attempts(["job"])
    assert leases.acquire("job", attempts=2)


def test_time_at_work_is_kept(tmp_path):
    leases = Leases(tmp_path)
    for _ in range(2):
        assert leases.acquire("job", attempts=3)
        time.sleep(0.2)
        leases.release("job")
    assert 0.4 <= leases.entry("job").seconds < 4
    leases.reset_attempts(["job"])
    assert leases.entry("job").seconds >= 0.4


GOOD = dataclasses.asdict(Entry(attempts=1, owner="me", process=1, until=1e9))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"attempts": ' * 100_000,
        '"text"',
        "9" * 5000,
        "{}",
        json.dumps({"attempts": 1}),
        json.dumps(GOOD | {"color": 1}),
        json.dumps(GOOD | {"attempts": "1"}),
        json.dumps(GOOD | {"attempts": True}),
        json.dumps(GOOD | {"attempts": -1}),
        json.dumps(GOOD | {"attempts": [[[]]]}),
        json.dumps(GOOD | {"error": None}),
        json.dumps(GOOD | {"owner": ["me"]}),
        json.dumps(GOOD | {"process": -1}),
        json.dumps(GOOD | {"process": 2**31}),
        json.dumps(GOOD | {"process": 1.5}),
        json.dumps(GOOD | {"until": float("nan")}),
        json.dumps(GOOD | {"until": float("inf")}),
        json.dumps(GOOD | {"until": 10**400}),
    ],
)
def test_damage_is_said(tmp_path, text):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(StorageError, match=r"job\.json .*; delete it, and the attempts") as caught:
        Leases(tmp_path).acquire("job", attempts=1)
    assert str(tmp_path / "job.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_entries_have_a_checksum_unless_they_are_of_version_0_1(tmp_path):
    leases, file = Leases(tmp_path), tmp_path / "job.json"
    assert leases.acquire("job", attempts=3)
    leases.release("job", "it broke")
    written = file.read_text()
    file.write_text(written.replace('"attempts": 1', '"attempts": 0'))
    with pytest.raises(StorageError, match="its checksum differs; delete it, and the attempts"):
        leases.entry("job")
    file.write_text(json.dumps(GOOD) + "\n")
    assert leases.entry("job") == Entry(**GOOD)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    # Not by permissions, which root does not heed.
    (tmp_path / "jobs").write_text("a file")
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/jobs: File exists"):
        Leases(tmp_path / "jobs").acquire("job", attempts=1)
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "job.lock").mkdir()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/leases: Is a directory"):
        Leases(tmp_path / "leases").acquire("job", attempts=1)


HOLDER = """
import os, sys, pathlib
from recurrent_laplace.sweeps import leases
if len(sys.argv) > 3:
    # A container with this host's name: its processes are not seen from outside.
    leases.host_identity = lambda: sys.argv[3]
    os.getpid = lambda: 2**22 + 1
held = leases.Leases(pathlib.Path(sys.argv[1]), seconds=float(sys.argv[2]))
assert held.acquire("job", attempts=1)
with held.renewed("job"):
    print("took", flush=True)
    sys.stdin.readline()
held.release("job")
"""


@pytest.fixture
def holder(tmp_path):
    """Starts a process that holds the job until it is told to give it back."""

    def start(seconds: float, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-c", HOLDER, str(tmp_path), str(seconds), *options]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "took\n"
        return process

    with killed_at_the_end() as started:
        yield start


def test_a_stopped_process_keeps_its_job(tmp_path, holder):
    leases, process = Leases(tmp_path), holder(0.4)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.5)
    assert leases.entry("job").until < time.time()
    assert leases.is_held("job")
    assert not leases.acquire("job", attempts=3)
    leases.reset_attempts(["job"])
    leases.record_attempts("job", 2, "it was lost", owner="another")
    os.kill(process.pid, signal.SIGCONT)
    process.communicate("\n", timeout=30)
    assert process.returncode == 0
    assert leases.entry("job") == Entry(attempts=1, seconds=leases.entry("job").seconds)


def test_a_stopped_process_that_dies_loses_its_job(tmp_path, holder):
    leases, process = Leases(tmp_path), holder(60)
    os.kill(process.pid, signal.SIGSTOP)
    process.kill()
    process.wait()
    assert not leases.is_held("job")
    assert leases.acquire("job", attempts=2)
    assert leases.entry("job").attempts == 2


def test_a_process_number_means_nothing_elsewhere(tmp_path, holder):
    # So long that it holds where this machine is busy.
    leases, process = Leases(tmp_path), holder(60, platform.node())
    entry = leases.entry("job")
    assert not Path(f"/proc/{entry.process}").exists()
    assert entry.is_leased
    # As on a disk whose locks the containers do not share.
    (tmp_path / "job.lock").unlink()
    assert not leases.acquire("job", attempts=3)
    process.communicate("\n", timeout=30)
    assert leases.entry("job").attempts == 1
    assert leases.entry("job").error == ""


def test_a_locked_run_directory_is_not_free(tmp_path):
    leases = Leases(tmp_path / "jobs", runs=tmp_path / "runs")
    (tmp_path / "runs" / "job").mkdir(parents=True)
    with filelock.FileLock(tmp_path / "runs" / "job" / ".lock"):
        assert not leases.acquire("job", attempts=1)
        assert leases.entry("job") == Entry()
    assert leases.acquire("job", attempts=1)


def test_racing_processes_take_each_job_once(tmp_path):
    script = (
        "import sys, pathlib\n"
        "from recurrent_laplace.sweeps.leases import Leases\n"
        "leases = Leases(pathlib.Path(sys.argv[1]))\n"
        "print([n for n in range(40) if leases.acquire(f'job-{n}', attempts=1)])\n"
        "sys.stdout.flush(); sys.stdin.read()\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    taken: list[int] = []
    for racer in racers:
        assert racer.stdout is not None
        taken += eval(racer.stdout.readline())
    for racer in racers:
        racer.communicate(timeout=30)
    assert sorted(taken) == list(range(40))
