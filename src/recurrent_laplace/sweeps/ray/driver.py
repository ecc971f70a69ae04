"""Driver process of a Ray cluster: `python -m recurrent_laplace.sweeps.ray.driver`.

Ray ends a process that loses its cluster, and prints a lot; a separate process protects the sweeper from
both.
"""

import argparse
import collections
import contextlib
import hashlib
import os
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import ray
from ray import cloudpickle
from ray.exceptions import RayError

import recurrent_laplace
from recurrent_laplace.files import StorageError
from recurrent_laplace.machine.compilation import quick_compile_flags
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.sweeps.directory import SweepDirectory, describe
from recurrent_laplace.sweeps.plan import Job
from recurrent_laplace.sweeps.ray import task as ray_task
from recurrent_laplace.sweeps.ray.executor import answers, log_of
from recurrent_laplace.sweeps.worker import STOPPED, add_task_arguments, load_tasks, task_arguments

LOOK_SECONDS = 0.5
"""Polling interval of the driver."""
CONNECT_SECONDS = 8.0
"""Timeout for joining a cluster; the sweeper reports a failure within 20 seconds in all."""
START_SECONDS = 90.0
"""Timeout for starting Ray on this machine."""
HEAD_SECONDS = 15.0
"""Silence after which the head counts as dead."""
SETTLE_SECONDS = 3.0
"""Time for tasks to end by themselves before they are cancelled: Ray fails if it cancels an ending task."""
STOP_SECONDS = 50.0
"""Time for workers to store their state."""
LOSSES = 3
"""Maximum number of times that Ray may lose a job before its start."""

