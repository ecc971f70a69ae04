"""A sweep on a real Ray of several nodes, on this machine: what dies, what is missing, what comes out."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from support.disks import make_larger, small_disk
from support.sweeps import SWEEP, finished, killed_at_the_end, leased, sessions, wait_for

from recurrent_laplace.sweeps.directory import SweepDirectory

pytestmark = pytest.mark.ray

LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for a mistake, and puts an address in its place that other machines reach."""
UPDATES = (2000, 2001)


@pytest.fixture(scope="module")
def environment(shared) -> dict[str, str]:
    """One thread for everyone, programs compiled once, and a Ray that only we may use."""
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PJRT_NPROC": "1",
        "POLARS_MAX_THREADS": "1",
        "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        "RAY_health_check_period_ms": "1000",  # Five such without an answer, and a node is dead.
        "RAY_raylet_start_wait_time_s": "200",  # On a machine that has much else to do.
    }


class Nodes:
    """Ray's own commands: a process group for each node, to be killed like a machine."""

    def __init__(self, environment: dict[str, str]):
        self.environment = environment
        self.started: list[subprocess.Popen] = []
        self.workers: list[subprocess.Popen] = []
        self.address = ""
        # Not pytest's folder: the paths of sockets must be short.
        self.folder = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)

    def head(self) -> None:
        """A head without CPUs, in the place of the one before."""
        with socket.create_server((LOOPBACK, 0)) as server:
            port = server.getsockname()[1]
        self.address = f"{LOOPBACK}:{port}"
        folder = Path(self.folder.name) / str(port)
        options = ["--head", f"--port={port}", "--num-cpus=0", f"--temp-dir={folder}"]
        options += ["--include-dashboard=false"]
        self.wait_for(self._start(sys.executable, *options, environment=self.environment))

    def at_least(self, count: int) -> None:
        """So many nodes with a CPU each."""
        self.workers = [node for node in self.workers if node.poll() is None]
        while len(self.workers) < count:
            # One after the other: two that start at once can wait for each other until Ray gives up.
            node = self.node(sys.executable, self.environment)
            self.wait_for(node)
            self.workers.append(node)

    def node(self, python: str, environment: dict[str, str]) -> subprocess.Popen:
        """One more node, which is about to start."""
        options = [f"--address={self.address}", "--num-cpus=1"]
        return self._start(python, *options, environment=environment)

    def _start(self, python: str, *options: str, environment: dict[str, str]) -> subprocess.Popen:
        command = [python, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options]
        command += [f"--node-ip-address={LOOPBACK}", f"--object-store-memory={80 * 2**20}"]
        with self._log(len(self.started)).open("w") as file:
            process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )
        self.started.append(process)
        return process

    def wait_for(self, process: subprocess.Popen) -> None:
        """Until a node is part of the cluster."""
        log = self._log(self.started.index(process))
        wait_for(lambda: "Ray runtime started" in log.read_text() or process.poll() is not None)
        assert process.poll() is None, log.read_text()

    def _log(self, number: int) -> Path:
        return Path(self.folder.name) / f"{number}.txt"

    def kill(self, process: subprocess.Popen) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def close(self) -> None:
        for process in self.started:
            self.kill(process)
        self.folder.cleanup()


@pytest.fixture(scope="module")
def nodes(environment, local) -> Iterator[Nodes]:
    """A cluster that the tests of this file change one after the other."""
    made = Nodes(environment)
    try:
        made.head()
        yield made
    finally:
        made.close()


