"""Training in a run directory that survives anything."""

import dataclasses
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.devices import Devices, share_out
from recurrent_laplace.experiments.display import Display
from recurrent_laplace.experiments.loggers import LOGGERS, open_loggers
from recurrent_laplace.experiments.models import load_state, seed_keys, snapshot_updates
from recurrent_laplace.experiments.processes import (
    ALONE,
    FINISHED,
    STATE,
    STOPPED,
    Group,
    LostProcessError,
)
from recurrent_laplace.experiments.provenance import describe_session, now, read_sessions, write_sessions
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import METRICS_SCHEMA, metrics_frame, read_table, write_table
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning.train import CHUNK, WATCHED, Progress, Train, TrainState, make_train

CALL_SECONDS = 1.0
"""A compiled call makes as many updates as fit in this time: so often is progress shown, and Ctrl-C heard."""


class TrainingFailedError(Exception):
    """Something was not finite; the message says what, and when."""


class InterruptedRunError(Exception):
    """Stopped by the user, with everything stored; the message says how to go on."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a run is carried out: nothing here changes its result, but for the order of sums over devices."""

    out: Path = Path("runs")
    """Folder that run directories are put in."""
    resume: bool = False
    """Begin the run if there is none, continue it if it is partial, and be content if it is finished."""
    checkpoint_seconds: float = 60.0
    """Time between checkpoints; there is one at 1/2, 3/4 and the end of training in any case."""
    log: tuple[str, ...] = ()
    """Also log to: tensorboard, wandb."""
    devices: Devices = "auto"
    """Devices that share out the seeds of a run, or the tasks of a batch; with several processes, of each.
    With auto: one, but for several seeds on a CPU, whose cores share them."""

    def check(self) -> None:
        """Refuse what cannot be carried out."""
        check_number("checkpoint_seconds", self.checkpoint_seconds, least=0)
        if self.devices != "auto":
            check_size("devices", self.devices)
        for name in self.log:
            check_choice("logger", name, tuple(LOGGERS))


Initial = Callable[[Train], TrainState]
"""Makes the state before the first update."""


def begin(train: Train, run: Run) -> TrainState:
    """A freshly initialised state."""
    return train.init(seed_keys(run))


def train_run(
    run: Run, options: RunOptions, initial: Initial | None = None, *, group: Group = ALONE
) -> RunDirectory:
    """Train, in the run's directory under `options.out`, from where it stands to the end."""
    train = _prepare(run, options, group)
    with group.led():
        return _lead(run, options, train, initial, group)


def follow_run(run: Run, options: RunOptions, *, group: Group) -> None:
    """Have a share in a run that process 0 of `group` leads by `train_run`, and touch no file."""
    train = _prepare(run, options, group)
    state = begin(train, run)  # Of its values nothing is used.
    with _graceful() as stop, group.watched():
        while True:
            order = group.hear(stop=stop.requested)
            if order == FINISHED:
                return
            if order == STOPPED:
                raise InterruptedRunError("process 0 stopped, and says why.")
            if order == STATE:
                state = group.share(state, train.mesh)
            else:
                state, _ = train.advance(state, order)


def _prepare(run: Run, options: RunOptions, group: Group) -> Train:
    # First of all: what is wrong with the options is then wrong in all processes.
    group.check_same(f"{run.id} on {options.devices} devices")
    run.check()
    options.check()
    mesh, shared = share_out(options.devices, run.seeds)
    return make_train(run.config, mesh=mesh, shared=shared)


def _lead(run: Run, options: RunOptions, train: Train, initial: Initial | None, group: Group) -> RunDirectory:
    directory = RunDirectory.at(options.out, run)
    check_free(directory, options)
    status = directory.status
    if status is not None and status.word == "finished":
        return directory
    with directory.taken(), _loggers(directory, options.log) as loggers:
        session = describe_session()
        sessions = [*read_sessions(directory.provenance_path), session]
        state, history = _load(directory, train, initial)
        # From here on something may change: before, what could not be read is left as it was.
        write_sessions(directory.provenance_path, sessions)
        directory.set_status("running")
        try:
            _train(directory, options, train, state, history, loggers, session, group)
        except (TrainingFailedError, InterruptedRunError, LostProcessError) as end:
            word = "failed" if isinstance(end, TrainingFailedError) else "interrupted"
            directory.log(str(end))
            directory.set_status(word, str(end))
            raise
        else:
            directory.set_status("finished")
        finally:
            session["ended"] = now()
            write_sessions(directory.provenance_path, sessions)
    return directory


def check_free(directory: RunDirectory, options: RunOptions) -> None:
    """Refuse a run that was begun already, unless it is to be resumed."""
    if directory.status is not None and not options.resume:
        raise StorageError(
            f"{directory.path} exists already and is {_standing(directory)}: "
            "add --resume to continue it, or to accept it if it is finished."
        )


