"""V-MPO: its two steps by hand, its dual variables, and what it does not support."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tasks import Aim

import recurrent_laplace as rl
from recurrent_laplace.cli.train import warn_of_inactive
from recurrent_laplace.learning.beliefs import sample_belief
from recurrent_laplace.learning.objectives.base import Schedule
from recurrent_laplace.learning.objectives.vmpo import (
    Duals,
    DualState,
    WeightedBatch,
    is_better_half,
    log_weights,
    temperature_loss,
)
from recurrent_laplace.runs.config import Run

KEY = jax.random.key(0)
SMALL = rl.AgentConfig(
    cell="elman", hidden_size=4, features=3, embedding_sizes=(4,), head_sizes=(4,), layer_norm=False
)
LEARNING = rl.LearningConfig(objective="vmpo", batch=4, steps=5, updates=2, epochs=2, acting_samples=1)
TASKS = {"discrete": rl.TwoArmBandit(), "continuous": Aim()}
ADVANTAGE = np.random.default_rng(0).normal(size=(4, 5))


def config_of(task, **learning):
    changes = dataclasses.replace(LEARNING, **learning)
    posterior = rl.LaplaceConfig(covariance="diagonal")
    return rl.Config(task=TASKS[task], agent=SMALL, posterior=posterior, learning=changes)


def test_weights_are_a_softmax_over_the_better_half():
    temperature = 0.7
    better = np.median(ADVANTAGE) <= ADVANTAGE
    assert better.sum() == 10
    expected = np.where(better, np.exp(ADVANTAGE / temperature), 0)
    weights = np.exp(log_weights(jnp.asarray(ADVANTAGE), jnp.log(temperature)))
    # Their mean is 1, so that a mean over steps is a sum weighted by psi.
    np.testing.assert_allclose(weights, 20 * expected / expected.sum(), rtol=1e-10)


def test_equal_advantages_have_equal_weights_and_large_ones_no_overflow():
    equal = jnp.ones((4, 5))
    assert is_better_half(equal).all()
    np.testing.assert_allclose(np.exp(log_weights(equal, jnp.zeros(()))), 1, rtol=1e-10)
    large = log_weights(1e4 * jnp.asarray(ADVANTAGE), jnp.log(1e-3))
    np.testing.assert_allclose(np.exp(large).max(), 20, rtol=1e-10)


def test_the_temperature_of_least_loss_has_the_bound_as_its_kl():
    """Duality: at the minimum, the KL of psi from equal weights of the better half is the bound."""
    bound, advantage = 0.1, jnp.asarray(ADVANTAGE)
    slope = jax.jit(jax.grad(temperature_loss))
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle, advantage, bound) < 0 else (low, middle)
    psi = np.exp(log_weights(advantage, jnp.asarray(low))) / 20
    psi = psi[psi > 0]
    assert np.sum(psi * np.log(psi * len(psi))) == pytest.approx(bound, abs=1e-8)


def test_multipliers_rise_where_the_kl_exceeds_its_bound_and_fall_elsewhere():
    objective = config_of("continuous").objective
    assert list(objective.bounds) == ["policy_mean_kl", "policy_stddev_kl"]
    state = objective.init_variables()
    metrics = {"policy_mean_kl": jnp.array(0.5), "policy_stddev_kl": jnp.array(0.0)}
    after = objective.update_duals(state, jnp.asarray(ADVANTAGE), metrics)
    rise, fall = np.asarray(after.duals.log_multipliers)
    # Adam's first step is the learning rate, in the direction of the gradient.
    assert rise == pytest.approx(LEARNING.dual_learning_rate, rel=1e-3)
    assert fall == pytest.approx(-LEARNING.dual_learning_rate, rel=1e-2)
    assert list(config_of("discrete").objective.bounds) == ["policy_kl"]


@pytest.mark.parametrize("task", TASKS)
def test_loss_is_the_sum_done_by_hand(task):
    config = config_of(task)
    objective, learning = config.objective, config.learning
    acted, agent = (objective.make_model(jax.random.key(seed)) for seed in (1, 2))
    duals = Duals(jnp.log(0.5), jnp.log(jnp.arange(2.0, 2.0 + len(objective.bounds))))

    @jax.jit
    def run(acted, agent):
        batch = objective.weigh(objective.gather(acted, mesh=None, key=KEY), duals)
        loss, (metrics, _) = objective.loss(agent, batch, Schedule(jnp.array(0), 1), key=KEY)
        experience = batch.batch.experience
        inputs, embedded = agent.embed(
            experience.observation, experience.previous_action, experience.previous_reward
        )
        beliefs = jax.vmap(agent.posterior.unroll)(inputs)
        behaviour = agent.behave(
            sample_belief(beliefs, 1, key=KEY), embedded if task == "continuous" else None
        )
        kl = jnp.mean(jax.vmap(agent.posterior.consecutive_kl)(beliefs))
        return batch, loss, metrics, behaviour, experience, kl

    batch, loss, metrics, behaviour, experience, kl = run(acted, agent)
    assert isinstance(batch, WeightedBatch)
    advantage = batch.batch.advantage
    psi = np.exp(log_weights(advantage, duals.log_temperature)) / advantage.size
    parts = experience.policy.kl_parts(behaviour.policy)
    expected = (
        -np.sum(psi * behaviour.log_prob(experience.chosen))
        + sum((2.0 + i) * np.mean(part) for i, part in enumerate(parts))
        + 0.5 * np.mean((behaviour.value - advantage - experience.value[:, :-1]) ** 2)
        + learning.beta * kl
    )
    assert loss == pytest.approx(float(expected), rel=1e-9)
    for name, part in zip(objective.bounds, parts, strict=True):
        assert metrics[name] == pytest.approx(float(np.mean(part)), rel=1e-9)


@pytest.mark.parametrize("task", TASKS)
def test_training_updates_the_dual_variables_and_logs_them(task):
    train = rl.make_train(config_of(task))
    state = train.init(KEY)
    assert isinstance(state.variables, DualState)
    state, progress = train.advance(state, 2)
    assert progress.finite.all()
    names = list(config_of(task).objective.bounds)
    logged = progress.metrics
    assert {"temperature", *names, *(f"{name}_multiplier" for name in names)} <= set(logged)
    assert logged["temperature"][1] == pytest.approx(float(jnp.exp(state.variables.duals.log_temperature)))
    assert logged["temperature"][1] != 1.0
    # A fine-tune inherits them; weights of another objective start with fresh ones.
    continued = train.continue_from(state, state.model)
    jax.tree.map(np.testing.assert_array_equal, continued.variables, state.variables)
    of_ppo = rl.make_train(config_of(task, objective="ppo")).init(KEY)
    assert of_ppo.variables is None
    fresh = train.continue_from(of_ppo, of_ppo.model).variables
    np.testing.assert_array_equal(fresh.duals.log_temperature, 0.0)


def test_what_v_mpo_does_not_support():
    with pytest.raises(ValueError, match=r"'vmpo' learns tasks with actions; 'regression' is none"):
        rl.make_train(rl.Config(task=rl.Regression(), learning=LEARNING))
    with pytest.raises(
        ValueError, match=r"^acting_policy must be 'average' .* closed form; got 'mixture'\.$"
    ):
        rl.make_train(config_of("continuous", acting_policy="mixture"))
    config_of("discrete", acting_policy="mixture").check()
    inactive = config_of("discrete").inactive_learning
    assert {"clip", "entropy_weight", "final_entropy_weight"} <= set(inactive)
    assert "policy_kl_bound" in config_of("discrete", objective="ppo").inactive_learning


def test_options_without_effect_are_named(capsys):
    warn_of_inactive(Run(config=config_of("discrete", clip=0.3)), LEARNING)
    assert capsys.readouterr().err == "note: --clip: no effect on objective 'vmpo'.\n"
