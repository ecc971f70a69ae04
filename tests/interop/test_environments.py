"""Gymnasium environments with readings, and gymnax environments as tasks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
gymnax = pytest.importorskip("gymnax")

from gymnax.environments import environment, spaces  # noqa: E402
from support.models import small_config  # noqa: E402
from support.verbs import float32  # noqa: E402

import recurrent_laplace as rl  # noqa: E402
from recurrent_laplace.interop.gymnasium import Uncertainty  # noqa: E402
from recurrent_laplace.interop.gymnax import GymnaxTask  # noqa: E402

pytestmark = pytest.mark.interop

KEYS = jax.random.split(jax.random.key(0), 4)


def monitor(size, **options):
    memory = rl.Memory(rl.GRU(size, 6, key=KEYS[0]), 3, key=KEYS[1])
    return rl.Monitor(rl.LaplacePosterior(memory), **options)


def test_readings_of_a_monitor_in_info():
    env = Uncertainty(gymnasium.make("CartPole-v1"), monitor(4))
    alone = monitor(4)
    for start in (True, True):
        observation, info = env.reset(seed=0)
        for _ in range(3):
            expected = alone.step(observation, reset=start).scalars()
            assert info["belief"] == {name: float(value) for name, value in expected.items()}
            assert {type(value) for value in info["belief"].values()} == {float}
            observation, _, _, _, info = env.step(0)
            start = False
    assert info["belief"]["step"] == 4
    assert env.latest.entropy == info["belief"]["entropy"]
    env.close()


def test_inputs_and_vectors():
    seen = []

    def inputs(observation, action, reward):
        seen.append((action, reward))
        return np.append(observation, [-1 if action is None else action, reward])

    env = Uncertainty(gymnasium.make("CartPole-v1"), monitor(6), inputs=inputs, vectors=True)
    env.reset(seed=0)
    *_, info = env.step(1)
    assert seen == [(None, 0.0), (1, 1.0)]
    assert info["belief"]["mean"].shape == info["belief"]["stddev"].shape == (3,)
    env.close()


def test_wrong_sources():
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ValueError, match="source must be an SB3Agent or a Monitor; got LaplacePosterior"):
        Uncertainty(env, monitor(4).posterior)
    with pytest.raises(ValueError, match="got streams=2"):
        Uncertainty(env, monitor(4, streams=2))
    env.close()


# gymnax


def cartpole(**options):
    environment, params = gymnax.make("CartPole-v1")
    return environment, params.replace(**options)


def play(task, problem, steps, key):
    """Observations, and what came of always going right."""
    state, observation = task.reset(problem, key)

    def step(state, index):
        state, outcome = task.step(problem, state, jnp.array(1), jax.random.fold_in(key, index))
        return state, outcome

    _, outcomes = jax.lax.scan(step, state, jnp.arange(steps))
    return observation, outcomes


def test_a_fresh_task_is_gymnax_itself():
    env, params = cartpole(max_steps_in_episode=7, theta_threshold_radians=0.2)
    task = GymnaxTask(env, params, start="fresh")
    task.check()
    assert (task.observation_size, task.actions) == (4, 2)
    problem = task.sample(KEYS[0])
    observation, outcomes = jax.jit(lambda k: play(task, problem, 40, k))(KEYS[1])
    expected, state = env.reset(KEYS[1], params)
    np.testing.assert_array_equal(observation, expected)
    for t in range(40):
        out = env.step(jax.random.fold_in(KEYS[1], t), state, jnp.array(1), params)
        expected, state, reward, terminated, truncated, _ = out
        np.testing.assert_allclose(outcomes.observation[t], expected, rtol=1e-6)
        assert outcomes.reward[t] == reward
        assert outcomes.terminated[t] == terminated
        assert outcomes.truncated[t] == (truncated and not terminated)
    assert outcomes.regret is None, "the best return is not known"


def lengths(ends):
    return np.diff(np.flatnonzero(np.concatenate([[True], ends])))


@pytest.mark.parametrize(("limit", "terminates"), [(7, False), (100, True)])
def test_the_same_episode_again(limit, terminates):
    env, params = cartpole(max_steps_in_episode=limit)
    task = GymnaxTask(env, params)
    problem, other = task.sample(KEYS[0]), task.sample(KEYS[1])
    observation, outcomes = jax.jit(lambda p: play(task, p, 50, KEYS[2]))(problem)
    ends = outcomes.terminated | outcomes.truncated
    assert ends.sum() >= 3
    assert bool(outcomes.terminated.any()) == terminates
    assert bool(outcomes.truncated.any()) != terminates
    # The state is reset with the observation: all episodes are one.
    first = int(np.flatnonzero(ends)[0]) + 1
    assert set(lengths(ends)) == {first}
    np.testing.assert_array_equal(outcomes.observation[ends], np.tile(observation, (ends.sum(), 1)))
    np.testing.assert_array_equal(outcomes.observation[:first], outcomes.observation[first : 2 * first])
    assert not np.array_equal(task.reset(other, KEYS[2])[1], observation)


def test_parameters_that_are_drawn():
    env, params = cartpole()
    draw = lambda key: params.replace(gravity=jax.random.uniform(key, minval=5.0, maxval=15.0))
    task = GymnaxTask(env, draw)
    task.check()
    problems = jax.vmap(task.sample)(KEYS)
    assert len(set(problems.params.gravity.tolist())) == len(KEYS)
    _, observation = jax.vmap(task.reset, (0, None))(problems, KEYS[0])
    assert observation.shape == (4, task.observation_size)


class Counter(environment.Environment):
    """Shows a number, and ends by chance of nothing: terminated and truncated at once on the third step."""

    @property
    def default_params(self):
        return environment.EnvParams(max_steps_in_episode=3)

    def step_env(self, key, state, action, params):
        state = state.replace(time=state.time + 1)
        return state.time, state, jnp.float32(action), state.time >= 3, {}

    def reset_env(self, key, params):
        return jnp.array(0), environment.EnvState(time=jnp.array(0))

    def action_space(self, params=None):
        return spaces.Discrete(5)

    def observation_space(self, params):
        return spaces.Discrete(4)


class Matrices(Counter):
    """Takes matrices as actions."""

    def action_space(self, params=None):
        return spaces.Box(-1.0, 1.0, (2, 2))


def test_discrete_observations_and_both_ends_at_once():
    task = GymnaxTask(Counter())
    task.check()
    assert (task.observation_size, task.actions) == (4, 5)
    observation, outcomes = play(task, task.sample(KEYS[0]), 4, KEYS[1])
    np.testing.assert_array_equal(observation, np.eye(4)[0])
    np.testing.assert_array_equal(outcomes.observation, np.eye(4)[[1, 2, 0, 1]])
    assert outcomes.terminated.tolist() == [False, False, True, False]
    assert not outcomes.truncated.any()


def test_refusals():
    with pytest.raises(ValueError, match=r"must have discrete actions or vectors; Matrices has "):
        GymnaxTask(Matrices()).check()
    with pytest.raises(ValueError, match=r"first of what gymnax\.make returns; got a tuple"):
        GymnaxTask(gymnax.make("CartPole-v1")).check()
    with pytest.raises(ValueError, match="start must be one of"):
        GymnaxTask(*cartpole(), start="random").check()


@pytest.fixture
def single_precision():
    """float32, as users run it: the states of gymnax's Pendulum have two precisions in float64."""
    with float32():
        yield


