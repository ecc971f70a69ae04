"""Crash-safe training in a run directory."""

import contextlib
import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.files import DamagedError, StorageError
from recurrent_laplace.learning.train import CHUNK, WATCHED, Progress, Train, TrainState, make_train
from recurrent_laplace.machine.devices import Devices, choose_mesh
from recurrent_laplace.machine.interrupts import graceful
from recurrent_laplace.machine.processes import (
    ALONE,
    FINISHED,
    STATE,
    STOPPED,
    Group,
    LostProcessError,
)
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.display import Display
from recurrent_laplace.runs.loggers import LOGGERS, open_loggers
from recurrent_laplace.runs.models import load_state, seed_keys, snapshot_updates
from recurrent_laplace.runs.origin import check_origin, store_origin
from recurrent_laplace.runs.provenance import describe_session, now, read_sessions, write_sessions
from recurrent_laplace.runs.requirements import require_training_memory
from recurrent_laplace.runs.tables import METRICS_SCHEMA, metrics_frame, read_table, write_table
from recurrent_laplace.tasks.conformance import check_dynamics

CALL_SECONDS = 1.0
"""Target duration of a compiled call, after which progress is shown and Ctrl-C takes effect."""
COMPILATION = "compilation"
"""Name of the thread that compiles while the state is initialised."""

FIRST_PACES = 3
"""Compiled calls after which the time of an update is stored for the first time."""


class TrainingFailedError(Exception):
    """A quantity was not finite; the message names it and the update."""


class InterruptedRunError(Exception):
    """Training was stopped by the user and stored; the message says how to continue."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of execution: none changes the result, except for the order of sums over devices."""

    out: Path = Path("runs")
    """Folder of the run directories."""
    resume: bool = False
    """Start the run if absent, continue it if partial, exit 0 if finished."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints; there is always one at 1/2, 3/4 and the end of training."""
    log: tuple[str, ...] = ()
    """Also log to: tensorboard, wandb."""
    devices: Devices = "auto"
    """Devices (per process) that share the seeds or the tasks; auto: one, or a core of the CPU per seed."""

    def check(self) -> None:
        """Raise `ValueError` for invalid options."""
        check_number("checkpoint_seconds", self.checkpoint_seconds, least=0)
        if self.devices != "auto":
            check_size("devices", self.devices)
        for name in self.log:
            check_choice("logger", name, tuple(LOGGERS))


Initial = Callable[[Train], TrainState]
"""Function that makes the state before the first update."""


def train_run(
    run: Run, options: RunOptions, initial: Initial | None = None, *, group: Group = ALONE
) -> RunDirectory:
    """Train a run to its end, from its newest checkpoint if any, in its directory under `options.out`."""
    train = _prepare(run, options, group)
    with group.announcing_end():
        return _lead(run, options, train, initial, group)


def follow_run(run: Run, options: RunOptions, *, group: Group) -> None:
    """Take part in a run that process 0 of `group` executes by `train_run`, without touching any file."""
    train = _prepare(run, options, group)
    state = train.init(seed_keys(run))  # Only its shapes are used.
    with graceful() as stop, group.reporting_loss():
        while True:
            order = group.receive(stop=stop.requested)
            if order == FINISHED:
                return
            if order == STOPPED:
                raise InterruptedRunError("process 0 stopped; its message says why.")
            if order == STATE:
                state = group.broadcast(state, train.mesh)
            else:
                state, _ = train.advance(state, order)


def _prepare(run: Run, options: RunOptions, group: Group) -> Train:
    # Checked first, so that invalid options fail in all processes alike.
    group.check_same(f"{run.id} on {options.devices} devices")
    run.check()
    check_dynamics(run.config.task)
    options.check()
    require_training_memory(run, group.size)
    mesh, sharded = choose_mesh(options.devices, run.seeds)
    return make_train(run.config, mesh=mesh, sharded=sharded, start=run.start)


def _lead(run: Run, options: RunOptions, train: Train, initial: Initial | None, group: Group) -> RunDirectory:
    directory = RunDirectory.at(options.out, run)
    check_free(directory, options)
    check_origin(directory)
    if directory.is_finished and directory.checkpoints.is_intact(run.config.learning.updates):
        return directory
    with directory.locked(), _loggers(directory, options.log) as loggers:
        session = describe_session()
        sessions = [*read_sessions(directory.provenance_path), session]
        is_new = initial is None and group.size == 1 and not directory.checkpoints.updates()
        compilation = _compile_meanwhile(train, run) if is_new else None
        state, history = _load(directory, train, initial)
        # Nothing is written before this line, so that files that cannot be read stay as they are.
        store_origin(directory)
        write_sessions(directory.provenance_path, sessions)
        directory.set_status("running")
        try:
            _train(directory, options, train, state, history, loggers, sessions, group, compilation)
        except (TrainingFailedError, InterruptedRunError, LostProcessError) as end:
            directory.log(str(end))
            failed = isinstance(end, TrainingFailedError)
            directory.set_status("failed" if failed else "interrupted", str(end))
            raise
        else:
            # The run only counts as finished if its last state can be read back.
            load_state(directory, run.config.learning.updates, train)
            directory.set_status("finished")
        finally:
            session["ended"] = now()
            write_sessions(directory.provenance_path, sessions)
    return directory