def _load(directory: RunDirectory, train: Train, initial: Initial | None) -> tuple[TrainState, pl.DataFrame]:
    """The newest state, and the metrics up to it."""
    there = directory.checkpoints.updates()
    if not there:
        state = begin(train, directory.run) if initial is None else initial(train)
        return state, pl.DataFrame(schema=METRICS_SCHEMA)
    state = load_state(directory, there[-1], train)
    history = read_table(directory.metrics_path, METRICS_SCHEMA)
    history = history.filter(pl.col("update") <= there[-1])
    if history["update"].n_unique() != there[-1]:
        raise StorageError(
            f"{directory.metrics_path} is damaged: it has {history['update'].n_unique()} of the {there[-1]} "
            "updates before the newest checkpoint."
        )
    return state, history


def _train(
    directory: RunDirectory,
    options: RunOptions,
    train: Train,
    state: TrainState,
    history: pl.DataFrame,
    loggers: Sequence[Any],
    session: dict[str, Any],
    group: Group,
) -> None:
    run = directory.run
    updates = run.config.learning.updates
    done = _updates_of(state)
    directory.log(f"begins at update {done} of {updates}" if done else f"begins: {updates} updates")

    book = _Book(directory, history)
    if done == updates:  # A post-hoc run has nothing to learn, and nothing to show.
        book.store(done, state)
        return
    headline = "return" if hasattr(state.model, "policy_head") else "loss"
    pace = _Pace()
    with (
        _graceful() as stop,
        Display(run.id, total=updates, start=done, headline=headline) as display,
        group.watched(),
    ):
        group.say(STATE)
        state = group.share(state, train.mesh)
        while done < updates:
            boundary = next(mark for mark in snapshot_updates(updates) if mark > done)
            until = min(done + pace.count(), boundary)
            stop.requested |= group.say(until, stop=stop.requested)
            state, progress = train.advance(state, until)
            rows = _rows(progress, run.seeds)
            count = len(next(iter(rows.values())))
            pace.made(count)
            if count:
                book.add(done + 1, rows)
                for logger in loggers:
                    _log(logger, run, done + 1, rows)
                display.update(done + count, {name: _mean(values) for name, values in rows.items()})
            done += count
            bad = ~np.asarray(progress.finite).reshape(run.seeds, len(WATCHED))
            if bad.any():
                book.store(done, state)
                raise TrainingFailedError(_what_failed(bad, run, done + 1))
            if done in snapshot_updates(updates) or book.seconds_since() >= options.checkpoint_seconds:
                book.store(done, state)
            if stop.requested and done < updates:
                book.store(done, state)
                raise InterruptedRunError(
                    f"stopped at update {done} of {updates}: the same command with --resume continues it."
                )
        book.store(done, state)
        session["updates"] = done
        session["compile_seconds"] = round(pace.first_seconds, 2)
        session["update_seconds"] = pace.update_seconds
        directory.log(f"finished {updates} updates")


class _Book:
    """Metrics and states of a run: stored together, metrics first, so that none is ever missing."""

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
    """How many updates to ask for, so that a call takes about `CALL_SECONDS`."""

    def __init__(self):
        self.per_second: float | None = None
        self.first_seconds = 0.0
        self.since = time.monotonic()
        self.paces: list[float] = []

    @property
    def update_seconds(self) -> float | None:
        """Seconds of an update, compilation aside; None if all were made by the first call."""
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


class _Stop:
    requested = False


@contextmanager
def _graceful() -> Iterator[_Stop]:
    """Turn the first Ctrl-C (or a cluster's SIGTERM) into a request; the second acts at once."""
    stop = _Stop()
    before = {}

    def request(number: int, frame: Any) -> None:
        del frame
        if stop.requested:
            signal.signal(number, before[number])
            raise KeyboardInterrupt
        stop.requested = True

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, request)
    except ValueError:  # Not in the main thread: signals go elsewhere.
        pass
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _updates_of(state: TrainState) -> int:
    return int(np.max(jax.device_get(state.update)))


def _rows(progress: Progress, seeds: int) -> dict[str, np.ndarray]:
    """Metrics of the updates that were made, of shape `(updates, seeds)`."""
    count = int(progress.count)
    metrics = jax.device_get(progress.metrics)
    return {name: values[:count].reshape(count, seeds) for name, values in metrics.items()}


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=1)


def _what_failed(bad: np.ndarray, run: Run, update: int) -> str:
    seed, quantity = (int(index[0]) for index in np.nonzero(bad))
    which = f" of seed {run.seed + seed}" if run.seeds > 1 else ""
    return (
        f"the {WATCHED[quantity]}{which} is not finite at update {update}: training stopped there, and the "
        f"state after update {update - 1} is stored."
    )


def _standing(directory: RunDirectory) -> str:
    status = directory.status
    if status is None:
        return "empty"
    if status.word == "finished":
        return "finished"
    there = directory.checkpoints.updates()
    done = there[-1] if there else 0
    return f"partial ({status.word}, {done} of {directory.run.config.learning.updates} updates stored)"
