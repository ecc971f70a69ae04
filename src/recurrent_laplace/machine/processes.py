"""Several processes, on one machine or many, that execute one run together."""

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
from recurrent_laplace.learning.sharding import replicated
from recurrent_laplace.machine.devices import devices_by_process

Tree = TypeVar("Tree")

ANSWER_SECONDS = 12.0
"""Timeout for process 0 to answer."""
GATHER_SECONDS = 120.0
"""Timeout for all processes to connect."""

FINISHED, STOPPED, STATE = 0, -1, -2
"""Orders of process 0 besides the number of updates to train up to."""


class LostProcessError(Exception):
    """The processes of a run lost contact; the message is for the user.

    JAX still waits for the lost process and aborts when Python exits: leave by `os._exit`.
    """


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hosts:
    """Several processes for one run: the same command for each, except for --process.

    Each has its own devices and its shard of every batch. Only process 0 reads and writes the run directory.
    """

    coordinator: str | None = None
    """Address of process 0, as HOST:PORT with any free port of its machine."""
    processes: int = 1
    """Number of processes."""
    process: int = 0
    """Index of this process, from 0."""

    def check(self) -> None:
        """Raise `ValueError` for options that cannot be used together."""
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
    """The processes of a run: process 0 gives the orders, the others follow them.

    All methods are collective: every process has to make the matching calls in the same order.
    """

    def __init__(self, size: int = 1, index: int = 0):
        self.size = size
        self.index = index

    def check_same(self, description: str) -> None:
        """Raise `ValueError` unless all processes were started with the same description of their work."""
        if self.size == 1:
            return
        digest = np.frombuffer(hashlib.sha256(description.encode()).digest(), np.uint8)
        with self.reporting_loss():
            digests = multihost_utils.process_allgather(digest)
        for index, other in enumerate(digests):
            if not np.array_equal(other, digests[0]):
                raise ValueError(
                    "all processes must have the same options, except for --process; "
                    f"those of process {index} differ from those of process 0."
                )

    def announce(self, order: int, *, stop: bool = False) -> bool:
        """Send an order, as process 0; return whether any process was asked to stop."""
        return self._exchange(order, stop)[1]

    def receive(self, *, stop: bool = False) -> int:
        """Receive the next order of process 0; `stop`: whether this process was asked to stop."""
        return self._exchange(FINISHED, stop)[0]

    def _exchange(self, order: int, stop: bool) -> tuple[int, bool]:
        if self.size == 1:
            return order, stop
        rows = multihost_utils.process_allgather(np.array([order, stop], np.int32))
        return int(rows[0, 0]), bool(rows[:, 1].any())

    def broadcast(self, state: Tree, mesh: Mesh | None) -> Tree:
        """Copy the state of process 0 to all devices; of the other states only the shapes matter."""
        if mesh is None or self.size == 1:
            return state
        arrays, structure = jax.tree.flatten(state)
        keys = [jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key) for array in arrays]
        raw = [jax.random.key_data(a) if key else a for a, key in zip(arrays, keys, strict=True)]
        raw = multihost_utils.broadcast_one_to_all(raw)

        def rebuild(raw):
            wrap = jax.random.wrap_key_data
            return structure.unflatten(wrap(a) if key else a for a, key in zip(raw, keys, strict=True))

        return jax.jit(rebuild, out_shardings=replicated(mesh))(raw)

    @contextlib.contextmanager
    def announcing_end(self) -> Iterator[None]:
        """Context manager of process 0: announces to the others how its block ended."""
        order = STOPPED
        try:
            yield
            order = FINISHED
        except LostProcessError:
            order = None
            raise
        finally:
            if order is not None:
                with self.reporting_loss():
                    self.announce(order)

    @contextlib.contextmanager
    def reporting_loss(self) -> Iterator[None]:
        """Context manager: raises `LostProcessError` where JAX fails because another process was lost."""
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
"""The group of a single process."""


@contextlib.contextmanager
def joined(hosts: Hosts) -> Iterator[Group]:
    """Context manager: joins this process to its group; to be entered before JAX is used."""
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
    # Without this, programs for CPUs cannot span processes; other devices have their own collectives.
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

    # JAX aborts the process at its own timeout, so the shorter timeout of `join` below has to act first.
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
                f"coordinator: port {port} is not available here ({problem.strerror})."
            ) from problem


def _await_answer(host: str, port: int) -> None:
    start = time.monotonic()
    while True:
        try:
            socket.create_connection((host, port), timeout=2.0).close()
            return
        except OSError as problem:
            if time.monotonic() - start > ANSWER_SECONDS - 2.0:
                raise ValueError(
                    f"coordinator: process 0 does not answer at {host}:{port} within {ANSWER_SECONDS:g} s "
                    f"({problem.strerror or problem}); start it first."
                ) from problem
            time.sleep(0.5)
