"""Models out of run directories."""

import math
import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array

from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning import Train, TrainState, make_train
from recurrent_laplace.models import Agent, Regressor


def seed_keys(run: Run) -> Array:
    """The key of each seed; one alone has no axis of seeds."""
    if run.seeds == 1:
        return jax.random.key(run.seed)
    return jax.vmap(jax.random.key)(run.seed + jnp.arange(run.seeds))


def snapshot_updates(updates: int) -> tuple[int, ...]:
    """Where states are kept for good: after 1/2 and 3/4 of the updates, and at the end."""
    return (updates // 2, 3 * updates // 4, updates)


def load_state(directory: RunDirectory, update: int, train: Train | None = None) -> TrainState:
    """The state of a run after some number of updates."""
    train = make_train(directory.run.config) if train is None else train
    like = jax.eval_shape(train.init, seed_keys(directory.run))
    return directory.checkpoints.load(update, like)


def load_model(
    directory: RunDirectory, *, update: int | None = None, seed_index: int = 0
) -> Agent | Regressor:
    """The model of one seed of a run, after some number of updates: the newest by default."""
    there = directory.checkpoints.updates()
    if not there:
        raise StorageError(f"{directory.path} has no checkpoint yet: train it first.")
    if not 0 <= seed_index < directory.run.seeds:
        raise StorageError(
            f"{directory.path} has {directory.run.seeds} seeds; there is no number {seed_index}."
        )
    state = load_state(directory, there[-1] if update is None else update)
    return per_seed(state.model, directory.run)[seed_index]


def find_snapshot(directory: RunDirectory, snapshot: float) -> int:
    """The number of updates of a stored state, from the share of all updates that they are."""
    updates = directory.run.config.learning.updates
    asked = int(snapshot * updates) if math.isfinite(snapshot) else None
    there = directory.checkpoints.updates()
    shares = {done: done / max(updates, 1) for done in there}
    for done, share in shares.items():
        # 0.5 also means the state after 1 of 3 updates; and shares are printed rounded.
        if done == asked or abs(share - snapshot) < 1e-5:
            return done
    kept = ", ".join(f"{share:g}" for share in shares.values()) or "none"
    raise StorageError(f"{directory.path} has no snapshot {snapshot:g}; it has: {kept}.")


def per_seed(model: Agent | Regressor, run: Run) -> list[Agent | Regressor]:
    """The model of each seed."""
    if run.seeds == 1:
        return [model]
    return [jax.tree.map(operator.itemgetter(index), model) for index in range(run.seeds)]
