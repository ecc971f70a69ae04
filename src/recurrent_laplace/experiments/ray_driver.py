"""The sweeper's hand in Ray, a process of its own: `python -m recurrent_laplace.experiments.ray_driver`.

Ray ends a process that loses its cluster, and writes much: neither is to happen to the sweeper's.
"""

import argparse
import collections
import contextlib
import hashlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import ray
from ray import cloudpickle
from ray.exceptions import RayError

import recurrent_laplace
from recurrent_laplace.experiments import ray_task
from recurrent_laplace.experiments.compilation import quick_compile_flags
from recurrent_laplace.experiments.estimate import estimate
from recurrent_laplace.experiments.plan import Job
from recurrent_laplace.experiments.ray_team import answers, log_of
from recurrent_laplace.experiments.sweeps import SweepDirectory, describe
from recurrent_laplace.experiments.worker import STOPPED
from recurrent_laplace.files import StorageError

LOOK_SECONDS = 0.5
"""How often the driver looks at its tasks."""
CONNECT_SECONDS = 8.0
"""How long a cluster may take to let us in; the sweeper's promise is 20 seconds in all."""
START_SECONDS = 90.0
"""How long Ray may take to start on this machine."""
HEAD_SECONDS = 15.0
"""A head that has been silent for so long is taken for dead."""
SETTLE_SECONDS = 3.0
"""How long tasks that are about to end are given to do so: Ray breaks down over one that it cancels then."""
STOP_SECONDS = 50.0
"""How long workers may take to store what they have."""
LOSSES = 3
"""A job that Ray loses so often before it is begun is not sent again."""

THREADS = ("PJRT_NPROC", "OMP_NUM_THREADS", "POLARS_MAX_THREADS")
"""What tells XLA, BLAS and polars how many threads to use: as many as a run has CPUs."""