def check_free(directory: RunDirectory, options: RunOptions) -> None:
    """Raise `StorageError` for a run that was started before, unless it is to be resumed."""
    if directory.status is not None and not options.resume:
        raise StorageError(
            f"{directory.path} exists already and is {_progress(directory)}: "
            "add --resume to continue it, or to accept it if it is finished."
        )


def _load(directory: RunDirectory, train: Train, initial: Initial | None) -> tuple[TrainState, pl.DataFrame]:
    """Newest intact state, and the metrics up to it."""
    lost = []
    for update in reversed(directory.checkpoints.updates()):
        try:
            state = load_state(directory, update, train)
        except DamagedError as problem:
            lost.append(str(problem))
            continue
        history = read_table(directory.metrics_path, METRICS_SCHEMA)
        history = history.filter(pl.col("update") <= update)
        if history["update"].n_unique() != update:
            raise StorageError(
                f"{directory.metrics_path} is damaged: it has {history['update'].n_unique()} of the "
                f"{update} updates before the newest checkpoint."
            )
        break
    else:
        if lost:
            raise StorageError(
                f"{lost[0]} There is no other checkpoint: delete {directory.checkpoints.folder} to train "
                "from the beginning."
            )
        state = train.init(seed_keys(directory.run)) if initial is None else initial(train)
        update, history = 0, pl.DataFrame(schema=METRICS_SCHEMA)
    if directory.is_finished and not lost:
        lost.append(f"{directory.path} is finished, but its last checkpoint is gone.")
    for sentence in lost:
        note = f"{sentence} Training continues from update {update}."
        directory.log(note)
        print(note, file=sys.stderr)
    return state, history


def _train(
    directory: RunDirectory,
    options: RunOptions,
    train: Train,
    state: TrainState,
    history: pl.DataFrame,
    loggers: Sequence[Any],
    sessions: list[dict[str, Any]],
    group: Group,
    compilation: threading.Thread | None,
) -> None:
    run = directory.run
    updates = run.config.learning.updates
    done = _updates_of(state) - run.start
    directory.log(f"begins at update {done} of {updates}" if done else f"begins: {updates} updates")

    recorder, session = _Recorder(directory, history), sessions[-1]
    if done == updates:  # A post-hoc run has no updates.
        recorder.store(done, state)
        return
    headline = "return" if run.config.objective.acts else "loss"
    pace = _Pace()
    with (
        graceful() as stop,
        Display(run.id, total=updates, start=done, headline=headline) as display,
        group.reporting_loss(),
    ):
        group.announce(STATE)
        state = group.broadcast(state, train.mesh)
        while done < updates:
            boundary = next(mark for mark in snapshot_updates(updates) if mark > done)
            until = min(done + pace.count(), boundary)
            stop.requested |= group.announce(run.start + until, stop=stop.requested)
            if compilation is not None:
                compilation.join()
            state, progress = train.advance(state, run.start + until)
            rows = _rows(progress, run.seeds)
            count = len(next(iter(rows.values())))
            pace.made(count)
            if len(pace.paces) == FIRST_PACES:
                session |= pace.times()
                # For forecasts of sweeps while the run goes on: no reason to stop it.
                with contextlib.suppress(StorageError):
                    write_sessions(directory.provenance_path, sessions)
            if count:
                recorder.add(done + 1, rows)
                for logger in loggers:
                    _log(logger, run, done + 1, rows)
                display.update(done + count, {name: values.mean(axis=1) for name, values in rows.items()})
            done += count
            bad = ~np.asarray(progress.finite).reshape(run.seeds, len(WATCHED))
            if bad.any():
                recorder.store(done, state)
                raise TrainingFailedError(_failure(bad, run, done + 1))
            if done in snapshot_updates(updates) or recorder.seconds_since() >= options.checkpoint_seconds:
                recorder.store(done, state)
            if stop.requested and done < updates:
                recorder.store(done, state)
                raise InterruptedRunError(
                    f"stopped at update {done} of {updates}: the same command with --resume continues it."
                )
        recorder.store(done, state)
        session["updates"] = done
        session |= pace.times()
        directory.log(f"finished {updates} updates")