THREADS = ("PJRT_NPROC", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")
"""Variables that set the number of threads of XLA, BLAS and polars to the CPUs of a run."""


def main() -> None:
    """Submit a sweep's jobs to a cluster until nothing is left to do or the sweeper ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--cpus-per-run", type=int, default=1)
    parser.add_argument("--overflow", type=Path)
    parser.add_argument("--address")
    add_task_arguments(parser)
    options = parser.parse_args()
    stop = threading.Event()
    threading.Thread(target=_stop_with_the_sweeper, args=(stop,), daemon=True).start()
    try:
        load_tasks(options)
        connect(options.address)
        directory = SweepDirectory.open(options.directory.resolve(), tuple(options.stages))
        directory.attempts = options.attempts
        directory.leases.overflow = options.overflow
        tasks = task_arguments(options.task, options.task_folder)
        driver = Driver(directory, options.cpus_per_run, tasks)
        try:
            driver.work(stop)
        finally:
            driver.cancel()
            ray.shutdown()
    except (StorageError, ValueError) as problem:
        _end_with(problem)
    # A normal exit would fail if a full disk kept Ray from flushing its log.
    os._exit(STOPPED if stop.is_set() else 0)


def connect(address: str | None) -> None:
    """Join a cluster within the timeout or raise `StorageError`; then monitor its head."""
    place = address or "this machine"
    hint = (
        f"Ray at {place} did not accept this machine: it must be a node of the cluster "
        "(ray start --address HOST:PORT), with the same versions of Python and Ray."
    )
    seconds = START_SECONDS if address is None else CONNECT_SECONDS
    timer = threading.Timer(seconds, _end_with, [hint])
    timer.daemon = True
    timer.start()
    try:
        ray.init(address=address, log_to_driver=False)
    except Exception as problem:
        raise StorageError(f"{hint} ({_first_line(problem)})") from problem
    finally:
        timer.cancel()
    head = ray.get_runtime_context().gcs_address
    threading.Thread(target=_watch, args=(head,), daemon=True).start()


class Submitted(NamedTuple):
    """A job submitted to the cluster."""

    job: Job
    attempts: int
    """Number of earlier attempts."""
    owner: str
    """Identity of the worker that will hold the lease."""


class Driver:
    """Submits ready jobs as Ray tasks; their results are read from the sweep directory."""

    def __init__(self, directory: SweepDirectory, cpus_per_run: int, tasks: list[str]):
        self.directory = directory
        self.tasks = tasks
        self.cpus_per_run = cpus_per_run
        self.submitted: dict[ray.ObjectRef, Submitted] = {}
        self.losses: collections.Counter[str] = collections.Counter()
        self.logged = ""
        cloudpickle.register_pickle_by_value(ray_task)
        self.task = ray.remote(ray_task.perform)
        self.environment = {name: value for name, value in os.environ.items() if name[:4] in ("JAX_", "XLA_")}
        self.environment |= dict.fromkeys(THREADS, str(cpus_per_run))
        if directory.plan.quick_compile:
            self.environment["XLA_FLAGS"] = quick_compile_flags()
        self.digest = hashlib.sha256((directory.path / "sweep.toml").read_bytes()).hexdigest()

    def work(self, stop: threading.Event) -> None:
        """Submit jobs until all are done, failed or blocked."""
        while not stop.is_set():
            statuses = self.directory.statuses()
            if all(status.state in ("done", "failed", "blocked") for status in statuses.values()):
                return
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            cpus = [int(node.get("CPU", 0)) for node in nodes]
            self._log(f"{len(nodes)} nodes, {sum(cpus)} CPUs")
            if max(cpus, default=0) < self.cpus_per_run:
                raise StorageError(
                    f"cpus_per_run is {self.cpus_per_run}, and no node of the cluster has more than "
                    f"{max(cpus, default=0)} CPUs."
                )
            # Twice as many as fit, so that no node waits for the driver.
            room = 2 * sum(count // self.cpus_per_run for count in cpus) - len(self.submitted)
            waiting = {submitted.job.id for submitted in self.submitted.values()}
            ready = [job for job in self.directory.plan.jobs if statuses[job.id].state == "ready"]
            for job in [job for job in ready if job.id not in waiting][: max(room, 0)]:
                self._send(job, memory=max(int(node.get("memory", 0)) for node in nodes))
            self._collect()

    def cancel(self) -> None:
        """Cancel all jobs; running ones store their state first."""
        running = list(self.submitted)
        if running:
            _, running = ray.wait(running, num_returns=len(running), timeout=SETTLE_SECONDS)
        for ref in running:
            ray.cancel(ref)
        if running:
            ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)
        self.submitted.clear()

    def _send(self, job: Job, memory: int) -> None:
        """Submit a job to a node with enough memory, or with all memory of a node if it needs more."""
        path, owner = self.directory.path, uuid.uuid4().hex
        arguments = [str(path), job.stage, "--attempts", str(self.directory.attempts), *self.tasks]
        order = ray_task.Order(
            directory=str(path),
            digest=self.digest,
            version=recurrent_laplace.__version__,
            arguments=[*arguments, "--job", job.id, "--owner", owner],
            environment=self.environment,
            log=str(log_of(self.directory, job.id)),
        )
        task = self.task.options(
            name=describe(job),
            num_cpus=self.cpus_per_run,
            memory=min(estimate(job.run).memory, memory),
            scheduling_strategy="SPREAD",
            max_retries=0,  # Leases count the attempts on all machines.
        )
        ref = task.remote(order)
        self.submitted[ref] = Submitted(job, self.directory.leases.entry(job.id).attempts, owner)

    def _collect(self) -> None:
        if not self.submitted:
            time.sleep(LOOK_SECONDS)
            return
        ended, _ = ray.wait(list(self.submitted), num_returns=len(self.submitted), timeout=LOOK_SECONDS)
        for ref in ended:
            submitted = self.submitted.pop(ref)
            try:
                outcome: ray_task.Outcome = ray.get(ref)
            except RayError as loss:
                self._lost(submitted, _first_line(loss))
                continue
            if outcome["problem"]:
                raise StorageError(outcome["problem"])
            if outcome["code"] not in (0, STOPPED):
                self._ended(submitted, outcome)

    def _ended(self, submitted: Submitted, outcome: ray_task.Outcome) -> None:
        """Count the attempt of a worker that crashed, or had no disk space to record the attempt itself."""
        node, code = outcome["node"], outcome["code"]
        reason = f"its worker on {node} ended with code {code}: {outcome['last_line'] or 'no output'}"
        self._log(f"lost: {submitted.job.id}: {reason}")
        self.directory.leases.record_attempts(
            submitted.job.id, submitted.attempts + 1, reason, owner=submitted.owner
        )

    def _lost(self, submitted: Submitted, reason: str) -> None:
        """Count how often a job was lost before its start, since such a job would be submitted for ever."""
        job = submitted.job.id
        self._log(f"lost: {job}: {reason}")
        if self.directory.leases.entry(job).attempts == submitted.attempts:
            self.losses[job] += 1
        if self.losses[job] == LOSSES:
            raise StorageError(f"run {job} was submitted {LOSSES} times and never started: {reason}.")

    def _log(self, text: str) -> None:
        if text != self.logged:
            _print(text)
        self.logged = text


def _watch(head: str) -> None:
    answered = time.monotonic()
    while time.monotonic() - answered < HEAD_SECONDS:
        time.sleep(2)
        if answers(head):
            answered = time.monotonic()
    _end_with(
        f"the head of the Ray cluster at {head} no longer answers: nothing that was stored is lost, "
        "and the same command continues the sweep, on this cluster or another."
    )


def _end_with(problem: object) -> NoReturn:
    """Exit at once with a last line for the sweeper, since a normal exit lets Ray print more lines."""
    _print(problem)
    os._exit(2)


def _print(text: object) -> None:
    """Write to the log; ignored if its disk is full."""
    with contextlib.suppress(OSError):
        os.write(sys.stdout.fileno(), f"{text}\n".encode())


def _first_line(problem: Any) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def _stop_with_the_sweeper(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stop.set()


if __name__ == "__main__":
    main()
