"""The LQG task: its Kalman filter against Gaussian conditioning, its controller, and its regret."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import recurrent_laplace as rl
from recurrent_laplace.oracles import Controller, LQGOracle, play
from recurrent_laplace.tasks.lqg import START_STDDEV

KEY = jax.random.key(0)
TASK = rl.LQG(persistence=0.8, disturbance_stddev=1.5, process_stddev=0.3, observation_stddev=0.4)
STEPS = 6


def joint(actions):
    """Mean and covariance of the states and the disturbance, and the covariance of the noise seen."""
    steps = len(actions) + 1
    # Columns: the first state, the disturbance, the process noise.
    size = 1 + 1 + len(actions)
    rows, means = [np.eye(size)[0]], [0.0]
    for t, action in enumerate(actions):
        rows.append(TASK.persistence * rows[-1] + np.eye(size)[1] + np.eye(size)[2 + t])
        means.append(TASK.persistence * means[-1] + action)
    states, disturbance = np.stack(rows), np.eye(size)[1]
    stddevs = np.array([START_STDDEV, TASK.disturbance_stddev, *[TASK.process_stddev] * len(actions)])
    maps = np.concatenate([states, disturbance[None]]) * stddevs
    covariance = maps @ maps.T
    noise = TASK.observation_stddev**2 * np.eye(steps)
    return np.array([*means, 0.0]), covariance, noise


def test_belief_is_that_of_conditioning_on_all_observations_at_once():
    random = np.random.default_rng(0)
    actions, observations = random.normal(size=STEPS), random.normal(size=STEPS + 1)
    oracle = LQGOracle(TASK)
    belief = oracle.init(jnp.asarray(observations[:1]))
    for t in range(STEPS + 1):
        mean, covariance, noise = joint(actions[:t])
        gain = np.linalg.solve(covariance[: t + 1, : t + 1] + noise, covariance[: t + 1]).T
        posterior_mean = mean + gain @ (observations[: t + 1] - mean[: t + 1])
        posterior = covariance - gain @ covariance[: t + 1]
        which = [t, t + 1]
        expected = posterior[np.ix_(which, which)]
        np.testing.assert_allclose(belief.mean, posterior_mean[which], rtol=1e-10)
        ours = [belief.state_variance, belief.covariance, belief.disturbance_variance]
        np.testing.assert_allclose(ours, expected[[0, 0, 1], [0, 1, 1]], rtol=1e-10)
        entropy = multivariate_normal(np.zeros(2), expected).entropy()
        np.testing.assert_allclose(belief.entropy(), entropy, rtol=1e-10)
        if t == STEPS:
            break
        action = jnp.asarray(actions[t : t + 1])
        zero, no = jnp.zeros(()), jnp.zeros((), bool)
        outcome = rl.Step(jnp.asarray(observations[t + 1 : t + 2]), zero, no, no, zero)
        keep = np.array([TASK.persistence, 1.0])
        stddev = np.sqrt(keep @ expected @ keep + TASK.process_stddev**2 + TASK.observation_stddev**2)
        density = norm(keep @ posterior_mean[which] + actions[t], stddev)
        surprise = belief.surprise(jnp.zeros(1), action, outcome)
        np.testing.assert_allclose(
            surprise, min(-density.logpdf(observations[t + 1]), -np.log(1e-6)), rtol=1e-10
        )
        belief = oracle.update(belief, jnp.zeros(1), action, outcome)


@functools.cache
def played(steps=20, tasks=2000):
    agent = Controller(LQGOracle(TASK))

    def one(key_problem, key_play):
        return play(TASK, agent, TASK.sample(key_problem), steps=steps, key=key_play)

    keys = jax.random.split(KEY, (2, tasks))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(*keys))


def test_regret_of_the_controller_is_the_variance_of_what_it_cancels():
    """The variance of `persistence x + disturbance` does not depend on what is observed."""
    belief, expected = LQGOracle(TASK).init(jnp.zeros(1)), []
    for _ in range(20):
        predicted = belief.advance(jnp.zeros(1))
        expected.append(float(predicted.state_variance) - TASK.process_stddev**2)
        belief = predicted.observe(jnp.zeros(1))
    regret = played().regret
    errors = regret.std(axis=0) / np.sqrt(len(regret))
    assert np.all(np.abs(regret.mean(axis=0) - expected) < 5 * errors)
    # What the reward lacks, on average, is the regret and the noise that nobody controls.
    lost = -played().reward - regret
    noise = TASK.process_stddev**2 + TASK.observation_stddev**2
    assert abs(lost.mean() - noise) < 5 * lost.mean(axis=1).std() / np.sqrt(len(lost))


def test_actions_that_are_no_numbers_are_refused():
    problem = TASK.sample(KEY)
    state, _ = TASK.reset(problem, KEY)
    with pytest.raises(ValueError, match=r"^action must be between -inf and inf in entry 0; got nan\.$"):
        TASK.step(problem, state, jnp.array([jnp.nan]), KEY)
