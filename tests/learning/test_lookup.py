"""Agents whose inputs are looked up: the same agents, for less."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.models import randomized, small_agent
from support.registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.benchmarks.count import multiplications
from recurrent_laplace.learning.lookup import OneHotLookup, with_lookup
from recurrent_laplace.learning.objectives import PPO
from recurrent_laplace.learning.objectives.base import Schedule
from recurrent_laplace.models.posterior_config import posterior_class
from recurrent_laplace.tasks import TASKS
from recurrent_laplace.tasks.base import Vocabulary

# Compiled in a third of the time, since the code is run once or twice only.
compiled = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})

KEY = jax.random.key(0)
GRID = rl.Gridworld(size=2, episode_length=3)
SMALL = rl.AgentConfig(hidden_size=6, features=3, embedding_sizes=(5,), head_sizes=(5,))
LEARNING = rl.LearningConfig(batch=3, steps=4, acting_samples=2, training_samples=2)
CONTROL_TASKS = ("bandit", "beta_bandit", "coin", "gridworld", "two_arm_bandit")


def agent_of(config=SMALL, posterior="laplace", task=GRID, policy_input="belief_and_observation"):
    options = {"config": config, "policy_input": policy_input, "key": KEY}
    return randomized(jax.eval_shape(lambda: small_agent(task, posterior_class(posterior)(), **options)))


@pytest.mark.parametrize(
    ("changes", "policy_input"),
    [
        ({"reward_model": True}, "belief_and_observation"),
        ({"layer_norm": False, "cell": "elman"}, "belief_and_observation"),
        # Heads that do not see the observation are not looked up, but for the predictive one.
        ({"predict": ("reward", "observation"), "cell": "gru"}, "belief_and_hidden"),
    ],
)
def test_tables_change_neither_what_is_done_nor_what_is_learned(changes, policy_input):
    agent = agent_of(dataclasses.replace(SMALL, **changes), policy_input=policy_input)

    @compiled
    def learned(agent):
        def by(lookup):
            learning = dataclasses.replace(LEARNING, lookup=lookup, entropy_weight=0.1)
            objective = PPO(GRID, SMALL, rl.PointConfig(), learning)
            batch = objective.gather(agent, mesh=None, key=KEY)
            gradient = jax.value_and_grad(objective.loss, has_aux=True)
            return batch, gradient(agent, batch, Schedule(jnp.array(0), 1), key=KEY)

        return by(True), by(False)

    looked_up, embedded = jax.tree.map(lambda leaf: leaf.astype(float), learned(agent))
    assert_close(looked_up, embedded)


@pytest.mark.parametrize("name", CONTROL_TASKS)
def test_an_vocabulary_has_all_that_can_occur(name):
    task = TASKS[name]()
    vocabulary = task.vocabulary()

    @compiled
    @jax.vmap
    def play(key):
        key_problem, key_reset, key_steps = jax.random.split(key, 3)
        problem = task.sample(key_problem)
        state, first = task.reset(problem, key_reset)

        def step(state, key):
            key_action, key_step = jax.random.split(key)
            action = jax.random.randint(key_action, (), 0, task.actions)
            return task.step(problem, state, action, key_step)

        _, steps = jax.lax.scan(step, state, jax.random.split(key_steps, 40))
        return first, steps

    first, steps = play(jax.random.split(KEY, 50))
    seen = np.concatenate([first, steps.observation.reshape(-1, task.observation_size)])
    seen, paid = np.unique(seen, axis=0), np.unique(steps.reward)
    assert {*map(tuple, seen)} == {*map(tuple, vocabulary.observations)}
    assert {*paid} == {*vocabulary.rewards}


def test_what_is_no_letter_is_not_a_number():
    spell = OneHotLookup(jnp.array([[0.0], [1.0]]))
    spelled = spell(jnp.array([[1.0], [0.5], [jnp.nan], [0.0]]))
    assert_close(spelled[jnp.array([0, 3])], jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.all(np.isnan(spelled[1:3]))


def test_a_task_that_shows_what_it_did_not_list_is_noticed():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Liar(rl.Gridworld):
        def vocabulary(self):
            listed = super().vocabulary()
            return Vocabulary(listed.observations[:-1], listed.rewards)

    learning = dataclasses.replace(LEARNING, batch=20)
    config = rl.Config(task=Liar(size=2, episode_length=3), agent=SMALL, learning=learning)
    train = rl.make_train(config)
    _, progress = train.advance(train.init(KEY), 1)
    assert progress.count == 0
    assert not np.all(progress.finite)


@pytest.mark.parametrize(
    ("vocabulary", "enabled"),
    [(None, True), (Vocabulary(np.arange(200.0)[:, None], np.zeros(1)), True), (GRID.vocabulary(), False)],
    ids=["none", "too long", "disabled"],
)
def test_an_agent_without_a_short_vocabulary_stays_as_it_is(vocabulary, enabled):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Listed(rl.Gridworld):
        def vocabulary(self):
            return vocabulary

    agent = agent_of()
    assert with_lookup(agent, Listed(), enabled) is agent


def test_lookup_halves_the_work_of_the_papers_network():
    task = rl.Gridworld()
    agent = jax.eval_shape(lambda: agent_of(rl.AgentConfig(), "point", task))

    def work(lookup):
        learning = rl.LearningConfig(batch=4, steps=100, lookup=lookup)
        objective = PPO(task, rl.AgentConfig(), rl.PointConfig(), learning)

        def learn(agent):
            batch = objective.gather(agent, mesh=None, key=KEY)
            return jax.grad(objective.loss, has_aux=True)(agent, batch, Schedule(jnp.array(0), 1), key=KEY)

        return multiplications(learn, agent)

    assert work(True) < 0.5 * work(False)
