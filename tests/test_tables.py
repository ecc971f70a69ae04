"""Agents whose inputs are looked up: the same agents, for less."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from registry import assert_close

import recurrent_laplace as rl
from recurrent_laplace.benchmarks.count import multiplications
from recurrent_laplace.benchmarks.training import UnlistedGridworld
from recurrent_laplace.learning.ppo import control_loss, gather
from recurrent_laplace.learning.tables import Speller, with_tables
from recurrent_laplace.tasks import TASKS
from recurrent_laplace.tasks.base import Alphabet

# Compiled in a third of the time, since the code is run once or twice only.
compiled = functools.partial(jax.jit, compiler_options={"xla_cpu_use_fusion_emitters": False})

KEY = jax.random.key(0)
GRID = rl.Gridworld(size=2, episode_length=3)
SMALL = rl.AgentConfig(hidden_size=6, features=3, embedding_sizes=(5,), head_sizes=(5,))
LEARNING = rl.LearningConfig(batch=3, steps=4, acting_samples=2, training_samples=2)
CONTROL_TASKS = ("bandit", "beta_bandit", "coin", "gridworld", "two_arm_bandit")


def agent_of(config=SMALL, posterior="laplace", task=GRID, policy_input="belief_and_observation"):
    """Random in every weight, so that no norm is the identity."""
    agent = jax.eval_shape(
        lambda: rl.Agent.init(
            config,
            rl.PosteriorConfig(kind=posterior),
            observation_size=task.observation_size,
            actions=task.actions,
            policy_input=policy_input,
            key=KEY,
        )
    )
    random = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), agent)


@pytest.mark.parametrize(
    ("changes", "policy_input"),
    [
        ({}, "belief_and_observation"),
        ({"reward_model": True, "cell": "gru"}, "belief_and_observation"),
        ({"layer_norm": False, "cell": "elman"}, "belief_and_observation"),
        ({}, "belief"),
        ({"cell": "gru"}, "belief_and_hidden"),
    ],
)
def test_tables_change_neither_what_is_done_nor_what_is_learned(changes, policy_input):
    agent = agent_of(dataclasses.replace(SMALL, **changes), policy_input=policy_input)

    @compiled
    def learned(agent):
        def of(task):
            batch = gather(agent, task, LEARNING, key=KEY)
            loss = functools.partial(control_loss, alphabet=task.alphabet(), entropy_weight=0.1, key=KEY)
            return batch, jax.value_and_grad(loss, has_aux=True)(agent, batch, LEARNING)

        return of(GRID), of(UnlistedGridworld(size=2, episode_length=3))

    with_tables, without = jax.tree.map(lambda leaf: leaf.astype(float), learned(agent))
    assert_close(with_tables, without)


@pytest.mark.parametrize("name", CONTROL_TASKS)
def test_an_alphabet_has_all_that_can_occur(name):
    task = TASKS[name]()
    alphabet = task.alphabet()

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
    assert {*map(tuple, seen)} == {*map(tuple, alphabet.observations)}
    assert {*paid} == {*alphabet.rewards}


def test_what_is_no_letter_is_not_a_number():
    spell = Speller(jnp.array([[0.0], [1.0]]))
    spelled = spell(jnp.array([[1.0], [0.5], [jnp.nan], [0.0]]))
    assert_close(spelled[jnp.array([0, 3])], jnp.array([[0.0, 1.0], [1.0, 0.0]]))
    assert np.all(np.isnan(spelled[1:3]))


def test_a_task_that_shows_what_it_did_not_list_is_noticed():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Liar(rl.Gridworld):
        def alphabet(self):
            listed = super().alphabet()
            return Alphabet(listed.observations[:-1], listed.rewards)

    learning = dataclasses.replace(LEARNING, batch=20)
    config = rl.Config(task=Liar(size=2, episode_length=3), agent=SMALL, learning=learning)
    train = rl.make_train(config)
    _, progress = train.advance(train.init(KEY), 1)
    assert progress.count == 0
    assert not np.all(progress.finite)


@pytest.mark.parametrize(
    "alphabet", [None, Alphabet(np.arange(200.0)[:, None], np.zeros(1))], ids=["none", "too long"]
)
def test_an_agent_without_a_short_alphabet_stays_as_it_is(alphabet):
    agent = agent_of()
    assert with_tables(agent, alphabet) is agent


def test_tables_halve_the_work_of_the_papers_network():
    task = rl.Gridworld()
    agent = jax.eval_shape(lambda: agent_of(rl.AgentConfig(), "point", task))
    learning = rl.LearningConfig(batch=4, steps=100)

    def work(task):
        def learn(agent):
            batch = gather(agent, task, learning, key=KEY)
            loss = functools.partial(control_loss, alphabet=task.alphabet(), entropy_weight=0.1, key=KEY)
            return jax.grad(loss, has_aux=True)(agent, batch, learning)

        return multiplications(learn, agent)

    assert work(task) < 0.5 * work(UnlistedGridworld())
