"""Who works on a sweep: what is refused before anyone starts, and that only one process knows Ray."""

import ast
import contextlib
import hashlib
import importlib.util
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.disks import make_larger, small_disk
from support.sources import SOURCES, imported
from support.sweeps import make_sweep

import recurrent_laplace
from recurrent_laplace.cli.executor import ExecutorOptions
from recurrent_laplace.files import StorageError
from recurrent_laplace.sweeps.directory import JobStatus, SweepDirectory
from recurrent_laplace.sweeps.local import LocalExecutor
from recurrent_laplace.sweeps.ray import task as ray_task
from recurrent_laplace.sweeps.ray.executor import RayExecutor

SWEEP = """
preset = "smoke"

[[stage]]
name = "rnn"
set.task.name = "two_arm_bandit"
"""


@pytest.fixture
def directory(tmp_path) -> SweepDirectory:
    return make_sweep(tmp_path / "out", SWEEP)


def test_only_the_driver_imports_ray_and_nobody_imports_the_driver():
    users = {path.name for path in SOURCES if any(name.split(".")[0] == "ray" for name in imported(path))}
    assert users == {"driver.py"}
    for path in SOURCES:
        assert "recurrent_laplace.sweeps.ray.driver" not in imported(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "recurrent_laplace.runs":
                assert "driver" not in {alias.name for alias in node.names}


def test_sweep_is_imported_without_ray():
    modules = "recurrent_laplace.cli.sweep, recurrent_laplace.sweeps.worker"
    look = f"import {modules}, sys; print('ray' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_the_task_needs_no_package():
    assert ray_task.__file__ is not None
    names = {name.split(".")[0] for name in imported(Path(ray_task.__file__))}
    assert names <= set(sys.stdlib_module_names)


def test_options_without_meaning_are_refused(directory):
    with pytest.raises(
        ValueError, match=r"address has no meaning with executor 'local'; got '10\.0\.0\.1:6379'"
    ):
        ExecutorOptions(address="10.0.0.1:6379").make_executor(directory)
    with pytest.raises(ValueError, match="cpus_per_run has no meaning with executor 'local'; got 2"):
        ExecutorOptions(cpus_per_run=2).make_executor(directory)
    with pytest.raises(ValueError, match="workers has no meaning with executor 'ray'; got 2"):
        ExecutorOptions(executor="ray", workers=2).make_executor(directory)
    with pytest.raises(ValueError, match="workers must be a whole number of at least 1; got 0"):
        ExecutorOptions(workers=0).make_executor(directory)
    assert isinstance(ExecutorOptions(workers=3).make_executor(directory), LocalExecutor)


@pytest.fixture
def with_ray(monkeypatch):
    """As if Ray were installed, which it is not where this runs."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def test_a_missing_extra_is_said(directory, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"executor 'ray' needs ray: pip install 'recurrent-laplace\[ray\]'"):
        RayExecutor(directory)


@pytest.mark.parametrize("address", ["here", "ray://here:10001", ":6379", "here:", "here:six"])
def test_an_address_that_is_none_is_said(directory, with_ray, address):
    with pytest.raises(ValueError, match="address must be HOST:PORT of a Ray cluster's head, or auto; got"):
        RayExecutor(directory, address=address)
    with pytest.raises(ValueError, match="cpus_per_run must be a whole number of at least 1; got 0"):
        RayExecutor(directory, cpus_per_run=0)


def test_an_address_where_nobody_answers_is_said(directory, with_ray, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert RayExecutor(directory, address=address).about() == f"Ray at {address}"
    with pytest.raises(StorageError, match=f"no Ray cluster answers at {address}"):
        RayExecutor(directory, address=address)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(StorageError, match=f"no Ray cluster answers at {address}"):
        RayExecutor(directory)


def order(directory: SweepDirectory, job: str, /, **changes) -> ray_task.Order:
    (directory.path / "logs").mkdir(exist_ok=True)
    made = ray_task.Order(
        directory=str(directory.path),
        digest=hashlib.sha256((directory.path / "sweep.toml").read_bytes()).hexdigest(),
        version=recurrent_laplace.__version__,
        arguments=[str(directory.path), "rnn", "--job", job],
        environment={},
        log=str(directory.path / "logs" / "job.txt"),
    )
    return made | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"directory": "/nowhere"},
            "does not see /nowhere/sweep.toml (No such file or directory): the directory",
        ),
        ({"digest": "another"}, "has another "),
        ({"version": "0"}, "and the sweeper 0: install the same on all nodes."),
        ({"log": "/nowhere/job.txt"}, "cannot write /nowhere/job.txt: No such file or directory."),
    ],
)
def test_a_node_that_cannot_do_the_job_says_why(directory, changes, words):
    outcome = ray_task.perform(order(directory, "any", **changes))
    assert outcome["problem"].startswith(f"node {outcome['node']} ")
    assert words in outcome["problem"]


@pytest.mark.slow
def test_a_job_that_the_sweep_does_not_have(directory):
    outcome = ray_task.perform(order(directory, "another"))
    assert (outcome["code"], outcome["problem"]) == (2, "")
    assert outcome["last_line"].endswith("sweep.toml has no run another: the file was changed.")
    assert (directory.path / "logs" / "job.txt").read_text().strip() == outcome["last_line"]


@pytest.mark.slow
def test_a_node_runs_no_file_of_its_current_directory(directory, tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    for name in ("filelock", "recurrent_laplace"):
        (here / f"{name}.py").write_text("raise SystemExit('hostile')")
    monkeypatch.chdir(here)
    outcome = ray_task.perform(order(directory, "another"))
    assert outcome["problem"] == ""
    assert outcome["last_line"].endswith("has no run another: the file was changed.")


def fill(disk: Path) -> None:
    with contextlib.suppress(OSError), (disk / "rest").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


@pytest.mark.slow
def test_attempts_are_counted_where_they_cannot_be_written_down(tmp_path):
    disk, overflow = tmp_path / "disk", tmp_path / "overflow"
    overflow.mkdir()
    with small_disk(disk, "64k"):
        directory = make_sweep(disk / "out", SWEEP)
        (job,) = directory.plan.jobs
        asked = order(directory, job.id)
        fill(disk)
        outcome = ray_task.perform(asked)
        assert (outcome["code"], outcome["problem"]) == (2, "")
        said = outcome["last_line"]
        assert said.startswith(f"cannot write {directory.path}")
        assert said.endswith("No space left on device.")
        assert Path(asked["log"]).read_text() == ""
        with pytest.raises(StorageError, match="No space left on device"):
            directory.leases.record_attempts(job.id, 1, said, owner="its worker")
        # The driver counts in a folder elsewhere, and the sweeper looks there.
        looking, directory.leases.overflow = make_sweep(disk / "out", SWEEP), overflow
        looking.leases.overflow = overflow
        for attempts in (1, 2):
            assert looking.statuses()[job.id].state == "ready"
            for _ in range(2):
                directory.leases.record_attempts(job.id, attempts, said, owner="its worker")
        assert looking.statuses()[job.id] == JobStatus("failed", said)
        # When there is room, the same command forgets about it.
        make_larger(disk)
        looking.leases.reset_attempts([job.id])
        assert directory.statuses()[job.id] == JobStatus("ready", said)
        assert directory.leases.entry(job.id).attempts == 0


def test_a_worker_that_could_not_give_its_job_back_is_spoken_for(directory):
    (job,) = directory.plan.jobs
    worker = make_sweep(directory.path, SWEEP).leases
    assert worker.acquire(job.id, attempts=2)
    me, said = worker.owner, "cannot write: No space left on device."
    directory.leases.record_attempts(job.id, 1, said, owner="another")
    assert directory.status(job).state == "running", "it is somebody else's"
    directory.leases.record_attempts(job.id, 1, said, owner=me)
    assert directory.status(job) == JobStatus("ready", said)
    assert directory.leases.entry(job.id).attempts == 1
    worker.release(job.id)
    # One that did give it back has the last word.
    assert worker.acquire(job.id, attempts=2)
    worker.release(job.id, "it broke")
    directory.leases.record_attempts(job.id, 2, said, owner=me)
    assert directory.status(job) == JobStatus("failed", "it broke")
