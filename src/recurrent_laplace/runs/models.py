"""Models and training states of run directories."""

import operator

import jax
import numpy as np
from jaxtyping import Array

from recurrent_laplace.files import DamagedError, StorageError
from recurrent_laplace.learning import Train, TrainState, make_train
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory


def seed_keys(run: Run) -> Array:
    """Keys of the seeds of a run; a single seed has no axis of seeds."""
    if run.seeds == 1:
        return jax.random.key(run.seed)
    return jax.vmap(jax.random.key)(run.seed + np.arange(run.seeds, dtype=np.uint32))


def snapshot_updates(updates: int) -> tuple[int, ...]:
    """Updates whose checkpoints are kept: at 1/2, 3/4 and the end of training."""
    return (updates // 2, 3 * updates // 4, updates)


def load_state(directory: RunDirectory, update: int, train: Train) -> TrainState:
    """Training state of a run at a stored update."""
    like = jax.eval_shape(train.init, seed_keys(directory.run))
    return directory.checkpoints.load(update, like)


def load_optimizer_state(directory: RunDirectory, update: int) -> TrainState:
    """Training state of a run whose optimiser is to be continued."""
    if not directory.checkpoints.has(update, "optimizer."):
        raise StorageError(
            f"{directory.path} has no state of the optimiser at update {update}: fine-tune with a fresh one "
            "(--fresh-optimizer, or fresh_optimizer = true in the stage of a sweep)."
        )
    return load_state(directory, update, make_train(directory.run.config))


def load_weights(directory: RunDirectory, update: int) -> Agent | Regressor:
    """Model of a run at a stored update; several seeds form a leading axis."""
    run = directory.run
    make_model = run.config.objective.make_model
    like = {"model": jax.eval_shape(make_model if run.seeds == 1 else jax.vmap(make_model), seed_keys(run))}
    try:
        return directory.checkpoints.load(update, like, prefix="model.")["model"]
    except DamagedError as problem:
        raise DamagedError(f"{problem} {directory.retrain_command()} restores it.") from problem


def load_model(
    directory: RunDirectory, *, update: int | None = None, seed_index: int = 0
) -> Agent | Regressor:
    """Model of one seed of a run at a stored update, the newest by default."""
    if not 0 <= seed_index < directory.run.seeds:
        raise StorageError(
            f"{directory.path} has {directory.run.seeds} seeds; there is no number {seed_index}."
        )
    model = load_weights(directory, directory.newest_update() if update is None else update)
    return per_seed(model, directory.run)[seed_index]


def find_snapshot(directory: RunDirectory, snapshot: float) -> int:
    """Update of a stored checkpoint, from the fraction of all updates made before it."""
    updates = directory.run.config.learning.updates
    requested = int(snapshot * updates) if 0 <= snapshot <= 1 else None
    fractions = {update: update / max(updates, 1) for update in directory.checkpoints.updates()}
    for update, fraction in fractions.items():
        # 0.5 also means the state after 1 of 3 updates, and fractions are printed rounded.
        if update == requested or abs(fraction - snapshot) < 1e-5:
            return update
    if (requested == updates and directory.is_finished) or not fractions:
        directory.newest_update()  # Says why there is none, and what to do.
    kept = ", ".join(f"{fraction:g}" for fraction in fractions.values()) or "none"
    raise StorageError(f"{directory.path} has no snapshot {snapshot:g}; it has: {kept}.")


def per_seed(model: Agent | Regressor, run: Run) -> list[Agent | Regressor]:
    """Models of the individual seeds."""
    if run.seeds == 1:
        return [model]
    return [jax.tree.map(operator.itemgetter(index), model) for index in range(run.seeds)]