class _Recorder:
    """Storage of metrics and states: the metrics are written first, so that a state never lacks its own."""

    def __init__(self, directory: RunDirectory, history: pl.DataFrame):
        self.directory = directory
        self.frames = [history]
        self.stored = time.monotonic()
        self.update: int | None = None

    def add(self, first_update: int, rows: dict[str, np.ndarray]) -> None:
        run = self.directory.run
        seeds = range(run.seed, run.seed + run.seeds)
        self.frames.append(metrics_frame(run.id, seeds, first_update, rows))

    def store(self, update: int, state: TrainState) -> None:
        if update == self.update:
            return
        self.update = update
        self.frames = [pl.concat(self.frames)]
        write_table(self.directory.metrics_path, self.frames[0])
        keep = set(snapshot_updates(self.directory.run.config.learning.updates))
        self.directory.checkpoints.save(update, state, keep)
        self.directory.log(f"checkpoint at update {update}")
        self.stored = time.monotonic()

    def seconds_since(self) -> float:
        return time.monotonic() - self.stored


class _Pace:
    """Number of updates per compiled call, adapted to take about `CALL_SECONDS`."""

    def __init__(self):
        self.per_second: float | None = None
        self.first_seconds = 0.0
        self.since = time.monotonic()
        self.paces: list[float] = []

    def times(self) -> dict[str, float | None]:
        """Times for the provenance of the run."""
        return {"compile_seconds": round(self.first_seconds, 2), "update_seconds": self.update_seconds}

    @property
    def update_seconds(self) -> float | None:
        """Median time of an update without compilation; None if the first call made all of them."""
        return float(np.median(self.paces)) if self.paces else None

    def count(self) -> int:
        self.since = time.monotonic()
        if self.per_second is None:
            return 1
        return max(1, min(CHUNK, int(self.per_second * CALL_SECONDS)))

    def made(self, count: int) -> None:
        seconds = time.monotonic() - self.since
        if self.first_seconds == 0:
            self.first_seconds = seconds  # Mostly compilation.
            self.per_second = 1.0
        else:
            self.per_second = count / max(seconds, 1e-6)
            if count:
                self.paces.append(seconds / count)


@contextmanager
def _loggers(directory: RunDirectory, names: Sequence[str]) -> Iterator[Sequence[Any]]:
    loggers = open_loggers(names, directory.path, directory.run.tables())
    try:
        yield loggers
    finally:
        for logger in loggers:
            logger.close()


def _log(logger: Any, run: Run, first_update: int, rows: dict[str, np.ndarray]) -> None:
    for offset in range(len(next(iter(rows.values())))):
        values = {}
        for name, column in rows.items():
            for index, value in enumerate(column[offset]):
                label = name if run.seeds == 1 else f"{name}/seed{run.seed + index}"
                if not np.isnan(value):
                    values[label] = float(value)
        logger.log(first_update + offset, values)


def _compile_meanwhile(train: Train, run: Run) -> threading.Thread | None:
    """Compile the program of `advance` in a thread, while the state is initialised by another program.

    The thread makes no updates, from a state of zeros. A run on several devices goes without: its devices
    would have to execute the programs of both threads in the same order.
    """
    if train.mesh is not None or run.config.learning.updates == 0:
        return None

    def compile_program() -> None:
        # An error, as of too little memory, comes again when the program is called.
        with contextlib.suppress(Exception):
            shapes = jax.eval_shape(train.init, seed_keys(run))
            train.advance(jax.tree.map(_zeros, shapes), 0)

    # Not a daemon: Python waits for it when it exits, as an exit during compilation would abort.
    thread = threading.Thread(target=compile_program, name=COMPILATION)
    thread.start()
    return thread


def _zeros(leaf: jax.ShapeDtypeStruct) -> jax.Array:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), leaf.shape)
    return jnp.zeros(leaf.shape, leaf.dtype)


def _updates_of(state: TrainState) -> int:
    return int(np.max(jax.device_get(state.update)))


def _rows(progress: Progress, seeds: int) -> dict[str, np.ndarray]:
    """Metrics of the updates made, of shape `(updates, seeds)`."""
    count = int(progress.count)
    metrics = jax.device_get(progress.metrics)
    return {name: values[:count].reshape(count, seeds) for name, values in metrics.items()}


def _failure(bad: np.ndarray, run: Run, update: int) -> str:
    seed, quantity = (int(index[0]) for index in np.nonzero(bad))
    which = f" of seed {run.seed + seed}" if run.seeds > 1 else ""
    return (
        f"the {WATCHED[quantity]}{which} is not finite at update {update}: training stopped there, and the "
        f"state after update {update - 1} is stored."
    )


def _progress(directory: RunDirectory) -> str:
    status = directory.status
    if status is None:
        return "empty"
    if status.state == "finished":
        return "finished"
    done = max(directory.checkpoints.updates(), default=0)
    return f"partial ({status.state}, {done} of {directory.run.config.learning.updates} updates stored)"
