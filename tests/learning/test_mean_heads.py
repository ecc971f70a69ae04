"""Samples of 0: heads at the mean of the belief, in training, acting and evaluation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.cli.train import warn_of_inactive
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.runs.config import Run
from recurrent_laplace.sweeps.plan import canonical

AGENT = rl.AgentConfig(
    cell="elman", hidden_size=8, features=4, embedding_sizes=(8,), head_sizes=(8,), layer_norm=False
)
LEARNING = rl.LearningConfig(updates=2, steps=6, batch=4, training_samples=0, acting_samples=0, beta=0.1)
POSTERIORS = [rl.VariationalConfig(covariance="dense"), rl.LaplaceConfig()]
TASKS = [rl.Gridworld(size=3), rl.Regression()]


def trained(task, posterior, **changes):
    learning = dataclasses.replace(LEARNING, **changes)
    config = rl.Config(task=task, agent=AGENT, posterior=posterior, learning=learning)
    return config, rl.make_train(config)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("posterior", POSTERIORS, ids=lambda posterior: posterior.kind)
def test_loss_at_the_mean_depends_on_no_key(task, posterior):
    config, train = trained(task, posterior)
    objective = config.objective
    model = train.make_model(jax.random.key(0))
    batch = jax.jit(lambda model, key: objective.gather(model, mesh=None, key=key))(model, jax.random.key(1))
    batch = getattr(batch, "batch", batch)

    def losses(samples):
        learning = dataclasses.replace(config.learning, training_samples=samples)
        chosen = dataclasses.replace(config, learning=learning).objective
        schedule = rl.learning.objectives.base.Schedule(0, 2)
        loss = jax.jit(lambda model, key: chosen.loss(model, batch, schedule, key=key)[0])
        return [float(loss(model, jax.random.key(k))) for k in (2, 3)]

    at_mean, sampled = losses(0), losses(1)
    assert at_mean[0] == at_mean[1]
    assert sampled[0] != sampled[1]


@pytest.mark.parametrize("posterior", POSTERIORS, ids=lambda posterior: posterior.kind)
def test_acting_at_the_mean_depends_on_no_key(posterior):
    """Without chance in actions and world, only samples of the belief depend on the key."""
    config, train = trained(rl.Gridworld(size=3, start="corner"), posterior)
    agent, task = train.make_model(jax.random.key(0)), config.task
    problem = task.sample(jax.random.key(1))

    def experiences(samples):
        act = jax.jit(
            lambda key: rollout(agent, task, problem, steps=20, samples=samples, greedy=True, key=key)[0]
        )
        return [act(jax.random.key(key)) for key in (2, 3)]

    first, second = experiences(0)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, first, second))
    first, second = experiences(1)
    assert not np.array_equal(first.log_prob, second.log_prob)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_post_hoc_at_the_mean_is_the_network_itself(task):
    config, train = trained(task, rl.PointConfig())
    model = train(jax.random.key(0))[0].model
    bayesian = rl.with_posterior(model, rl.LaplaceConfig(), key=jax.random.key(1))
    options = rl.EvaluationConfig(tasks=3)
    plain, at_mean, sampled = (
        rl.evaluate(one, task, learning, options)
        for one, learning in (
            (model, config.learning),
            (bayesian, config.learning),
            (bayesian, rl.LearningConfig()),
        )
    )
    score = "cross_entropy" if task.name == "regression" else "return"
    # Before any input a Gaussian belief is its prior, with mean 0; a point is the network's first feature.
    first = 1 if task.name == "regression" else 0
    np.testing.assert_allclose(at_mean[score][:, first:], plain[score][:, first:], rtol=1e-12)
    if task.name == "regression":
        assert not np.allclose(sampled[score], plain[score])
        assert np.all(np.isnan(at_mean["disagreement"]))


@pytest.mark.parametrize("name", ["training_samples", "acting_samples"])
def test_negative_samples_are_refused(name):
    with pytest.raises(ValueError, match=rf"{name} must be .*; got -1"):
        dataclasses.replace(LEARNING, **{name: -1}).check()


def test_samples_of_a_point_are_said_to_have_no_effect_once(capsys):
    learning = dataclasses.replace(LEARNING, training_samples=3, acting_samples=5, beta=1e-2)
    run = Run(config=rl.Config(posterior=rl.PointConfig(), learning=learning))
    warn_of_inactive(run, rl.LearningConfig())
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "note: --training-samples, --acting-samples: no effect on RNN."


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_sweep_keeps_the_mean_of_a_post_hoc_run_where_it_matters(task):
    """Predictions depend on whether the model was trained at the mean, and on no other number of samples."""
    config = rl.Config(task=task, posterior=rl.LaplaceConfig(), learning=LEARNING)

    def kept(**changes):
        learning = dataclasses.replace(LEARNING, updates=0, **changes)
        return canonical(dataclasses.replace(config, learning=learning)).learning.training_samples

    assert kept() == (0 if task.name == "regression" else 1)
    assert kept(training_samples=5) == 1