def test_continuous_actions_are_those_of_gymnax(single_precision):
    env, params = gymnax.make("Pendulum-v1")
    task = GymnaxTask(env, params, start="fresh")
    task.check()
    assert task.action_space == rl.Box(low=(-2.0,), high=(2.0,))
    state, _ = task.reset(task.sample(KEYS[0]), KEYS[1])
    action = jnp.array([1.5])
    _, outcome = task.step(task.sample(KEYS[0]), state, action, KEYS[2])
    expected, _, reward, *_ = env.step(KEYS[2], state, action, params)
    np.testing.assert_allclose(outcome.observation, np.ravel(expected), rtol=1e-6)
    np.testing.assert_allclose(outcome.reward, reward, rtol=1e-6)


@pytest.mark.parametrize("name", ["Catch-bsuite", "Pendulum-v1"])
def test_an_agent_is_trained_in_it(name, single_precision):
    task = GymnaxTask(*gymnax.make(name))
    config = rl.Config(
        task=task,
        agent=small_config(),
        posterior=rl.LaplaceConfig(covariance="diagonal"),
        learning=rl.LearningConfig(updates=3, steps=12, batch=8, acting_samples=2),
    )
    train = rl.make_train(config)
    state, metrics = jax.jit(train)(jax.random.key(0))
    assert metrics["return"].shape == (3,)
    if name == "Catch-bsuite":
        assert np.all(np.abs(metrics["return"]) <= 1), "one ball falls in nine steps"
    assert np.all(np.isfinite(metrics["loss"]))
    before = jax.tree.leaves(train.init(jax.random.key(0)).model)
    assert any(np.any(a != b) for a, b in zip(before, jax.tree.leaves(state.model), strict=True))
