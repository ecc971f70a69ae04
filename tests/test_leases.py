"""Leases: one holder at a time, and none for ever."""

import os
import subprocess
import sys
import time

import pytest

from recurrent_laplace.experiments.leases import Leases
from recurrent_laplace.files import StorageError


def test_one_holder_at_a_time(tmp_path):
    first, second = Leases(tmp_path), Leases(tmp_path)
    assert first.take("job", attempts=3)
    assert not second.take("job", attempts=3)
    assert first.entry("job").is_held
    first.give_back("job")
    assert not first.entry("job").is_held
    assert second.take("job", attempts=3)


def test_a_lease_expires_and_renewing_keeps_it(tmp_path):
    first, second = Leases(tmp_path, seconds=0.4), Leases(tmp_path)
    assert first.take("job", attempts=3)
    with first.renewed("job"):
        time.sleep(0.8)
        assert not second.take("job", attempts=3)
    time.sleep(0.6)
    assert second.take("job", attempts=3)
    # Whoever lost a lease has nothing to give back.
    first.give_back("job")
    assert second.entry("job").is_held


def test_the_lease_of_a_dead_process_is_free_at_once(tmp_path):
    script = (
        "import os, sys, pathlib\n"
        "from recurrent_laplace.experiments.leases import Leases\n"
        "assert Leases(pathlib.Path(sys.argv[1])).take('job', attempts=3)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    result = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert result.returncode == -9
    leases = Leases(tmp_path)
    entry = leases.entry("job")
    assert entry.until > time.time()
    assert not entry.is_held
    assert entry.error == "the worker died."
    assert leases.take("job", attempts=3)


def test_attempts_are_counted_unless_interrupted(tmp_path):
    leases = Leases(tmp_path)
    assert leases.take("job", attempts=2)
    leases.give_back("job", "stopped", counts=False)
    assert leases.entry("job").attempts == 0
    for _ in range(2):
        assert leases.take("job", attempts=2)
        leases.give_back("job", "it broke")
    assert not leases.take("job", attempts=2)
    assert leases.entry("job").error == "it broke"
    leases.forget_attempts(["job"])
    assert leases.take("job", attempts=2)


def test_time_at_work_is_kept(tmp_path):
    leases = Leases(tmp_path)
    for _ in range(2):
        assert leases.take("job", attempts=3)
        time.sleep(0.2)
        leases.give_back("job")
    assert 0.4 <= leases.entry("job").seconds < 4
    leases.forget_attempts(["job"])
    assert leases.entry("job").seconds >= 0.4


def test_damage_is_said(tmp_path):
    (tmp_path / "job.json").write_text("{")
    with pytest.raises(StorageError, match="is damaged"):
        Leases(tmp_path).entry("job")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="cannot write"):
        Leases(tmp_path / "jobs").take("job", attempts=1)


def test_racing_processes_take_each_job_once(tmp_path):
    script = (
        "import sys, pathlib\n"
        "from recurrent_laplace.experiments.leases import Leases\n"
        "leases = Leases(pathlib.Path(sys.argv[1]))\n"
        "print([n for n in range(40) if leases.take(f'job-{n}', attempts=1)])\n"
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
