"""Derived runs: fine-tuned, or post hoc under another posterior."""

import dataclasses

import jax
from jaxtyping import Array

from recurrent_laplace.learning import LearningConfig, Train, TrainState
from recurrent_laplace.models import AbstractPosteriorConfig, with_posterior
from recurrent_laplace.runs.config import Parent, Run, Tables
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import find_snapshot, load_optimizer_state, load_weights, seed_keys
from recurrent_laplace.runs.origin import check_origin
from recurrent_laplace.runs.runner import RunOptions, train_run


def derive(
    parent: RunDirectory,
    posterior: AbstractPosteriorConfig,
    learning: LearningConfig,
    *,
    unused: Tables | None = None,
    snapshot: float,
    fresh_optimizer: bool = False,
    options: RunOptions,
) -> RunDirectory:
    """Continue from a snapshot of `parent` under another posterior.

    Update k of the run sees the tasks and the schedules of the parent's update `snapshot + k`, and starts
    from the state of its optimiser; with `fresh_optimizer`, all of them are fresh. With `learning.updates` of
    0 the run is post hoc: the parent's weights, unchanged. `unused` are options of other posteriors, which
    are part of the run's identity.
    """
    run = derived_run(parent, posterior, learning, snapshot=snapshot, fresh_optimizer=fresh_optimizer)
    return run_derived(dataclasses.replace(run, unused=unused or {}), parent, options)


def derived_run(
    parent: RunDirectory,
    posterior: AbstractPosteriorConfig,
    learning: LearningConfig,
    *,
    snapshot: float,
    fresh_optimizer: bool = False,
) -> Run:
    """Description of the run that `derive` executes."""
    link = link_to(
        parent.run, find_snapshot(parent, snapshot), learning.updates, fresh_optimizer=fresh_optimizer
    )
    return Run(
        config=dataclasses.replace(parent.run.config, posterior=posterior, learning=learning),
        seed=parent.run.seed,
        seeds=parent.run.seeds,
        parent=link,
    )


def link_to(parent: Run, snapshot: int, updates: int, *, fresh_optimizer: bool) -> Parent:
    """Link of a run of `updates` updates to its parent; without updates there is nothing to continue."""
    start = 0 if fresh_optimizer or not updates else parent.start + snapshot
    return Parent(run=parent.id, snapshot=snapshot, start=start)


def run_derived(run: Run, parent: RunDirectory, options: RunOptions) -> RunDirectory:
    """Execute a run that was derived from `parent`."""
    assert run.parent is not None
    check_origin(parent)
    update, posterior = run.parent.snapshot, run.config.posterior
    model = load_weights(parent, update)
    state = load_optimizer_state(parent, update) if run.start else None
    # Folding in the update gives other tasks than those that the parent was trained on.
    keys = jax.random.split if run.seeds == 1 else jax.vmap(jax.random.split, out_axes=1)
    key_head, key_train = keys(_fold(seed_keys(run), update))
    scheme = run.config.agent.initialization
    build = lambda model, key: with_posterior(model, posterior, initialization=scheme, key=key)  # noqa: E731
    model = (build if run.seeds == 1 else jax.vmap(build))(model, key_head)

    def initial(train: Train) -> TrainState:
        if state is None:
            return train.start_from(model, key_train)
        return train.continue_from(state, model)

    return train_run(run, options, initial)


def remaining_updates(parent: RunDirectory, snapshot: float) -> int:
    """Number of updates of the parent after a snapshot."""
    return parent.run.config.learning.updates - find_snapshot(parent, snapshot)


def _fold(key: Array, number: int) -> Array:
    fold = jax.random.fold_in
    return fold(key, number) if key.ndim == 0 else jax.vmap(fold, (0, None))(key, number)