@pytest.fixture
def sweep(environment):
    """Starts a `sweep` command, in a session of its own."""

    def start(out: Path, *options: str, updates=UPDATES, **changes: str) -> subprocess.Popen:
        file = out.with_suffix(".toml")
        file.write_text(SWEEP.format(updates=", ".join(map(str, updates))))
        process = subprocess.Popen(
            [sys.executable, "-m", "recurrent_laplace", "sweep", file, "--out", out, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment | changes,
            start_new_session=True,
        )
        started.append(process)
        return process

    with killed_at_the_end() as started:
        yield start


def at_work(out: Path, pattern: str) -> dict[str, int]:
    """Workers by the run that they are at, of runs with such a file."""
    return {job: process for job, process in leased(out).items() if list(out.glob(f"runs/{job}/{pattern}"))}


def half_way(out: Path) -> tuple[str, int]:
    """A run that has made half of its training, and its worker."""
    return wait_for(lambda: list(at_work(out, "checkpoints/1000").items()))[0]


def node_of(worker: int) -> int:
    """The process group of the node that a worker is on: its parent's, which is Ray's."""
    parent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    return os.getpgid(parent)


def tables(out: Path) -> dict[str, pl.DataFrame]:
    directory = SweepDirectory.open(out)
    assert all(directory.is_done(job) for job in directory.plan.jobs)
    return {
        f"{job.id} {name}": pl.read_parquet(directory.runs / job.id / f"{name}.parquet")
        for job in directory.plan.jobs
        for name in ("metrics", "evaluation")
    }


def assert_equal(out: Path, reference: dict[str, pl.DataFrame]) -> None:
    """Bit for bit, all that is in this sweep."""
    found = tables(out)
    assert found
    for name, table in found.items():
        assert table.equals(reference[name]), name


def times_done(out: Path) -> dict[str, int]:
    return {file.stem: file.read_text().count("\ndone: ") for file in (out / "logs").glob("two_arm*.txt")}


@pytest.fixture(scope="module")
def local(environment, tmp_path_factory) -> Iterator[tuple[subprocess.Popen, Path]]:
    """The sweep by the local executor, begun while Ray still starts; importing Ray would leave a trace."""
    folder = tmp_path_factory.mktemp("local")
    trap = folder / "trap" / "ray.py"
    trap.parent.mkdir()
    trap.write_text("from pathlib import Path\nPath(__file__).with_name('imported').touch()\n")
    file = folder / "sweep.toml"
    file.write_text(SWEEP.format(updates=", ".join(map(str, UPDATES))))
    path = os.pathsep.join([str(trap.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "recurrent_laplace", "sweep", file, "--out", folder / "out"]
    process = subprocess.Popen([*command, "--workers=1"], env=environment | {"PYTHONPATH": path})
    yield process, folder
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def reference(local) -> dict[str, pl.DataFrame]:
    """What the local executor makes of the sweep."""
    process, folder = local
    assert process.wait(timeout=400) == 0
    assert not (folder / "trap" / "imported").exists()
    return tables(folder / "out")


def test_an_address_that_is_no_ray_is_said_in_time(sweep, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        said = finished(sweep(tmp_path / "out", "--executor=ray", f"--address={address}"), 2)
        assert time.monotonic() - began < 20
    assert f"Ray at {address} did not accept this machine" in said
    assert len([line for line in said.splitlines() if line.startswith("recurrent-laplace: ")]) == 1


def test_a_node_without_the_package_is_named(nodes, sweep, tmp_path, environment):
    venv.create(tmp_path / "bare")
    python = tmp_path / "bare" / "bin" / "python"
    # All libraries of ours, but not the package: what installs it in place is not read from there.
    (bare,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    (bare / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    without = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    node = nodes.node(str(python), without)
    nodes.wait_for(node)
    said = finished(sweep(tmp_path / "out", "--executor=ray", f"--address={nodes.address}"), 2)
    nodes.kill(node)
    assert f"node {os.uname().nodename} has no package recurrent-laplace for its {python}" in said
    assert sessions(tmp_path / "out") == {}


def test_a_node_dies_and_nothing_else_changes(nodes, sweep, tmp_path, reference):
    out = tmp_path / "out"
    nodes.at_least(2)
    process = sweep(out, "--executor=ray", f"--address={nodes.address}")
    victim, worker = half_way(out)
    os.killpg(node_of(worker), signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)  # The machine is gone, and all that was on it.
    said = finished(process)
    assert "4/4 done" in said
    assert tables(out).keys() == reference.keys()
    assert_equal(out, reference)
    assert times_done(out) == dict.fromkeys(sessions(out), 1)
    assert sessions(out) == {job: 1 + (job == victim) for job in sessions(out)}


def test_ctrl_c_stores_and_says_how_to_go_on(nodes, sweep, tmp_path):
    out = tmp_path / "out"
    nodes.at_least(1)
    process = sweep(out, "--executor=ray", f"--address={nodes.address}", updates=(100_000,))
    wait_for(lambda: at_work(out, "log.txt"))
    os.killpg(process.pid, signal.SIGINT)
    said = finished(process, 130)
    assert "stopped: the same command continues the sweep." in said
    (status,) = out.glob("runs/*/status")
    assert status.read_text().startswith("interrupted")
    (entry,) = out.glob("jobs/*.json")
    assert json.loads(entry.read_text())["attempts"] == 0
    assert json.loads(entry.read_text())["owner"] == ""


def test_a_full_disk_is_reported_and_the_same_command_continues(nodes, sweep, tmp_path):
    nodes.at_least(1)
    disk = tmp_path / "disk"
    options = ("--executor=ray", f"--address={nodes.address}", "--only=rnn")
    # Room for a state, and not for all snapshots.
    with small_disk(disk, "160k"):
        said = finished(sweep(disk / "out", *options, updates=(4,)), 1)
        assert "cannot write" in said
        assert "No space left on device" in said
        assert "1 of 1 runs failed; the same command tries them again." in said
        make_larger(disk)
        finished(sweep(disk / "out", *options, updates=(4,)))


def test_the_head_dies_and_the_same_command_continues(nodes, sweep, tmp_path, reference):
    out = tmp_path / "out"
    nodes.at_least(1)
    process = sweep(out, "--executor=ray", f"--address={nodes.address}", updates=UPDATES[:1])
    _, worker = half_way(out)
    gone = list(nodes.started)
    nodes.kill(gone[0])
    # While the sweep waits for a sign of life, another cluster starts.
    nodes.head()
    said = finished(process, 2)
    assert "the same command continues the sweep" in said
    for node in gone:
        nodes.kill(node)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    nodes.at_least(1)
    finished(sweep(out, "--executor=ray", f"--address={nodes.address}", updates=UPDATES[:1]))
    assert_equal(out, reference)
    assert times_done(out) == dict.fromkeys(sessions(out), 1)