def main() -> None:
    """Send a sweep's jobs to a cluster until nothing is left to do, or the sweeper is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("stages", nargs="*")
    parser.add_argument("--attempts", type=int, default=2)
    parser.add_argument("--cpus-per-run", type=int, default=1)
    parser.add_argument("--overflow", type=Path)
    parser.add_argument("--address")
    options = parser.parse_args()
    stop = threading.Event()
    threading.Thread(target=_stop_with_the_sweeper, args=(stop,), daemon=True).start()
    try:
        connect(options.address)
        directory = SweepDirectory.open(options.directory.resolve(), tuple(options.stages))
        directory.attempts = options.attempts
        directory.leases.overflow = options.overflow
        driver = Driver(directory, options.cpus_per_run)
        try:
            driver.work(stop)
        finally:
            driver.cancel()
            ray.shutdown()
    except (StorageError, ValueError) as problem:
        _end_with(problem)
    # Not by returning: Python would fail over what a full disk did not take of Ray's log.
    os._exit(STOPPED if stop.is_set() else 0)


def connect(address: str | None) -> None:
    """Join a cluster, or say in time that it cannot be done; from then on its head is watched."""
    place = address or "this machine"
    hint = (
        f"Ray at {place} did not let this machine in: it must be a node of the cluster "
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


class Driver:
    """Sends the jobs that are ready, a task each; what becomes of them is read from the sweep's directory."""

    def __init__(self, directory: SweepDirectory, cpus_per_run: int):
        self.directory = directory
        self.cpus_per_run = cpus_per_run
        self.sent: dict[ray.ObjectRef, tuple[Job, int]] = {}
        self.losses: collections.Counter[str] = collections.Counter()
        self.said = ""
        cloudpickle.register_pickle_by_value(ray_task)
        self.task = ray.remote(ray_task.perform)
        self.environment = {name: value for name, value in os.environ.items() if name[:4] in ("JAX_", "XLA_")}
        self.environment |= dict.fromkeys(THREADS, str(cpus_per_run))
        if directory.plan.quick_compile:
            self.environment["XLA_FLAGS"] = quick_compile_flags()
        self.digest = hashlib.sha256((directory.path / "sweep.toml").read_bytes()).hexdigest()

    def work(self, stop: threading.Event) -> None:
        """Until every job is done, or has failed for good."""
        while not stop.is_set():
            standings = self.directory.standings()
            if all(standing.word in ("done", "failed", "blocked") for standing in standings.values()):
                return
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            cpus = [int(node.get("CPU", 0)) for node in nodes]
            self._say(f"{len(nodes)} nodes, {sum(cpus)} CPUs")
            if max(cpus, default=0) < self.cpus_per_run:
                raise StorageError(
                    f"cpus_per_run is {self.cpus_per_run}, and no node of the cluster has more than "
                    f"{max(cpus, default=0)} CPUs."
                )
            # A few more than there is room for, so that no node waits for us.
            room = 2 * sum(count // self.cpus_per_run for count in cpus) - len(self.sent)
            waiting = {job.id for job, _ in self.sent.values()}
            ready = [job for job in self.directory.plan.jobs if standings[job.id].word == "ready"]
            for job in [job for job in ready if job.id not in waiting][: max(room, 0)]:
                self._send(job, memory=max(int(node.get("memory", 0)) for node in nodes))
            self._collect()

    def cancel(self) -> None:
        """Take back what is not begun, and let the rest store what it has."""
        running = list(self.sent)
        if running:
            _, running = ray.wait(running, num_returns=len(running), timeout=SETTLE_SECONDS)
        for ref in running:
            ray.cancel(ref)
        if running:
            ray.wait(running, num_returns=len(running), timeout=STOP_SECONDS)
        self.sent.clear()

    def _send(self, job: Job, memory: int) -> None:
        """Send a job to a node with memory for it; one that needs more than any has gets a node's all."""
        path = self.directory.path
        order = ray_task.Order(
            directory=str(path),
            digest=self.digest,
            version=recurrent_laplace.__version__,
            arguments=[str(path), job.stage, "--attempts", str(self.directory.attempts), "--job", job.id],
            environment=self.environment,
            log=str(log_of(self.directory, job.id)),
        )
        task = self.task.options(
            name=describe(job),
            num_cpus=self.cpus_per_run,
            memory=min(estimate(job.run).memory, memory),
            scheduling_strategy="SPREAD",
            max_retries=0,  # Leases count attempts, wherever they were made.
        )
        ref = task.remote(order)
        self.sent[ref] = (job, self.directory.leases.entry(job.id).attempts)

    def _collect(self) -> None:
        if not self.sent:
            time.sleep(LOOK_SECONDS)
            return
        ended, _ = ray.wait(list(self.sent), num_returns=len(self.sent), timeout=LOOK_SECONDS)
        for ref in ended:
            job, attempts = self.sent.pop(ref)
            try:
                outcome: ray_task.Outcome = ray.get(ref)
            except RayError as loss:
                self._lost(job, attempts, _first_line(loss))
                continue
            if outcome["problem"]:
                raise StorageError(outcome["problem"])
            if outcome["code"] not in (0, STOPPED):
                self._ended(job, attempts, outcome)

    def _ended(self, job: Job, attempts: int, outcome: ray_task.Outcome) -> None:
        """A worker that broke down, or had no room to write its attempt down: it counts all the same."""
        node, code = outcome["node"], outcome["code"]
        why = f"its worker on {node} ended with code {code}: {outcome['said'] or 'it said nothing'}"
        self._say(f"lost: {job.id}: {why}")
        self.directory.leases.settle(job.id, attempts + 1, why, worker=(node, outcome["process"]))

    def _lost(self, job: Job, attempts: int, why: str) -> None:
        """A job that was begun counts as an attempt; one that never begins would be sent for ever."""
        self._say(f"lost: {job.id}: {why}")
        if self.directory.leases.entry(job.id).attempts == attempts:
            self.losses[job.id] += 1
        if self.losses[job.id] == LOSSES:
            raise StorageError(f"run {job.id} was sent {LOSSES} times and never begun: {why}.")

    def _say(self, text: str) -> None:
        if text != self.said:
            _print(text)
        self.said = text


def _watch(head: str) -> None:
    heard = time.monotonic()
    while time.monotonic() - heard < HEAD_SECONDS:
        time.sleep(2)
        if answers(head):
            heard = time.monotonic()
    _end_with(
        f"the head of the Ray cluster at {head} does not answer any more: nothing that was stored is lost, "
        "and the same command continues the sweep, on this cluster or another."
    )


def _end_with(problem: object) -> NoReturn:
    """The last line of the log is for the sweeper to say; Ray would add some of its own on the way out."""
    _print(problem)
    os._exit(2)


def _print(text: object) -> None:
    """Write to the log, if there is room on its disk."""
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
