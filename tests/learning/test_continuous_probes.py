"""Are continuous actions learned? In worlds whose best action, or the policy's spread, is known."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import probes

import recurrent_laplace as rl
from recurrent_laplace.learning.rollout import rollout

# Compiled in a third of the time, since the code is run once or twice only.
compiled = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})

AGENT = rl.AgentConfig(
    cell="gru", hidden_size=16, features=8, embedding_sizes=(16,), head_sizes=(16,), layer_norm=False
)
LEARNING = rl.LearningConfig(
    updates=300,
    steps=6,
    batch=64,
    learning_rate=1e-2,
    final_learning_rate=1e-3,
    entropy_weight=0.3,
    acting_samples=2,
)
SQUASHED = dataclasses.replace(AGENT, action_distribution="tanh_gaussian", action_stddev="state")
LAPLACE = rl.LaplaceConfig(covariance="diagonal", accumulate="precision")
LEARNERS = {
    "ppo": (AGENT, rl.PointConfig(), LEARNING),
    "ppo-squashed": (SQUASHED, LAPLACE, LEARNING),
    "vmpo": (AGENT, LAPLACE, dataclasses.replace(LEARNING, objective="vmpo", epochs=2)),
}
TESTED = 500
TARGET, TARGETS, HIDDEN, NOISE = 0.7, (-1.0, 1.0), 0.5, 0.5
PROBES = {
    "target": probes.target(TARGET),
    "target-by-observation": probes.target_by_observation(TARGETS),
    "target-by-memory": probes.target_by_memory(TARGETS, always_pays=True),
    "target-by-belief": probes.target_by_belief(HIDDEN, NOISE),
}
CUE_ALONE = {"target-by-memory": probes.target_by_memory(TARGETS, always_pays=False)}

# The first of each learner compiles all of its probes in one program.
each_learner = pytest.mark.parametrize(
    "learner", ["ppo", pytest.param("ppo-squashed", marks=pytest.mark.slow), "vmpo"]
)


@functools.cache
def learned(learner):
    """What an agent does in each probe after training in it: greedily, in problems it has not met."""
    agent, posterior, learning = LEARNERS[learner]

    def learn_and_act(world, key):
        key_train, key_problems, key_act = jax.random.split(key, 3)
        config = rl.Config(task=world, agent=agent, posterior=posterior, learning=learning)
        state, _ = rl.make_train(config)(key_train)

        def act(problem, key):
            options = {"steps": learning.steps, "samples": 30, "greedy": True, "with_policy": True}
            return rollout(state.model, world, problem, **options, key=key)[0]

        problems = jax.vmap(world.sample)(jax.random.split(key_problems, TESTED))
        return jax.vmap(act)(problems, jax.random.split(key_act, TESTED))

    # The entropy of a squashed policy falls towards its bounds, so the bonus does not take it there.
    own = PROBES | (CUE_ALONE if learner != "ppo" else {})
    worlds = jax.tree.map(lambda *tables: jnp.stack(tables), *own.values())
    keys = jax.random.split(jax.random.key(0), len(PROBES))
    experience = jax.tree.map(np.asarray, compiled(jax.vmap(learn_and_act))(worlds, keys))
    return {name: jax.tree.map(lambda leaf, i=i: leaf[i], experience) for i, name in enumerate(PROBES)}


@each_learner
def test_the_target_is_hit(learner):
    experience = learned(learner)["target"]
    np.testing.assert_allclose(experience.action, TARGET, atol=0.1)


def test_spread_of_the_policy_is_that_of_the_entropy_bonus():
    """`-s^2 + w log s` is greatest at `s = sqrt(w / 2)`, and every step then costs `s^2`."""
    experience = learned("ppo")["target"]
    stddev = 2 * np.exp(experience.policy.log_stddev)
    expected = np.sqrt(LEARNING.entropy_weight / 2)
    np.testing.assert_allclose(stddev, expected, rtol=0.15)
    np.testing.assert_allclose(experience.value, -(expected**2), atol=0.04)


@each_learner
def test_the_target_depends_on_what_is_seen(learner):
    experience = learned(learner)["target-by-observation"]
    expected = np.array(TARGETS)[experience.observation[..., :2].argmax(axis=-1)]
    np.testing.assert_allclose(experience.action[..., 0], expected, atol=0.2)


@each_learner
def test_a_cue_is_remembered(learner):
    experience = learned(learner)["target-by-memory"]
    cue = experience.observation[:, ::3, :2].argmax(axis=-1)
    np.testing.assert_allclose(experience.action[:, 2::3, 0], np.array(TARGETS)[cue], atol=0.3)


@each_learner
def test_what_is_seen_is_turned_into_a_belief(learner):
    """The best action is the posterior mean, whose squared error is the posterior variance."""
    experience = learned(learner)["target-by-belief"]
    cost = experience.regret.sum(axis=-1)
    precision = 1 / HIDDEN**2 + np.arange(1, LEARNING.steps + 1) / NOISE**2
    best, memoryless = np.sum(1 / precision), LEARNING.steps / precision[0]
    error = 5 * cost.std() / np.sqrt(TESTED)
    assert cost.mean() > best - error
    # Less than half of what a forgetful agent loses, after so few updates.
    assert cost.mean() - best < (memoryless - best) / 2
