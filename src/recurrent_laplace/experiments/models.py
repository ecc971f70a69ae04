"""Models out of run directories."""

import operator

import jax
import jax.numpy as jnp
from jaxtyping import Array

from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.files import StorageError
from recurrent_laplace.experiments.storage import RunDirectory
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


def load_snapshot(directory: RunDirectory, snapshot: float) -> tuple[int, Agent | Regressor]:
    """The model of a run after a share of its updates, and how many those were.

    With several seeds every weight has a leading axis of seeds.
    """
    updates = directory.run.config.learning.updates
    update = int(snapshot * updates)
    there = directory.checkpoints.updates()
    if update not in there:
        kept = ", ".join(f"{done / max(updates, 1):g}" for done in there) or "none"
        raise StorageError(f"{directory.path} has no snapshot {snapshot:g}; it has: {kept}.")
    return update, load_state(directory, update).model


def per_seed(model: Agent | Regressor, run: Run) -> list[Agent | Regressor]:
    """The model of each seed."""
    if run.seeds == 1:
        return [model]
    return [jax.tree.map(operator.itemgetter(index), model) for index in range(run.seeds)]
