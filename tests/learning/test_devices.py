"""Training on several devices and in several processes."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from support.verbs import Done

from recurrent_laplace import cli
from recurrent_laplace.learning import Config, LearningConfig, make_train
from recurrent_laplace.learning.sharding import check_shards
from recurrent_laplace.machine import devices, processes
from recurrent_laplace.machine.devices import cores
from recurrent_laplace.machine.processes import Hosts, joined
from recurrent_laplace.models import AgentConfig
from recurrent_laplace.tasks import make_task

# A program that another worker is storing at this moment is compiled once more.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache"),
    pytest.mark.usefixtures("programs", "programs_of_children"),
]

CHILD = Path(__file__).parent.parent / "support" / "device_child.py"
VIRTUAL = "--xla_force_host_platform_device_count=8"
TINY = ("train", "--task", "regression", "--preset", "smoke", "--steps", "5", "--batch", "4")
SMALL = ("--cell", "elman", "--no-layer-norm", "--checkpoint-seconds", "0")
PATIENCE = 600
"""Timeout of child processes in seconds, much longer than any should take."""


@pytest.fixture(scope="module")
def programs_of_children(shared) -> Iterator[None]:
    """Child processes share the compilation cache of this session."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(shared / "compiled"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
        yield


def environment(flags: str = "") -> dict[str, str]:
    # conftest.py has put the flags of fast compilation into XLA_FLAGS.
    return os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}


def child(*args: str) -> dict:
    command = [sys.executable, str(CHILD), *args]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, env=environment(VIRTUAL), check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# One process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "counts"),
    [
        ("dense", "14"),
        ("regression", "1248"),
        ("point", "14"),
        ("history", "12"),
        ("variational", "18"),
    ],
)
def test_any_number_of_devices_gives_the_same_numbers(case, counts):
    found = child("agree", case, *counts)
    alone = found.pop("1")
    assert np.linalg.norm(alone["gradient"]) > 0.01
    assert len(set(alone["losses"])) == (10 if case == "regression" else 5)
    assert set(found) == set(counts[1:])
    for numbers in found.values():
        np.testing.assert_allclose(numbers["gradient"], alone["gradient"], rtol=0, atol=1e-5)
        np.testing.assert_allclose(numbers["losses"], alone["losses"], rtol=0, atol=1e-4)
        assert numbers["programs"] == alone["programs"] == 1


@pytest.mark.slow
def test_sharded_seeds_stop_together():
    found = child("seeds")
    for count, numbers in found.items():
        assert numbers["devices"] == int(count)
        assert numbers["sharded"] == ("tasks" if count == "1" else "seeds")
        assert numbers["programs"] == 1
        np.testing.assert_allclose(numbers["losses"], found["1"]["losses"], rtol=0, atol=1e-5)
        assert numbers["made"] == 0
        assert numbers["finite"] == [True, True, False, True]


def test_number_of_cores_for_seeds(monkeypatch):
    monkeypatch.setattr(devices, "_split_cpu", lambda count: None)
    monkeypatch.setattr(jax, "device_count", lambda: 6)
    for there, seeds, expected in ((6, 1, 1), (6, 8, 4), (6, 7, 1), (2, 8, 2), (1, 8, 1), (9, 9, 3)):
        monkeypatch.setattr(devices, "cores", lambda there=there: list(range(there)))
        assert devices._cores_for(seeds) == expected, (there, seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "count"), [("regression", "8"), ("dense", "4")])
def test_memory_of_a_device_is_divided_by_their_number(case, count):
    found = child("memory", case, "1", count)
    # A tenth more, for replicated arrays.
    assert found[count]["bytes"] < 1.1 * found["1"]["bytes"] / int(count)
    # Devices exchange nothing but sums.
    assert found[count]["collectives"] == ["all-reduce"]


@pytest.mark.slow
def test_means_over_shards():
    assert child("mean") == {"numbers": 3.5, "some": False, "all": True}


@pytest.mark.slow
def test_a_run_resumes_on_another_number_of_devices(tmp_path):
    done = child("resume", str(tmp_path))
    first, second, name = done["messages"]
    assert "stopped at update 1 of 5" in first
    assert "stopped at update 2 of 5" in second
    assert name == Path(done["whole"]).name  # A run's identity does not depend on the number of devices.
    resumed, whole = (metrics(Path(done[name])) for name in ("run", "whole"))
    assert resumed["update"].to_list() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(resumed["loss"], whole["loss"], rtol=0, atol=1e-4)


