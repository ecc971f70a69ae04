"""Continuous actions in rollouts, evaluation, monitored episodes and shifts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tasks import Aim

import recurrent_laplace as rl
from recurrent_laplace.evaluation.play import play_task
from recurrent_laplace.evaluation.shifts.scores import continuous_disagreement
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.monitoring.readings import policy_kl
from recurrent_laplace.tasks.shifts import Shifted

KEY = jax.random.key(0)
SMALL = rl.AgentConfig(
    cell="elman", hidden_size=4, features=3, embedding_sizes=(4,), head_sizes=(4,), layer_norm=False
)
SQUASHED = dataclasses.replace(SMALL, action_distribution="tanh_gaussian", action_stddev="state")
LEARNING = rl.LearningConfig(acting_samples=3)
LAPLACE = rl.LaplaceConfig(covariance="diagonal")


@functools.cache
def agent_of(task, config=SMALL):
    return rl.Config(task=task, agent=config, posterior=LAPLACE).objective.make_model(KEY)


@pytest.mark.parametrize(("config", "policy"), [(SQUASHED, "average"), (SMALL, "mixture")])
def test_experience_has_the_action_of_each_choice_and_its_density(config, policy):
    task = Aim()
    agent = agent_of(task, config)
    options = {"steps": 7, "samples": 3, "policy": policy, "with_policy": True, "with_readings": True}
    run = jax.jit(lambda key: rollout(agent, task, task.sample(key), **options, key=key))
    experience, readings = run(KEY)
    family = agent.family
    np.testing.assert_allclose(experience.action, family.action(experience.choice), rtol=1e-10)
    np.testing.assert_allclose(experience.log_prob, experience.policy.log_prob(experience.choice), rtol=1e-10)
    np.testing.assert_allclose(readings.policy_entropy, experience.policy.entropy(), rtol=1e-10)
    assert np.isnan(experience.previous_action[0]).all()
    np.testing.assert_array_equal(experience.previous_action[1:], experience.action[:-1])
    assert np.all(np.abs(experience.action) <= 2)
    assert len(np.unique(experience.action)) == experience.action.size


def test_evaluation_and_its_refusals():
    task = rl.LQG()
    table = rl.evaluate(agent_of(task), task, LEARNING, rl.EvaluationConfig(tasks=2, greedy=True))
    assert all(np.isfinite(table[name][:, 1:]).all() for name in table)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        rl.evaluate(agent_of(Aim()), task, LEARNING, rl.EvaluationConfig(tasks=2))
    assert str(refused.value) == (
        "task 'lqg' has observations of size 1 and continuous actions between (-inf) and (inf); "
        "this agent was trained with 2 and continuous actions between (-2, -2) and (2, 2)."
    )
    with pytest.raises(ValueError, match=r"of size 2 and continuous .* trained with 1 and 2 actions\.$"):
        rl.evaluate(agent_of(rl.TwoArmBandit()), Aim(), LEARNING, rl.EvaluationConfig(tasks=2))


def test_monitored_episodes_have_the_actions_and_readings_of_the_policy():
    task = Aim()
    agent = agent_of(task, SQUASHED)
    _, (episode, _) = play_task(agent, task, LEARNING, episodes=2, steps=3, key=KEY)
    assert episode.actions == ["action_0", "action_1"]
    assert {"policy_entropy", "policy_disagreement", "policy_moved"} <= set(episode.readings)
    recording = rl.Recording.of(episode)
    assert recording.actions.shape == (3, 2)
    assert np.all(np.abs(recording.actions) <= 2)


def test_shifted_actions():
    task = rl.LQG()
    for shift, factor in {"remapped_actions": -1.0, "horizon": 1.0}.items():
        shifted = Shifted(base=task, shift=shift, at=1)
        assert shifted.action_space == task.action_space
        problem = shifted.sample(KEY)
        state, _ = shifted.reset(problem, KEY)
        state, _ = shifted.step(problem, state, jnp.array([1.0]), KEY)
        _, step = shifted.step(problem, state, jnp.array([1.0]), KEY)
        next_state = task.persistence * state.world + factor + problem.before.disturbance
        np.testing.assert_allclose(step.regret, next_state**2, rtol=1e-10)


def test_disagreement_is_the_mean_kl_from_the_gaussian_of_their_moments():
    family = Aim().action_space.family(SMALL)
    means, log_stddevs = jax.random.normal(KEY, (2, 3, 1, 1, 2))
    policies = [rl.GaussianPolicy(*each, family) for each in zip(means, log_stddevs, strict=True)]
    mean = means.mean(axis=0)[0, 0]
    variance = (jnp.exp(2 * log_stddevs) + means**2).mean(axis=0)[0, 0] - mean**2
    average = mean, 0.5 * jnp.log(variance)
    kls = [policy_kl((p.mean[0, 0], p.log_stddev[0, 0]), average) for p in policies]
    np.testing.assert_allclose(continuous_disagreement(policies), [[np.mean(kls)]], rtol=1e-10)
