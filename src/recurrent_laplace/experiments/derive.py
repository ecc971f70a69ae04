"""Runs that come from other runs: fine-tuned, or under another posterior."""

import dataclasses

import jax
from jaxtyping import Array

from recurrent_laplace.experiments.config import Parent, Run
from recurrent_laplace.experiments.models import find_snapshot, load_state, seed_keys
from recurrent_laplace.experiments.runner import RunOptions, train_run
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import PosteriorConfig, with_posterior


def derive(
    parent: RunDirectory,
    posterior: PosteriorConfig,
    learning: LearningConfig,
    *,
    snapshot: float,
    options: RunOptions,
) -> RunDirectory:
    """Continue a snapshot of `parent` under another posterior, with a fresh optimiser.

    `learning.updates` of 0 makes a post-hoc run: the parent's weights, unchanged.
    """
    return carry_out(derived_run(parent, posterior, learning, snapshot=snapshot), parent, options)


def derived_run(
    parent: RunDirectory, posterior: PosteriorConfig, learning: LearningConfig, *, snapshot: float
) -> Run:
    """What `derive` would run."""
    return Run(
        config=dataclasses.replace(parent.run.config, posterior=posterior, learning=learning),
        seed=parent.run.seed,
        seeds=parent.run.seeds,
        parent=Parent(run=parent.run.id, snapshot=find_snapshot(parent, snapshot)),
    )


def carry_out(run: Run, parent: RunDirectory, options: RunOptions) -> RunDirectory:
    """Run what was derived from `parent`."""
    assert run.parent is not None
    update, posterior = run.parent.snapshot, run.config.posterior
    model = load_state(parent, update).model
    # Other tasks than those that the parent has learned from.
    keys = jax.random.split if run.seeds == 1 else jax.vmap(jax.random.split, out_axes=1)
    key_head, key_train = keys(_fold(seed_keys(run), update))
    build = lambda model, key: with_posterior(model, posterior, key=key)  # noqa: E731
    model = (build if run.seeds == 1 else jax.vmap(build))(model, key_head)
    return train_run(run, options, lambda train: train.start_from(model, key_train))


def remaining_updates(parent: RunDirectory, snapshot: float) -> int:
    """The updates that the parent still had to make."""
    return parent.run.config.learning.updates - find_snapshot(parent, snapshot)


def _fold(key: Array, number: int) -> Array:
    fold = jax.random.fold_in
    return fold(key, number) if key.ndim == 0 else jax.vmap(fold, (0, None))(key, number)
