"""The coin that is exchanged: its rules, and its filter against all ways it can have been exchanged."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.registry import assert_close

from recurrent_laplace.models.actions import Discrete
from recurrent_laplace.oracles import CoinOracle, Predictor, RandomAgent, play
from recurrent_laplace.tasks import PiecewiseCoin, Step
from recurrent_laplace.tasks.coin import HEADS, TAILS

KEY = jax.random.key(0)
TASK = PiecewiseCoin(hazard=0.3, heads=2.0, tails=0.7)
TOSSES = 9

# The task


@functools.cache
def one_toss(draws=20_000):
    """The same chance, tossed many times: the chances after it, and both predictions' outcomes."""
    keys = jax.random.split(KEY, draws)
    chance = jnp.array(0.3)
    toss = lambda action: jax.vmap(lambda key: TASK.step(chance, chance, jnp.array(action), key))(keys)
    return chance, jax.tree.map(np.asarray, jax.jit(lambda: [toss(TAILS), toss(HEADS)])())


def test_a_right_prediction_pays():
    _, ((_, tails), (_, heads)) = one_toss()
    came = heads.observation[:, 0]
    assert set(came) == {-1.0, 1.0}
    np.testing.assert_array_equal(tails.observation, heads.observation)
    np.testing.assert_array_equal(heads.reward, came == 1)
    np.testing.assert_array_equal(tails.reward, came == -1)
    assert heads.terminated.all()
    assert not heads.truncated.any()


def test_tosses_and_changes_have_their_chances():
    chance, (_, (after, step)) = one_toss()
    for happened, expected in ((step.reward == 1, 0.3), (after != chance, TASK.hazard)):
        error = math.sqrt(expected * (1 - expected) / len(happened))
        assert abs(happened.mean() - expected) < 5 * error
    # A toss says nothing about whether the coin is exchanged after it.
    changed = after != chance
    assert scipy.stats.fisher_exact(np.histogram2d(changed, step.reward, bins=2)[0]).pvalue > 1e-6
    fresh = after[changed]
    assert scipy.stats.kstest(fresh, scipy.stats.beta(TASK.heads, TASK.tails).cdf).pvalue > 1e-6


def test_regret_is_against_the_present_chance():
    _, ((_, tails), (_, heads)) = one_toss()
    assert_close(tails.regret, np.zeros_like(tails.regret))
    assert_close(heads.regret, np.full_like(heads.regret, 0.4))


@pytest.mark.parametrize(("hazard", "distinct"), [(0.0, 1), (1.0, 21)])
def test_extreme_hazards(hazard, distinct):
    task = PiecewiseCoin(hazard=hazard)
    first = task.sample(KEY)
    toss = lambda state, key: (task.step(first, state, jnp.array(HEADS), key)[0],) * 2
    _, chances = jax.jit(lambda: jax.lax.scan(toss, first, jax.random.split(KEY, 20)))()
    assert len(np.unique([first, *chances])) == distinct


# The filter


def outcome(heads):
    zero, no = jnp.zeros(()), jnp.zeros((), bool)
    return Step(jnp.where(heads, 1.0, -1.0)[None], zero, ~no, no, zero)


@functools.cache
def filtered(oracle):
    """Along any tosses: run lengths, chance of heads, entropy, surprise, before each toss and after all."""

    def read(belief):
        return belief.run_length(), belief.mean(), belief.entropy()

    def step(belief, heads):
        surprise = belief.surprise(jnp.zeros(1), jnp.array(0), outcome(heads))
        return oracle.update(belief, jnp.zeros(1), jnp.array(0), outcome(heads)), (*read(belief), surprise)

    def run(tosses):
        last, before = jax.lax.scan(step, oracle.init(jnp.zeros(1)), tosses)
        return before, read(last)

    return jax.jit(run)


