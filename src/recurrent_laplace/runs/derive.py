"""Derived runs: fine-tuned, or post hoc under another posterior."""

import dataclasses

import jax
from jaxtyping import Array

from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import AbstractPosteriorConfig, with_posterior
from recurrent_laplace.runs.config import Parent, Run, Tables
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import find_snapshot, load_weights, seed_keys
from recurrent_laplace.runs.runner import RunOptions, train_run


def derive(
    parent: RunDirectory,
    posterior: AbstractPosteriorConfig,
    learning: LearningConfig,
    *,
    unused: Tables | None = None,
    snapshot: float,
    options: RunOptions,
) -> RunDirectory:
    """Continue from a snapshot of `parent` under another posterior, with a fresh optimiser.

    With `learning.updates` of 0 the run is post hoc: the parent's weights, unchanged. `unused` are options of
    other posteriors, which are part of the run's identity.
    """
    run = dataclasses.replace(
        derived_run(parent, posterior, learning, snapshot=snapshot), unused=unused or {}
    )
    return run_derived(run, parent, options)


def derived_run(
    parent: RunDirectory, posterior: AbstractPosteriorConfig, learning: LearningConfig, *, snapshot: float
) -> Run:
    """Description of the run that `derive` executes."""
    return Run(
        config=dataclasses.replace(parent.run.config, posterior=posterior, learning=learning),
        seed=parent.run.seed,
        seeds=parent.run.seeds,
        parent=Parent(run=parent.run.id, snapshot=find_snapshot(parent, snapshot)),
    )


def run_derived(run: Run, parent: RunDirectory, options: RunOptions) -> RunDirectory:
    """Execute a run that was derived from `parent`."""
    assert run.parent is not None
    update, posterior = run.parent.snapshot, run.config.posterior
    model = load_weights(parent, update)
    # Folding in the update gives other tasks than those that the parent was trained on.
    keys = jax.random.split if run.seeds == 1 else jax.vmap(jax.random.split, out_axes=1)
    key_head, key_train = keys(_fold(seed_keys(run), update))
    scheme = run.config.agent.initialization
    build = lambda model, key: with_posterior(model, posterior, initialization=scheme, key=key)  # noqa: E731
    model = (build if run.seeds == 1 else jax.vmap(build))(model, key_head)
    return train_run(run, options, lambda train: train.start_from(model, key_train))


def remaining_updates(parent: RunDirectory, snapshot: float) -> int:
    """Number of updates of the parent after a snapshot."""
    return parent.run.config.learning.updates - find_snapshot(parent, snapshot)


def _fold(key: Array, number: int) -> Array:
    fold = jax.random.fold_in
    return fold(key, number) if key.ndim == 0 else jax.vmap(fold, (0, None))(key, number)
