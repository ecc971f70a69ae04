"""Worlds that change: nothing before the change, and what was said after it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl
from recurrent_laplace.tasks.shifts import SHIFTS, Shifted, shifted_pairs, shifts_of

GRID, BANDIT = rl.Gridworld(size=3, episode_length=50), rl.DirichletBandit(arms=4)
AT, T = 6, 12
KEYS = jax.random.split(jax.random.key(0), 200)
ACTIONS = jax.random.randint(jax.random.key(1), (T,), 0, 4)


def walk(task, key, steps=T):
    """The same actions in a problem; the problem, and what came of them."""
    problem = task.sample(key)
    state, first = task.reset(problem, key)

    def step(state, now):
        action, index = now
        return task.step(problem, state, action, jax.random.fold_in(key, index))

    _, outcomes = jax.lax.scan(step, state, (ACTIONS[:steps], jnp.arange(steps)))
    return problem, first, outcomes


def shifted(base, shift):
    task = Shifted(base=base, shift=shift, at=AT)
    task.check()
    return jax.jit(jax.vmap(lambda key: walk(task, key)))(KEYS)


@pytest.mark.slow
@pytest.mark.parametrize("base", [GRID, BANDIT], ids=["gridworld", "bandit"])
def test_until_the_change_nothing_is_different(base):
    same = shifted(base, "none")
    for shift in shifts_of(base):
        if shift in ("support", "prior"):
            continue
        _, _, outcomes = shifted(base, shift)
        for old, new in zip(*map(jax.tree.leaves, (same[2], outcomes)), strict=True):
            np.testing.assert_array_equal(old[:, :AT], new[:, :AT])
        if shift not in ("none", "new_task", "horizon"):
            rest = zip(*map(jax.tree.leaves, (same[2], outcomes)), strict=True)
            assert any((old[:, AT:] != new[:, AT:]).any() for old, new in rest), shift


def test_a_moved_goal_is_elsewhere_and_never_on_the_start():
    problem, _, _ = shifted(GRID, "moved")
    start, old, new = (np.asarray(x) for x in (problem.before.start, problem.before.goal, problem.after.goal))
    assert (problem.after.start == problem.before.start).all()
    assert (new != old).any(axis=-1).all()
    assert (new != start).any(axis=-1).all()
    assert ((new >= 0) & (new < 3)).all()
    # Every other tile can be it.
    assert len({tuple(tile) for tile in new}) == 9


def test_moved_arms_are_the_same_arms():
    problem, _, _ = shifted(BANDIT, "moved")
    np.testing.assert_allclose(np.sort(problem.before), np.sort(problem.after))
    assert (np.argmax(problem.before, -1) != np.argmax(problem.after, -1)).all()


def test_a_grid_without_a_goal_pays_nothing_and_asks_nothing():
    _, _, outcomes = shifted(GRID, "support")
    assert not outcomes.reward.any()
    assert not outcomes.regret.any()


def test_a_goal_from_another_prior_is_next_to_the_start():
    problem, _, _ = shifted(GRID, "prior")
    assert (np.abs(problem.before.goal - problem.before.start).sum(-1) == 1).all()
    problem, _, _ = shifted(BANDIT, "prior")
    np.testing.assert_allclose(problem.before.sum(-1), 1, rtol=1e-5)


def test_dropped_rewards_are_seen_in_part():
    _, _, all_of_them = shifted(BANDIT, "none")
    _, _, some = shifted(BANDIT, "dropped_rewards")
    before, after = np.asarray(all_of_them.reward[:, AT:]), np.asarray(some.reward[:, AT:])
    assert (after <= before).all()
    assert after.sum() / before.sum() == pytest.approx(0.5, abs=0.15)
    np.testing.assert_array_equal(some.observation[..., 0], some.reward)


def test_remapped_actions_do_what_the_next_one_did():
    _, _, outcomes = shifted(BANDIT, "remapped_actions")
    problem, _, _ = shifted(BANDIT, "none")
    chance = np.asarray(problem.before)[:, (np.asarray(ACTIONS[AT:]) + 1) % 4]
    np.testing.assert_allclose(
        outcomes.regret[:, AT:], problem.before.max(-1, keepdims=True) - chance, atol=1e-6
    )


def test_bad_input():
    with pytest.raises(ValueError, match="shift must be one of"):
        Shifted(base=GRID, shift="tilt").check()
    with pytest.raises(ValueError, match="base must be a control task; got 'regression'"):
        Shifted(base=rl.Regression(), shift="moved").check()


def test_every_shift_is_for_something():
    assert set(shifts_of(GRID)) | set(shifts_of(rl.Regression())) == set(SHIFTS)
    with pytest.raises(ValueError, match="shift must be one of"):
        Shifted(base=GRID, shift="function_class").check()
    with pytest.raises(ValueError, match="shift must be one of"):
        shifted_pairs(rl.Regression(), "slips", KEYS[0], steps=T, at=AT)


@pytest.mark.slow
def test_functions_change_as_said():
    task = rl.Regression()
    pairs = {
        shift: jax.vmap(lambda key, shift=shift: shifted_pairs(task, shift, key, steps=T, at=AT))(KEYS)
        for shift in shifts_of(task)
    }
    x, y = pairs["none"]
    for shift, (other_x, other_y) in pairs.items():
        np.testing.assert_array_equal(other_x, x)
        if shift not in ("support", "prior", "function_class", "new_task"):
            np.testing.assert_array_equal(other_y[:, :AT], y[:, :AT])
        same_later = (other_y[:, AT:] == y[:, AT:]).mean()
        assert same_later == 1 if shift in ("none", "horizon") else same_later < 0.1, shift
    np.testing.assert_allclose(pairs["support"][1], 2 * y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(pairs["function_class"][1], jnp.sign(y))
    # One cosine: its square has mean 1/2 and never exceeds 1.
    alone = np.asarray(pairs["prior"][1])
    assert np.abs(alone).max() <= 1
    assert (alone**2).mean() == pytest.approx(0.5, abs=0.05)
    noise = (pairs["observation_noise"][1] - y)[:, AT:]
    assert noise.std() == pytest.approx(0.5, abs=0.03)
    # Another function of the same prior.
    assert pairs["moved"][1][:, AT:].std() == pytest.approx(float(y.std()), rel=0.1)