def enumerated(task, tosses):
    """Over every set of changes: probability of the tosses, of run lengths, of heads next, by hand."""
    evidence, runs, next_heads = 0.0, np.zeros(len(tosses) + 1), 0.0
    for changes in itertools.product([False, True], repeat=len(tosses)):
        probability, heads, tails = 1.0, task.heads, task.tails
        length = 0
        for toss, change in zip(tosses, changes, strict=True):
            probability *= (heads if toss else tails) / (heads + tails)
            heads, tails, length = heads + toss, tails + (not toss), length + 1
            probability *= task.hazard if change else 1 - task.hazard
            if change:
                heads, tails, length = task.heads, task.tails, 0
        evidence += probability
        runs[length] += probability
        next_heads += probability * heads / (heads + tails)
    return evidence, runs / evidence, next_heads / evidence


@pytest.mark.parametrize("seed", [0, 1])
def test_filter_is_the_sum_over_all_changes(seed):
    tosses = np.random.default_rng(seed).random(TOSSES) < 0.6
    before, (runs, mean, _) = filtered(CoinOracle(TASK, TOSSES))(tosses)
    evidence, expected_runs, expected_mean = enumerated(TASK, tosses)
    assert_close(runs, expected_runs)
    assert_close(mean, expected_mean)
    # The chain rule: surprises add up to that of all tosses together.
    assert_close(np.sum(before[-1]), -np.log(evidence))
    for t in (0, 4):
        _, expected_runs, expected_mean = enumerated(TASK, tosses[:t])
        assert_close(before[0][t][: t + 1], expected_runs)
        assert not np.any(before[0][t][t + 1 :])
        assert_close(before[1][t], expected_mean)


def test_entropy_is_that_of_run_length_and_chance_together():
    tosses = np.array([1, 1, 0, 1, 0, 0, 0, 0, 1], bool)
    _, (runs, _, entropy) = filtered(CoinOracle(TASK, TOSSES))(tosses)
    recent = [tosses[TOSSES - n :].sum() for n in range(TOSSES + 1)]
    betas = [scipy.stats.beta(TASK.heads + k, TASK.tails + n - k).entropy() for n, k in enumerate(recent)]
    assert_close(entropy, scipy.stats.entropy(runs) + np.dot(runs, betas))


def test_without_hazard_it_is_a_beta():
    task = PiecewiseCoin(hazard=0.0, heads=2.0, tails=0.7)
    tosses = np.array([1, 1, 0, 1, 0, 1, 1, 1, 1], bool)
    _, (runs, mean, _) = filtered(CoinOracle(task, TOSSES))(tosses)
    assert runs[-1] == 1
    assert_close(mean, (2 + 7) / (2.7 + 9))


def test_a_changed_coin_is_noticed():
    tosses = np.array([1] * 60 + [0] * 20, bool)
    oracle = CoinOracle(PiecewiseCoin(hazard=0.02), 80)
    (_, means, _, surprises), (runs, _, _) = jax.tree.map(np.asarray, filtered(oracle)(tosses))
    assert means[59] > 0.9
    assert surprises[60] == surprises.max() > 3
    assert means[70] < 0.2
    assert runs[18:23].sum() > 0.8


# The agent


def regrets(task, agent, tasks=256, steps=100):
    one = lambda a, b: play(task, agent, task.sample(a), steps=steps, key=b).regret.sum()
    return np.asarray(jax.jit(jax.vmap(one))(*jax.random.split(KEY, (2, tasks))))


@pytest.mark.slow
def test_the_likelier_side_is_better_than_ignoring_changes():
    task = PiecewiseCoin()
    oracle, deaf = (CoinOracle(PiecewiseCoin(hazard=hazard), 100) for hazard in (task.hazard, 0.0))
    likelier = regrets(task, Predictor(oracle))
    random, stubborn = regrets(task, RandomAgent(oracle, Discrete(2))), regrets(task, Predictor(deaf))
    # |2 p - 1| / 2 is 1/4 on average.
    assert abs(random.mean() - 25) < 5 * random.std() / math.sqrt(len(random))
    gap = stubborn - likelier
    assert gap.mean() > 5 * gap.std() / math.sqrt(len(gap))


def test_more_tosses_than_it_has_room_for_are_refused():
    task = PiecewiseCoin()
    with pytest.raises(ValueError, match=r"^steps must be at most the oracle's 5; got 6\.$"):
        play(task, Predictor(CoinOracle(task, 5)), task.sample(KEY), steps=6, key=KEY)
