"""Several processes, on one machine or many, that do one run together."""

import contextlib
import dataclasses
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from recurrent_laplace.errors import check_size
from recurrent_laplace.experiments.devices import devices_by_process
from recurrent_laplace.learning.sharding import copied

Tree = TypeVar("Tree")

ANSWER_SECONDS = 12.0
"""How long process 0 may take to answer."""
GATHER_SECONDS = 120.0
"""How long all processes may take to come."""

FINISHED, STOPPED, STATE = 0, -1, -2
"""What process 0 says, other than up to which update to go."""


class LostProcessError(Exception):
    """The processes of a run cannot go on together; the message is for the user.

    JAX still waits for what is lost, and aborts when Python ends: leave by `os._exit`.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
    """Several processes for one run: the same command for each, but for --process.

    Each has its own devices, and its share of every batch. Process 0 alone reads and writes the run's
    directory.
    """

    coordinator: str | None = None
    """Where the others find process 0, as HOST:PORT, any free port of its machine."""
    processes: int = 1
    """How many processes there are."""
    process: int = 0
    """Which of them this is, from 0 on."""

    def check(self) -> None:
        """Refuse what cannot be carried out."""
        check_size("processes", self.processes)
        if isinstance(self.process, bool) or self.process not in range(self.processes):
            raise ValueError(
                f"process must be from 0 to {self.processes - 1} of {self.processes}; got {self.process}."
            )
        if (self.coordinator is None) != (self.processes == 1):
            raise ValueError(
                "coordinator and processes go together: HOST:PORT and a number of at least 2, or neither; "
                f"got {self.coordinator} and {self.processes}."
            )
        if self.coordinator is not None:
            _address(self.coordinator)


class Group:
    """The processes of a run, of which process 0 leads and the others follow.

    What is said is heard by all at once: each call of a method here meets a call of the same method in
    every other process.
    """

    def __init__(self, size: int = 1, index: int = 0):
        self.size = size
        self.index = index

    def check_same(self, what: str) -> None:
        """Refuse processes that were started for different things."""
        if self.size == 1:
            return
        digest = np.frombuffer(hashlib.sha256(what.encode()).digest(), np.uint8)
        with self.watched():
            digests = multihost_utils.process_allgather(digest)
        for index, other in enumerate(digests):
            if not np.array_equal(other, digests[0]):
                raise ValueError(
                    "all processes must be given the same options but for --process; "
                    f"process {index} has others than process 0."
                )

    def say(self, order: int, *, stop: bool = False) -> bool:
        """Say what is next, as process 0; returns whether any process was asked to stop."""
        return self._exchange(order, stop)[1]

    def hear(self, *, stop: bool = False) -> int:
        """What process 0 says; `stop`: whether this process was asked to."""
        return self._exchange(FINISHED, stop)[0]

    def _exchange(self, order: int, stop: bool) -> tuple[int, bool]:
        if self.size == 1:
            return order, stop
        rows = multihost_utils.process_allgather(np.array([order, stop], np.int32))
        return int(rows[0, 0]), bool(rows[:, 1].any())

    def share(self, state: Tree, mesh: Mesh | None) -> Tree:
        """The state that process 0 has, on all devices; of the others' only the shapes count."""
        if mesh is None or self.size == 1:
            return state
        arrays, structure = jax.tree.flatten(state)
        keys = [jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key) for array in arrays]
        raw = [jax.random.key_data(a) if key else a for a, key in zip(arrays, keys, strict=True)]
        raw = multihost_utils.broadcast_one_to_all(raw)

        def rebuild(raw):
            wrap = jax.random.wrap_key_data
            return structure.unflatten(wrap(a) if key else a for a, key in zip(raw, keys, strict=True))

        return jax.jit(rebuild, out_shardings=copied(mesh))(raw)

    @contextlib.contextmanager
    def led(self) -> Iterator[None]:
        """Whatever process 0 does in here, the others hear how it ended."""
        order = STOPPED
        try:
            yield
            order = FINISHED
        except LostProcessError:
            order = None
            raise
        finally:
            if order is not None:
                with self.watched():
                    self.say(order)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """When a process is lost, say so; the programs of the others fail in JAX."""
        try:
            yield
        except jax.errors.JaxRuntimeError as problem:
            if self.size == 1:
                raise
            reason = str(problem).splitlines()[0]
            raise LostProcessError(
                f"process {self.index} lost another one ({reason}): the same commands with --resume continue "
                "from the last checkpoint."
            ) from problem


ALONE = Group()


@contextlib.contextmanager
def joined(hosts: Hosts) -> Iterator[Group]:
    """Be one of several processes; to be entered before JAX is used."""
    hosts.check()
    if hosts.coordinator is None:
        yield ALONE
        return
    _join(hosts, hosts.coordinator)
    together = True
    try:
        counts = [len(row) for row in devices_by_process()]
        if len(set(counts)) > 1:
            raise ValueError(f"processes must have as many devices each; got {counts}.")
        yield Group(hosts.processes, hosts.process)
    except LostProcessError:
        together = False
        raise
    except KeyboardInterrupt as stop:
        together = False
        raise LostProcessError("stopped at once: what was done since the last checkpoint is lost.") from stop
    finally:
        if together:
            jax.distributed.shutdown()


def _join(hosts: Hosts, coordinator: str) -> None:
    host, port = _address(coordinator)
    if hosts.process == 0:
        _check_free(port)
    else:
        _await_answer(host, port)
    # Without this, programs for CPUs cannot span processes; other devices have their own ways.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")

    problems: list[Exception] = []

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                coordinator,
                hosts.processes,
                hosts.process,
                initialization_timeout=10 * int(GATHER_SECONDS),
                shutdown_timeout_seconds=int(ANSWER_SECONDS),
            )
        except Exception as problem:
            problems.append(problem)

    # JAX aborts the process when its time is up, so the time that counts is ours.
    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    thread.join(GATHER_SECONDS)
    if thread.is_alive():
        raise LostProcessError(
            f"not all {hosts.processes} processes came together at {coordinator} within {GATHER_SECONDS:g} s."
        )
    if problems:
        raise ValueError(f"coordinator: {problems[0]}") from problems[0]


def _address(coordinator: str) -> tuple[str, int]:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"coordinator must be HOST:PORT; got {coordinator!r}.")
    return host.strip("[]"), int(port)


def _check_free(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as problem:
            raise ValueError(
                f"coordinator: port {port} cannot be had here ({problem.strerror})."
            ) from problem


def _await_answer(host: str, port: int) -> None:
    began = time.monotonic()
    while True:
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            return
        except OSError as problem:
            if time.monotonic() - began > ANSWER_SECONDS - 2.0:
                raise ValueError(
                    f"coordinator: process 0 does not answer at {host}:{port} within {ANSWER_SECONDS:g} s "
                    f"({problem.strerror or problem}); start it first."
                ) from problem
            time.sleep(0.5)