def test_one_device_has_no_shard_map():
    agent = AgentConfig(cell="elman", hidden_size=3, features=2, embedding_sizes=(3,), head_sizes=(3,))
    learning = LearningConfig(updates=2, batch=4, steps=3)
    train = make_train(Config(task=make_task("regression"), agent=agent, learning=learning))
    state = jax.eval_shape(train.init, jax.random.key(0))
    assert "shard_map" not in str(jax.make_jaxpr(train._advance_chunk)(state, 1, 2))


def test_too_many_devices(tmp_path, capsys):
    done = refused(capsys, *TINY, "--out", str(tmp_path), "--devices", "64")
    assert f"devices must be at most {jax.device_count()}" in done.err
    assert "--xla_force_host_platform_device_count=64" in done.err
    assert not list(tmp_path.iterdir())
    assert "devices must be a whole number of at least 1" in refused(capsys, *TINY, "--devices", "0").err


@pytest.mark.slow
@pytest.mark.skipif(len(cores()) < 2, reason="a device is a core")
def test_the_cores_of_a_cpu_are_devices(tmp_path):
    """Without a flag, and with the numbers of one device."""
    options = (*TINY, *SMALL, "--updates", "3")
    alone, two = (
        metrics(done.path)
        for devices in ("1", "2")
        for done in [finished_alone(*options, "--out", str(tmp_path / devices), "--devices", devices)]
    )
    np.testing.assert_allclose(two["loss"], alone["loss"], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_batch_that_devices_do_not_divide(tmp_path):
    done = finished_alone(*TINY, "--batch", "5", "--out", str(tmp_path), "--devices", "2")
    assert done.code == 2
    assert done.err == "recurrent-laplace: devices must divide the 5 tasks of a batch; got 2 in all.\n"
    assert not list(tmp_path.iterdir())


def test_a_batch_without_equal_shards():
    check_shards(12, 3, 4)
    with pytest.raises(ValueError, match=r"devices must divide the 12 tasks of a batch; got 5 in all\.$"):
        check_shards(12, 1, 5)
    with pytest.raises(ValueError, match="the 4 tasks of each of the 3 minibatches; got 8"):
        check_shards(12, 3, 8)


def test_a_mesh_of_jax_make_mesh():
    learning = LearningConfig(updates=1, batch=2, steps=3)
    agent = AgentConfig(cell="elman", hidden_size=4, features=3, embedding_sizes=(4,), head_sizes=(4,))
    config = Config(task=make_task("bandit"), agent=agent, learning=learning)
    # Its axes are explicit by default.
    mesh = jax.make_mesh((1,), ("tasks",), devices=jax.devices()[:1])
    train = make_train(config, mesh=mesh)
    _, progress = train.advance(train.init(jax.random.key(0)), 1)
    alone = make_train(config)
    _, expected = alone.advance(alone.init(jax.random.key(0)), 1)
    np.testing.assert_allclose(progress.metrics["loss"][0], expected.metrics["loss"][0], rtol=1e-5)
    with pytest.raises(ValueError, match=r"mesh must have one axis, named 'tasks'; got \('batch',\)\.$"):
        make_train(config, mesh=jax.make_mesh((1,), ("batch",), devices=jax.devices()[:1]))


# Several processes


@pytest.mark.slow
def test_two_processes_give_the_numbers_of_one(tmp_path):
    options = (*TINY, *SMALL, "--updates", "6")
    port = free_port()
    with (
        started(port, 0, *options, "--out", str(tmp_path / "two"), "--devices", "2") as first,
        # The second process does not write, so it creates no folder.
        started(port, 1, *options, "--out", str(tmp_path / "none"), "--devices", "2") as second,
    ):
        leader, follower = finished(first), finished(second)
    assert follower == Done(0, "", follower.err)
    assert not (tmp_path / "none").exists()
    together = metrics(leader.path)
    alone = metrics(finished_alone(*options, "--out", str(tmp_path / "one")).path)
    np.testing.assert_allclose(together["loss"], alone["loss"], rtol=0, atol=1e-4)
    assert leader.path.name == next((tmp_path / "one").iterdir()).name


@pytest.mark.slow
def test_a_stopped_or_lost_process_stops_all(tmp_path):
    options = (*TINY, *SMALL, "--updates", "5000", "--out", str(tmp_path), "--resume")
    # A signal to any process stops all of them, after a checkpoint.
    with pair(options) as (first, second):
        wait_for(lambda: stored(tmp_path), first)
        second.send_signal(signal.SIGTERM)
        leader, follower = finished(first), finished(second)
    assert (leader.code, follower.code) == (130, 130)
    assert "stopped at update" in leader.err
    assert "process 0 stopped; its message says why" in follower.err
    # When one is lost, the other reports it, and the checkpoint is kept.
    before = stored(tmp_path)
    with pair(options) as (first, second):
        wait_for(lambda: stored(tmp_path) > before, first)
        second.kill()
        leader = finished(first)
    assert leader.code == 1
    assert "process 0 lost another one" in leader.err
    assert "--resume" in leader.err
    (path,) = tmp_path.iterdir()
    assert (path / "status").read_text().startswith("interrupted\n")
    # One process alone resumes from it.
    before = stored(tmp_path)
    with started(None, 0, *options) as alone:
        wait_for(lambda: stored(tmp_path) > before, alone)
        alone.send_signal(signal.SIGINT)
        assert finished(alone).code == 130


@pytest.mark.slow
def test_processes_with_different_runs(tmp_path):
    port = free_port()
    with (
        started(port, 0, *TINY, "--out", str(tmp_path)) as first,
        started(port, 1, *TINY, "--out", str(tmp_path), "--seed", "1") as second,
    ):
        for done in (finished(first), finished(second)):
            assert done.code == 2
            assert "those of process 1 differ from those of process 0" in done.err
    assert not list(tmp_path.iterdir())


def test_a_coordinator_that_does_not_answer(tmp_path, capsys, monkeypatch):
    assert processes.ANSWER_SECONDS < 20
    monkeypatch.setattr(processes, "ANSWER_SECONDS", 3.0)
    where = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    done = refused(
        capsys, *TINY, "--out", str(tmp_path), "--coordinator", where, "--processes", "2", "--process", "1"
    )
    assert time.monotonic() - began < 10
    assert f"process 0 does not answer at {where} within 3 s" in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_that_never_join(tmp_path):
    hosts = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
    script = (
        "from recurrent_laplace import cli; from recurrent_laplace.machine import processes; "
        f"processes.GATHER_SECONDS = 3; cli.main({[*TINY, '--out', str(tmp_path), *hosts]})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r"recurrent-laplace: not all 2 processes came together at .* within 3 s\.\n", done.stderr
    )
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken():
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"port {port} is not available here"):
            enter(Hosts(coordinator=f"localhost:{port}", processes=2))


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        (Hosts(processes=2), "coordinator and processes go together"),
        (Hosts(coordinator="localhost:1"), "coordinator and processes go together"),
        (Hosts(processes=0), "processes must be a whole number"),
        (Hosts(coordinator="localhost:1", processes=2, process=2), "process must be from 0 to 1 of 2; got 2"),
        (Hosts(coordinator="localhost", processes=2), "coordinator must be HOST:PORT; got 'localhost'"),
        (Hosts(coordinator="localhost:99999", processes=2), "coordinator must be HOST:PORT"),
    ],
)
def test_invalid_hosts(hosts, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        enter(hosts)


def enter(hosts: Hosts) -> None:
    with joined(hosts):
        pass


def refused(capsys, *argv: str) -> Done:
    with pytest.raises(SystemExit) as end:
        cli.main(list(argv))
    captured = capsys.readouterr()
    assert end.value.code == 2, captured.err
    assert len(captured.err.strip().splitlines()) == 1, captured.err
    return Done(2, captured.out, captured.err)


@contextlib.contextmanager
def started(port: int | None, process: int, *argv: str) -> Iterator[subprocess.Popen]:
    """Command line in a child process, one of two if there is a port."""
    hosts = ("--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", str(process))
    command = [sys.executable, "-m", "recurrent_laplace", *argv, *(hosts if port else ())]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment("--xla_force_host_platform_device_count=2"),
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@contextlib.contextmanager
def pair(options: tuple[str, ...]) -> Iterator[tuple[subprocess.Popen, subprocess.Popen]]:
    """Both processes of one run."""
    port = free_port()
    with started(port, 0, *options) as first, started(port, 1, *options) as second:
        yield first, second


def finished(running: subprocess.Popen) -> Done:
    out, err = running.communicate(timeout=PATIENCE)
    # Gloo prints its connections to standard output from C++.
    kept = [line for line in out.splitlines(keepends=True) if not line.startswith("[Gloo]")]
    return Done(running.returncode, "".join(kept), err)


def finished_alone(*argv: str) -> Done:
    with started(None, 0, *argv) as running:
        return finished(running)


def wait_for(condition, running: subprocess.Popen) -> None:
    began = time.monotonic()
    while not condition():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.1)


def stored(out: Path) -> int:
    """Update of the newest checkpoint; 0 if there is none."""
    return max((int(folder.name) for folder in out.glob("*/checkpoints/[0-9]*")), default=0)


def metrics(path: Path) -> pl.DataFrame:
    """Loss of each update."""
    table = pl.read_parquet(path / "metrics.parquet").filter(pl.col("metric") == "loss")
    return table.sort("update").select("update", pl.col("value").alias("loss"))


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]
