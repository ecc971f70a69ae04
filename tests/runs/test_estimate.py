"""Estimates: nothing is computed, and they grow with what they should grow with."""

import dataclasses

import jax
import pytest

import recurrent_laplace as rl
from recurrent_laplace.models.posterior_config import POSTERIORS, posterior_class
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.estimate import estimate, parameters

BASE = Run(
    config=rl.Config(
        task=rl.Gridworld(),
        agent=rl.AgentConfig(hidden_size=16, features=8, embedding_sizes=(16,), head_sizes=(16,)),
        posterior=rl.LaplaceConfig(covariance="dense"),
        learning=rl.LearningConfig(updates=100, steps=20, batch=8),
    )
)


def changed(run: Run, section: str, **fields) -> Run:
    part = dataclasses.replace(getattr(run.config, section), **fields)
    return dataclasses.replace(run, config=dataclasses.replace(run.config, **{section: part}))


def test_parameters_are_those_of_the_model():
    model = rl.make_train(BASE.config).make_model(jax.random.key(0))
    assert parameters(BASE) == sum(leaf.size for leaf in jax.tree.leaves(model))


@pytest.mark.parametrize(
    "more",
    [
        changed(BASE, "learning", updates=200),
        changed(BASE, "learning", batch=16),
        changed(BASE, "learning", steps=40),
        changed(BASE, "learning", epochs=4),
        changed(BASE, "agent", hidden_size=64),
        dataclasses.replace(BASE, seeds=4),
    ],
    ids=["updates", "batch", "steps", "epochs", "hidden_size", "seeds"],
)
def test_more_work_takes_more_time(more):
    assert estimate(more).seconds > estimate(BASE).seconds


def test_more_test_tasks_take_more_time_and_disk():
    for task in (rl.Gridworld(), rl.Regression()):
        run = dataclasses.replace(BASE, config=dataclasses.replace(BASE.config, task=task))
        few, many = estimate(run), estimate(run, 1024)
        assert many.seconds > few.seconds
        assert many.disk > few.disk
        assert many.update_seconds == few.update_seconds


def test_memory_and_disk_grow_with_seeds_and_sizes():
    seeds, wide = dataclasses.replace(BASE, seeds=4), changed(BASE, "agent", hidden_size=64)
    for more in (seeds, wide):
        assert estimate(more).memory >= estimate(BASE).memory
        assert estimate(more).disk > estimate(BASE).disk


@pytest.mark.parametrize("kind", POSTERIORS)
@pytest.mark.parametrize("task", [rl.Gridworld(), rl.Regression()])
def test_every_kind_of_run_can_be_estimated(kind, task):
    posterior = posterior_class(kind)()
    run = dataclasses.replace(BASE, config=dataclasses.replace(BASE.config, posterior=posterior))
    cost = estimate(dataclasses.replace(run, config=dataclasses.replace(run.config, task=task)))
    assert cost.seconds > 0
    assert cost.disk > 0
