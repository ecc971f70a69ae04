"""One run on many devices, and in many processes."""

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
from verbs import Done

from recurrent_laplace import cli
from recurrent_laplace.experiments import devices, processes
from recurrent_laplace.experiments.devices import cores
from recurrent_laplace.experiments.processes import Hosts, joined
from recurrent_laplace.learning import Config, LearningConfig, make_train
from recurrent_laplace.learning.sharding import check_shares
from recurrent_laplace.models import AgentConfig
from recurrent_laplace.tasks import make_task

# A program that another worker is just storing is compiled once more: no harm, and no error.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache"),
    pytest.mark.usefixtures("programs", "programs_of_children"),
]

TESTS = Path(__file__).parent
VIRTUAL = "--xla_force_host_platform_device_count=8"
TINY = ("train", "--task", "regression", "--preset", "smoke", "--steps", "5", "--batch", "4")
SMALL = ("--cell", "elman", "--no-layer-norm", "--checkpoint-seconds", "0")
PATIENCE = 600
"""Seconds after which a child process is given up: much longer than any should take."""


@pytest.fixture(scope="module")
def programs_of_children(shared) -> Iterator[None]:
    """Children keep their compiled programs where this session does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(shared / "compiled"))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
        yield


def environment(flags: str = "") -> dict[str, str]:
    # Optimising takes longer than it saves here; conftest.py has put that into XLA_FLAGS.
    return os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}


def child(*args: str) -> dict:
    command = [sys.executable, str(TESTS / "device_child.py"), *args]
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
def test_seeds_are_shared_out_and_stop_together():
    found = child("seeds")
    for count, numbers in found.items():
        assert numbers["places"] == int(count)
        assert numbers["shared"] == ("tasks" if count == "1" else "seeds")
        assert numbers["programs"] == 1
        np.testing.assert_allclose(numbers["losses"], found["1"]["losses"], rtol=0, atol=1e-5)
        assert numbers["made"] == 0
        assert numbers["finite"] == [True, True, False, True]


def test_how_many_cores_share_seeds(monkeypatch):
    monkeypatch.setattr(devices, "_split_cpu", lambda count: None)
    monkeypatch.setattr(jax, "device_count", lambda: 6)
    for there, seeds, expected in ((6, 1, 1), (6, 8, 4), (6, 7, 1), (2, 8, 2), (1, 8, 1), (9, 9, 3)):
        monkeypatch.setattr(devices, "cores", lambda there=there: list(range(there)))
        assert devices._cores_for(seeds) == expected, (there, seeds)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "counts"), [("regression", (1, 8)), ("dense", (1, 4))])
def test_each_device_needs_its_share_of_the_memory(case, counts):
    found = child("share", case, *map(str, counts))
    for count in counts[1:]:
        alone, shared = found["1"], found[str(count)]
        # A tenth more: what every device has a copy of.
        assert shared["bytes"] < 1.1 * alone["bytes"] / count
        # Nothing goes between devices but sums.
        assert shared["talk"] == ["all-reduce"]


@pytest.mark.slow
def test_devices_agree_on_means_and_truths():
    assert child("join") == {"numbers": 3.5, "some": False, "all": True}


@pytest.mark.slow
def test_a_checkpoint_moves_between_numbers_of_devices(tmp_path):
    done = child("move", str(tmp_path))
    first, second, name = done["said"]
    assert "stopped at update 1 of 5" in first
    assert "stopped at update 2 of 5" in second
    assert name == Path(done["whole"]).name  # The number of devices is no part of a run's identity.
    moved, whole = (metrics(Path(done[which])) for which in ("run", "whole"))
    assert moved["update"].to_list() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(moved["loss"], whole["loss"], rtol=0, atol=1e-4)


def test_one_device_has_the_program_that_it_always_had():
    agent = AgentConfig(cell="elman", hidden_size=3, features=2, embedding_sizes=(3,), head_sizes=(3,))
    learning = LearningConfig(updates=2, batch=4, steps=3)
    train = make_train(Config(task=make_task("regression"), agent=agent, learning=learning))
    state = jax.eval_shape(train.init, jax.random.key(0))
    assert "shard_map" not in str(jax.make_jaxpr(train._advance_chunk)(state, 1, 2))


def test_more_devices_than_there_are(tmp_path, capsys):
    done = refused(capsys, *TINY, "--out", str(tmp_path), "--devices", "64")
    assert f"devices must be at most {jax.device_count()}" in done.err
    assert "--xla_force_host_platform_device_count=64" in done.err
    assert not list(tmp_path.iterdir())
    assert "devices must be a whole number of at least 1" in refused(capsys, *TINY, "--devices", "0").err


@pytest.mark.slow
@pytest.mark.skipif(len(cores()) < 2, reason="a device is a core")
def test_the_cores_of_a_cpu_are_devices(tmp_path):
    """Without a flag; and the numbers are those of one."""
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


def test_a_batch_that_cannot_be_shared_out():
    check_shares(12, 3, 4)
    with pytest.raises(ValueError, match=r"devices must divide the 12 tasks of a batch; got 5 in all\.$"):
        check_shares(12, 1, 5)
    with pytest.raises(ValueError, match="the 4 tasks of each of the 3 minibatches; got 8"):
        check_shares(12, 3, 8)


def test_a_mesh_as_jax_makes_it():
    learning = LearningConfig(updates=1, batch=2, steps=3)
    config = Config(task=make_task("bandit"), learning=learning)
    # Its axes are explicit ones unless told otherwise.
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
        # The other has no use for a folder, and makes none.
        started(port, 1, *options, "--out", str(tmp_path / "none"), "--devices", "2") as second,
    ):
        led, followed = finished(first), finished(second)
    assert followed == Done(0, "", followed.err)
    assert not (tmp_path / "none").exists()
    together = metrics(led.path)
    alone = metrics(finished_alone(*options, "--out", str(tmp_path / "one")).path)
    np.testing.assert_allclose(together["loss"], alone["loss"], rtol=0, atol=1e-4)
    assert led.path.name == next((tmp_path / "one").iterdir()).name


@pytest.mark.slow
def test_processes_that_are_stopped_or_lost(tmp_path):
    options = (*TINY, *SMALL, "--updates", "5000", "--out", str(tmp_path), "--resume")
    # Whichever is asked to stop, all do, with everything stored.
    with pair(options) as (first, second):
        wait_for(lambda: stored(tmp_path), first)
        second.send_signal(signal.SIGTERM)
        led, followed = finished(first), finished(second)
    assert (led.code, followed.code) == (130, 130)
    assert "stopped at update" in led.err
    assert "process 0 stopped, and says why" in followed.err
    # When one is lost, the other says so, and what was stored is still there.
    before = stored(tmp_path)
    with pair(options) as (first, second):
        wait_for(lambda: stored(tmp_path) > before, first)
        second.kill()
        led = finished(first)
    assert led.code == 1
    assert "process 0 lost another one" in led.err
    assert "--resume" in led.err
    (path,) = tmp_path.iterdir()
    assert (path / "status").read_text().startswith("interrupted\n")
    # One process alone goes on from there.
    before = stored(tmp_path)
    with started(None, 0, *options) as alone:
        wait_for(lambda: stored(tmp_path) > before, alone)
        alone.send_signal(signal.SIGINT)
        assert finished(alone).code == 130


@pytest.mark.slow
def test_processes_that_ask_for_different_runs(tmp_path):
    port = free_port()
    with (
        started(port, 0, *TINY, "--out", str(tmp_path)) as first,
        started(port, 1, *TINY, "--out", str(tmp_path), "--seed", "1") as second,
    ):
        for done in (finished(first), finished(second)):
            assert done.code == 2
            assert "process 1 has others than process 0" in done.err
    assert not list(tmp_path.iterdir())


def test_no_answer(tmp_path, capsys, monkeypatch):
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
def test_processes_that_never_come(tmp_path):
    hosts = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", "2"]
    script = (
        "from recurrent_laplace import cli; from recurrent_laplace.experiments import processes; "
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
        with pytest.raises(ValueError, match=f"port {port} cannot be had here"):
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
def test_hosts_that_make_no_sense(hosts, words):
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
    """The command line in a process of its own, one of two where there is a port."""
    together = ("--coordinator", f"127.0.0.1:{port}", "--processes", "2", "--process", str(process))
    command = [sys.executable, "-m", "recurrent_laplace", *argv, *(together if port else ())]
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
    """Two processes of one run."""
    port = free_port()
    with started(port, 0, *options) as first, started(port, 1, *options) as second:
        yield first, second


def finished(running: subprocess.Popen) -> Done:
    out, err = running.communicate(timeout=PATIENCE)
    # Gloo says on standard output, from C++, who is connected with whom.
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
    """The update of the newest checkpoint; 0 before there is one."""
    return max((int(folder.name) for folder in out.glob("*/checkpoints/[0-9]*")), default=0)


def metrics(path: Path) -> pl.DataFrame:
    """The loss of each update."""
    table = pl.read_parquet(path / "metrics.parquet").filter(pl.col("metric") == "loss")
    return table.sort("update").select("update", pl.col("value").alias("loss"))


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]
