"""Does it learn? In worlds where the value, or the best return, is known in closed form."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import probes

import recurrent_laplace as rl
from recurrent_laplace.learning.objectives.regression import first_belief
from recurrent_laplace.learning.rollout import rollout

# Compiled in a third of the time, since the code is run once or twice only.
compiled = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})

AGENT = rl.AgentConfig(
    cell="gru", hidden_size=16, features=8, embedding_sizes=(16,), head_sizes=(16,), layer_norm=False
)
LEARNING = rl.LearningConfig(
    updates=200,
    steps=6,
    batch=32,
    learning_rate=1e-2,
    final_learning_rate=1e-3,
    entropy_weight=0.02,
    acting_samples=2,
)
POSTERIORS = {
    "point": rl.PointConfig(),
    "laplace": rl.LaplaceConfig(covariance="diagonal", accumulate="precision"),
    "variational": rl.VariationalConfig(covariance="diagonal"),
    "conjugate": rl.ConjugateConfig(),
}
BETAS = {"conjugate": 1e-3}
"""A larger weight on the KL keeps the precisions of the factors, which are small at first, from growing."""
TESTED = 500
PAY, PAYS, CHANCE = 0.1, (1.0, -0.5), 0.9
PROBES = {
    "constant-reward": probes.constant_reward(PAY),
    "reward-by-observation": probes.reward_by_observation(PAYS),
    "two-steps": probes.two_steps(1.0),
    "reward-by-action": probes.reward_by_action(),
    "needs-memory": probes.needs_memory(),
    "needs-belief": probes.needs_belief(CHANCE),
}
FOR_ALL_POSTERIORS = ("reward-by-action", "needs-belief")

each_posterior = pytest.mark.parametrize("posterior", POSTERIORS)


@functools.cache
def learned(posterior):
    """What an agent does in each probe after training in it: greedily, in problems it has not met.

    The tables are data: all probes are one program.
    """
    names = tuple(PROBES) if posterior == "point" else FOR_ALL_POSTERIORS

    def learn_and_act(world, key):
        key_train, key_problems, key_act = jax.random.split(key, 3)
        learning = dataclasses.replace(LEARNING, beta=BETAS.get(posterior, LEARNING.beta))
        config = rl.Config(task=world, agent=AGENT, posterior=POSTERIORS[posterior], learning=learning)
        state, _ = rl.make_train(config)(key_train)

        def act(problem, key):
            options = {"steps": LEARNING.steps, "samples": 30, "greedy": True}
            return rollout(state.model, world, problem, **options, key=key)[0]

        problems = jax.vmap(world.sample)(jax.random.split(key_problems, TESTED))
        return jax.vmap(act)(problems, jax.random.split(key_act, TESTED))

    worlds = jax.tree.map(lambda *tables: jnp.stack(tables), *(PROBES[name] for name in names))
    keys = jax.random.split(jax.random.key(0), len(names))
    experience = jax.tree.map(np.asarray, compiled(jax.vmap(learn_and_act))(worlds, keys))
    return {name: jax.tree.map(lambda leaf, i=i: leaf[i], experience) for i, name in enumerate(names)}


def assert_learned(values, expected):
    """To a twentieth: what is left after so few updates, far from any other answer in these worlds."""
    assert np.max(np.abs(values - expected)) < 0.05, (values.min(), values.max(), expected)


def by_observation(experience, observation):
    """Values at the steps that showed an observation."""
    return experience.value[:, :-1][experience.observation[..., observation] == 1]


# Values


@pytest.mark.slow
def test_value_of_a_constant_reward():
    """All that is to come, also after the last step of a task, which does not end the episode."""
    assert_learned(learned("point")["constant-reward"].value, PAY / (1 - LEARNING.discount))


def test_value_depends_on_what_is_seen():
    experience = learned("point")["reward-by-observation"]
    for observation, pay in enumerate(PAYS):
        assert_learned(by_observation(experience, observation), pay)


def test_value_of_a_reward_to_come_is_discounted():
    experience = learned("point")["two-steps"]
    assert_learned(by_observation(experience, 0), LEARNING.discount)
    assert_learned(by_observation(experience, 1), 1.0)


# Policies


@pytest.mark.slow
@each_posterior
def test_the_action_that_pays_is_chosen(posterior):
    experience = learned(posterior)["reward-by-action"]
    assert np.all(experience.action == 1)
    # Every step is an episode, so the value is that of one reward.
    assert_learned(experience.value, 1.0)


def test_a_cue_is_remembered():
    experience = learned("point")["needs-memory"]
    cue = experience.observation[:, ::3].argmax(axis=-1)
    assert set(np.unique(cue)) == {0, 1}
    np.testing.assert_array_equal(experience.action[:, 2::3], cue)
    assert np.all(experience.reward.sum(axis=-1) == LEARNING.steps / 3)


def fewest_wrong_pulls(steps, chance):
    """In expectation, of an agent that knows how the arms are drawn: by going through all futures.

    Either arm tells as much of which is the better, so all that counts is the sum of what was told.
    """

    @functools.cache
    def wrong(left, told):
        if left == 0:
            return 0.0
        first_is_better = chance**told / (chance**told + (1 - chance) ** told)
        told_first = first_is_better * chance + (1 - first_is_better) * (1 - chance)
        later = told_first * wrong(left - 1, told + 1) + (1 - told_first) * wrong(left - 1, told - 1)
        return min(first_is_better, 1 - first_is_better) + later

    return wrong(steps, 0)


@pytest.mark.parametrize(
    "posterior",
    [
        "point",
        "laplace",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("variational", "conjugate")),
    ],
)
def test_what_was_paid_is_turned_into_a_belief(posterior):
    """No more wrong pulls than the best agent makes; a forgetful one has every second wrong."""
    experience = learned(posterior)["needs-belief"]
    wrong = np.sum(experience.regret > 0, axis=-1)
    best = fewest_wrong_pulls(LEARNING.steps, CHANCE)
    assert best < 0.4 * LEARNING.steps / 2
    assert abs(wrong.mean() - best) < 5 * wrong.std() / np.sqrt(TESTED)


# Regression


def test_one_pair_tells_a_constant_function():
    task = probes.ConstantFunctions()
    config = rl.Config(task=task, agent=AGENT, posterior=POSTERIORS["laplace"], learning=LEARNING)

    @compiled
    def squared_errors(key):
        key_train, key_problems, key_pairs, key_draws = jax.random.split(key, 4)
        state, _ = rl.make_train(config)(key_train)
        model = state.model
        problems = jax.vmap(task.sample)(jax.random.split(key_problems, TESTED))
        pairs = jax.vmap(lambda problem, key: task.pairs(problem, key, LEARNING.steps))
        x, y = pairs(problems, jax.random.split(key_pairs, TESTED))
        after = jax.vmap(model.posterior.unroll)(model.embed(x, y))
        before = first_belief(model.posterior).sample(key_draws, (30, TESTED))
        first = model.predict(before, x[:, 0])
        # The belief after a pair predicts at an input of its own.
        rest = model.predict(after.sample(key_draws, (30,)), -x)
        return (first.mean - problems[:, None]) ** 2, (rest.mean - problems[:, None, None]) ** 2

    first, rest = map(np.asarray, squared_errors(jax.random.key(0)))
    # Before any pair there is nothing better than the mean of all functions.
    assert abs(first.mean() - task.variance) < 5 * first.std() / np.sqrt(TESTED)
    assert np.all(rest.mean(axis=(0, 2)) < 0.02 * task.variance), rest.mean(axis=(0, 2))
