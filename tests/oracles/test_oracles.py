"""Exact beliefs: against enumeration, closed forms and second methods; reference agents: known returns."""

import dataclasses
import functools
import itertools
import math

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.registry import assert_close

from recurrent_laplace.models.actions import Discrete
from recurrent_laplace.oracles import (
    LEAST_PROBABILITY,
    BayesUCB,
    BestLinear,
    BetaOracle,
    DirichletOracle,
    Gittins,
    Greedy,
    GridOracle,
    Planned,
    RandomAgent,
    SeriesOracle,
    ToldWalker,
    TwoArmOracle,
    Walker,
    convolution_mean,
    gittins_indices,
    importance_mean,
    make_oracle,
    make_references,
    plan_gridworld,
    plan_two_arms,
    play,
    replay,
)
from recurrent_laplace.oracles.beta import beta_entropy, beta_quantile
from recurrent_laplace.oracles.regression import basis
from recurrent_laplace.tasks import (
    TASKS,
    BetaBandit,
    DirichletBandit,
    Gridworld,
    Regression,
    Step,
    TwoArmBandit,
    make_task,
)
from recurrent_laplace.tasks.experience import Experience
from recurrent_laplace.tasks.gridworld import MOVES, GridProblem
from recurrent_laplace.tasks.shifts import Shifted

KEY = jax.random.key(0)
MOST_SURPRISE = -math.log(LEAST_PROBABILITY)


def experience_of(task, problem, actions, key=KEY):
    """What an agent would record that takes these actions."""
    steps = len(actions)
    world, observation = task.reset(problem, key)

    def step(now, given):
        world, observation = now
        world, outcome = task.step(problem, world, *given)
        return (world, outcome.observation), (observation, outcome)

    keys = jax.random.split(key, steps)
    _, (observations, outcomes) = jax.lax.scan(step, (world, observation), (actions, keys))
    shifted = lambda first, series: jnp.append(jnp.asarray(first, series.dtype), series[:-1])
    return Experience(
        observation=observations,
        previous_action=shifted(-1, actions),
        previous_reward=shifted(0, outcomes.reward),
        action=actions,
        log_prob=jnp.zeros(steps),
        value=jnp.zeros(steps + 1),
        reward=outcomes.reward,
        regret=outcomes.regret,
        episode_end=outcomes.terminated | outcomes.truncated,
    )


def plays(task, agent_of, *, steps, test=False, read=lambda played: played):
    """What `read` picks of a play in a problem of the task; what it does not pick is not computed."""

    def one(key_problem, key_play):
        problem = task.sample(key_problem, test=test)
        return read(play(task, agent_of(problem), problem, steps=steps, key=key_play))

    return jax.jit(jax.vmap(one))


def many(task, agent_of, *, tasks, **options):
    keys = jax.random.split(KEY, (2, tasks))
    return jax.tree.map(np.asarray, plays(task, agent_of, **options)(*keys))


# Gridworld


def all_problems(size):
    tiles = list(itertools.product(range(size), repeat=2))
    starts, goals = zip(*itertools.permutations(tiles, 2), strict=True)
    return jax.vmap(GridProblem)(jnp.array(starts), jnp.array(goals))


def play_all(task, agent_of, steps):
    one = lambda problem: play(task, agent_of(problem), problem, steps=steps, key=KEY)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(one))(all_problems(task.size)))


@functools.cache
def walked(told):
    """On every problem of the paper's grid."""
    task = Gridworld()
    oracle = GridOracle(task)
    agent_of = (lambda problem: ToldWalker(oracle, problem.goal)) if told else lambda _: Walker(oracle)
    return play_all(task, agent_of, 100)


def test_walkers_have_their_known_returns():
    # Exact means over all 600 problems; both walkers are deterministic.
    assert walked(False).reward.sum(axis=1).mean() == pytest.approx(36.76, abs=0.005)
    assert walked(True).reward.sum(axis=1).mean() == pytest.approx(24200 / 600)
    np.testing.assert_array_equal(walked(True).regret, 0)


def test_entropy_falls_to_zero_at_the_first_reward_and_stays():
    played = walked(False)
    assert_close(played.entropy[:, 0], np.full(600, np.log(24)))
    assert np.all(np.diff(played.entropy) <= 0)
    found = np.cumsum(played.reward, axis=1) > 0
    np.testing.assert_array_equal(played.entropy[:, 1:][found[:, :-1]], 0)
    np.testing.assert_array_equal(played.surprise[:, 1:][found[:, :-1] & (played.reward == 0)[:, :-1]], 0)
    # All that there was to learn is learned: log 24 nats.
    assert_close(played.surprise.sum(axis=1), np.full(600, np.log(24)))


SMALL = Gridworld(size=4, episode_length=6)


def consistent(task, experience):
    """For each time, the goals that give these observations and rewards to these actions: by replay."""
    size, goals = task.size, list(itertools.product(range(task.size), repeat=2))
    where = np.asarray(experience.observation).reshape(-1, 2, size).argmax(-1)
    start, sets = tuple(where[0]), []
    left = {goal for goal in goals if goal != start}
    clocks = dict.fromkeys(left, 0)
    for t in range(len(where)):
        sets.append(frozenset(left))
        if t + 1 == len(where):
            break
        move = MOVES[int(experience.action[t])]
        landing = tuple(min(max(w + d, 0), size - 1) for w, d in zip(where[t], move, strict=True))
        for goal in tuple(left):
            clocks[goal] += 1
            arrived = landing == goal
            over = arrived or clocks[goal] == task.episode_length
            clocks[goal] = 0 if over else clocks[goal]
            told = (start if over else landing, float(arrived))
            if told != (tuple(where[t + 1]), float(experience.reward[t])):
                left.remove(goal)
    return sets


@functools.cache
def followed(seed, steps=60):
    """A random walk, and the exact belief along it."""
    problem = SMALL.sample(jax.random.key(seed))
    actions = jax.random.randint(jax.random.key(seed + 100), (steps,), 0, 4)
    experience = experience_of(SMALL, problem, actions)
    return experience, jax.tree.map(np.asarray, _follow_small(experience))


_follow_small = jax.jit(functools.partial(replay, GridOracle(SMALL)))


@pytest.mark.parametrize("seed", range(4))
def test_grid_belief_is_the_set_of_goals_that_explain_everything(seed):
    experience, along = followed(seed)
    sets = consistent(SMALL, experience)
    for t, left in enumerate(sets):
        assert {tuple(tile) for tile in np.argwhere(along.belief.possible[t])} == left
    sizes = np.array([len(left) for left in sets])
    assert_close(along.entropy, np.log(sizes))
    # The chain rule: a surprise is what the belief has lost, up to rounding.
    assert_close(along.surprise[1:], np.log(sizes[:-1] / sizes[1:]))
    assert along.surprise[0] == 0
    assert_close(along.belief.probabilities.sum(axis=(1, 2)), np.ones(len(sizes)))


def test_a_goal_that_has_moved_is_a_surprise_and_all_is_open_again():
    oracle = GridOracle(SMALL)
    observe = lambda at: jax.nn.one_hot(jnp.array(at), 4).reshape(-1)
    zero, no = jnp.zeros(()), jnp.zeros((), bool)
    paid = Step(observe((0, 0)), jnp.ones(()), ~no, no, zero)
    unpaid = Step(observe((0, 1)), zero, no, no, zero)
    right = jnp.array(3)
    belief = oracle.update(oracle.init(observe((0, 0))), observe((0, 0)), right, paid)
    assert_close(belief.entropy(), 0.0)
    assert_close(belief.surprise(observe((0, 0)), right, paid), 0.0)
    assert_close(belief.surprise(observe((0, 0)), right, unpaid), MOST_SURPRISE)
    lost = oracle.update(belief, observe((0, 0)), right, unpaid)
    assert_close(lost.entropy(), np.log(14))
    assert not lost.possible[0, 0]
    assert not lost.possible[0, 1]
    # A step to the right that leads down: not what the belief expects either.
    slipped = dataclasses.replace(unpaid, observation=observe((1, 0)))
    assert_close(oracle.init(observe((0, 0))).surprise(observe((0, 0)), right, slipped), MOST_SURPRISE)


def best_by_histories(task, horizon):
    """The most one can expect, over all trees of actions: no belief, only the goals still consistent."""
    size = task.size
    tiles = list(itertools.product(range(size), repeat=2))

    def act(start, goal, here, clock, move):
        landing = tuple(min(max(w + d, 0), size - 1) for w, d in zip(here, move, strict=True))
        if landing == goal:
            return start, 0, 1
        return (start, 0, 0) if clock + 1 == task.episode_length else (landing, clock + 1, 0)

    def value(start, worlds, left):
        """`worlds`: the state in each goal's world; sums, not means, over them."""
        if not left:
            return 0
        totals = []
        for move in MOVES:
            after = {}
            for goal, (here, clock) in worlds.items():
                there, then, reward = act(start, goal, here, clock, move)
                after.setdefault((there, reward), {})[goal] = (there, then)
            totals.append(
                sum(
                    reward * len(group) + value(start, group, left - 1)
                    for (_, reward), group in after.items()
                )
            )
        return max(totals)

    totals = [value(start, {goal: (start, 0) for goal in tiles if goal != start}, horizon) for start in tiles]
    return sum(totals) / (len(tiles) * (len(tiles) - 1))


@pytest.mark.parametrize("episode_length", [2, 15])
@pytest.mark.parametrize("horizon", [1, 3, 6])
def test_plan_is_the_best_of_all_trees_of_actions(horizon, episode_length):
    task = Gridworld(size=2, episode_length=episode_length)
    assert plan_gridworld(task, horizon=horizon) == pytest.approx(best_by_histories(task, horizon))


def test_walker_is_between_random_and_the_plan_which_is_below_being_told():
    task, steps = Gridworld(size=3), 12
    oracle = GridOracle(task)
    planned = plan_gridworld(task, horizon=steps)
    greedy = play_all(task, lambda _: Walker(oracle), steps).reward.sum(axis=1).mean()
    told = play_all(task, lambda problem: ToldWalker(oracle, problem.goal), steps).reward.sum(axis=1).mean()
    random = play_all(task, lambda _: RandomAgent(oracle, Discrete(4)), steps).reward.sum(axis=1).mean()
    assert random < greedy <= planned + 1e-9 < told
    assert greedy > 0.9 * planned


def test_a_grid_too_large_to_plan_is_refused():
    with pytest.raises(ValueError, match=r"^size must be at most 3 to be planned; got 5\.$"):
        plan_gridworld(Gridworld(), horizon=3)


# Beta


def test_beta_functions_are_scipys():
    a, b = np.array([0.3, 1.0, 7.0, 150.0]), np.array([0.3, 4.0, 2.0, 90.0])
    assert_close(jax.jit(beta_entropy)(a, b), scipy.stats.beta(a, b).entropy())
    for level in (0.1, 0.995):
        expected = scipy.stats.beta(a, b).ppf(level)
        np.testing.assert_allclose(jax.jit(beta_quantile)(a, b, level), expected, atol=2e-9)


def pulled(oracle, pulls):
    """The belief after (arm, reward) pairs."""
    actions, rewards = (jnp.array(column) for column in zip(*pulls, strict=True))

    @jax.jit
    def run(actions, rewards):
        def step(belief, pull):
            action, reward = pull
            zero, no = jnp.zeros(()), jnp.zeros((), bool)
            return oracle.update(
                belief, jnp.zeros(1), action, Step(reward[None], reward, ~no, no, zero)
            ), None

        return jax.lax.scan(step, oracle.init(jnp.zeros(1)), (actions, rewards))[0]

    return run(actions, rewards.astype(float))


def test_independent_arms_are_betas():
    belief = pulled(
        BetaOracle(BetaBandit(arms=3, successes=2.0, failures=0.5)), [(0, 1), (2, 0), (0, 0), (0, 1)]
    )
    betas = scipy.stats.beta([4.0, 2.0, 2.0], [1.5, 0.5, 1.5])
    assert_close(belief.mean(), betas.mean())
    assert_close(belief.variance(), betas.var())
    assert_close(belief.entropy(), betas.entropy().sum())
    np.testing.assert_allclose(belief.quantile(0.9), betas.ppf(0.9), atol=2e-9)
    outcome = Step(jnp.zeros(1), jnp.zeros(()), jnp.array(True), jnp.array(False), jnp.zeros(()))
    assert_close(belief.surprise(jnp.zeros(1), jnp.array(2), outcome), -np.log(1 - 4 / 7))


def test_two_arms_are_the_likelihood_on_a_grid():
    pulls = [(0, 1), (1, 0), (1, 1), (0, 1), (1, 0), (1, 0)]
    belief = pulled(TwoArmOracle(TwoArmBandit(alpha=1.5)), pulls)
    p = (np.arange(20_000) + 0.5) / 20_000
    density = (p * (1 - p)) ** 0.5
    for arm, reward in pulls:
        chance = p if arm == 0 else 1 - p
        density = density * (chance if reward else 1 - chance)
    density /= density.sum()
    mean = density @ p
    # The midpoint rule on a smooth density.
    np.testing.assert_allclose(belief.mean(), [mean, 1 - mean], atol=1e-7)
    np.testing.assert_allclose(belief.variance(), density @ (p - mean) ** 2 * np.ones(2), atol=1e-7)
    np.testing.assert_allclose(belief.entropy(), -density @ np.log(density * 20_000), atol=1e-6)
    low, high = p[np.searchsorted(np.cumsum(density), [0.1, 0.9])]
    np.testing.assert_allclose(belief.quantile(0.9), [high, 1 - low], atol=1e-4)


# Programmes for bandits


def best_of_histories(task, horizon):
    """Over every tree of pulls, with chances of whole histories as integrals of the prior."""

    def evidence(pulls):
        if isinstance(task, TwoArmBandit):
            a = sum((arm == 0) == bool(reward) for arm, reward in pulls)
            return (
                _rising(task.alpha, a)
                * _rising(task.alpha, len(pulls) - a)
                / _rising(2 * task.alpha, len(pulls))
            )
        product = 1.0
        for arm in range(2):
            s, n = (sum(x) for x in zip((0, 0), *((r, 1) for a, r in pulls if a == arm), strict=True))
            top = _rising(task.successes, s) * _rising(task.failures, n - s)
            product *= top / _rising(task.successes + task.failures, n)
        return product

    def value(pulls):
        if len(pulls) == horizon:
            return evidence(pulls) * sum(reward for _, reward in pulls)
        return max(sum(value((*pulls, (arm, reward))) for reward in (0, 1)) for arm in range(2))

    return value(())


def _rising(x, n):
    """Rising factorial: `x (x + 1) ... (x + n - 1)`."""
    return math.prod(x + i for i in range(n))


@pytest.mark.parametrize(
    "task", [BetaBandit(), BetaBandit(successes=0.5, failures=2.0), TwoArmBandit(alpha=0.7)], ids=repr
)
def test_two_arm_plan_is_the_best_of_all_histories(task):
    for horizon in (1, 2, 5):
        assert plan_two_arms(task, horizon=horizon).value == pytest.approx(best_of_histories(task, horizon))


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_greedy_is_optimal_when_two_arms_sum_to_one(alpha):
    task = TwoArmBandit(alpha=alpha)
    best = plan_two_arms(task, horizon=30).value
    assert plan_two_arms(task, horizon=30, greedy=True).value == pytest.approx(best, rel=1e-12)
    # Not so for independent arms: there it pays to explore.
    independent = BetaBandit(successes=alpha, failures=alpha)
    best = plan_two_arms(independent, horizon=30).value
    assert plan_two_arms(independent, horizon=30, greedy=True).value < best - 1e-3


def test_planned_agent_gets_what_its_plan_says():
    task, horizon, tasks = BetaBandit(), 20, 2048
    plan = plan_two_arms(task, horizon=horizon)
    agent = Planned(BetaOracle(task), jnp.asarray(plan.second))
    rewards = many(task, lambda _: agent, tasks=tasks, steps=horizon, read=lambda played: played.reward)
    returns = rewards.sum(axis=1)
    assert abs(returns.mean() - plan.value) < 5 * returns.std() / math.sqrt(tasks)
    assert plan.value > plan_two_arms(task, horizon=horizon, greedy=True).value


@pytest.mark.parametrize(("discount", "known"), [(0.9, 0.7029), (0.99, 0.8699)])
def test_gittins_index_of_a_uniform_prior(discount, known):
    # Gittins, Glazebrook and Weber, Multi-armed Bandit Allocation Indices (2011), tables 8.
    assert gittins_indices(1.0, 1.0, discount=discount, pulls=0)[0, 0] == pytest.approx(known, abs=1e-3)


def test_gittins_indices_of_later_pulls_are_those_of_another_prior():
    table = gittins_indices(1.0, 1.0, discount=0.9, pulls=6)
    for s, f in ((2, 1), (0, 4), (3, 3)):
        alone = gittins_indices(1.0 + s, 1.0 + f, discount=0.9, pulls=0)[0, 0]
        assert table[s + f, s] == pytest.approx(alone, abs=1e-4)
        assert alone > (1 + s) / (2 + s + f)


@pytest.mark.slow
def test_gittins_agent_is_better_than_greedy_when_rewards_are_discounted():
    task, discount, steps = BetaBandit(arms=3), 0.95, 100
    oracle = BetaOracle(task)
    gittins = Gittins(oracle, jnp.asarray(gittins_indices(1.0, 1.0, discount=discount, pulls=steps)))
    discounts = discount ** np.arange(steps)
    returns = [
        many(
            task, lambda _, a=agent: a, tasks=2048, steps=steps, read=lambda played: played.reward @ discounts
        )
        for agent in (gittins, Greedy(oracle))
    ]
    gap = returns[0] - returns[1]
    assert gap.mean() > 3 * gap.std() / math.sqrt(len(gap))


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(
        ValueError, match=r"^task must be a BetaBandit or a TwoArmBandit with two arms; got Beta"
    ):
        plan_two_arms(BetaBandit(arms=3), horizon=3)
    with pytest.raises(ValueError, match=r"^horizon must be at most 100; got 200\.$"):
        plan_two_arms(BetaBandit(), horizon=200)
    with pytest.raises(ValueError, match=r"^discount must be a number in \(0, 0\.9999\]; got 1\.0\.$"):
        gittins_indices(1.0, 1.0, discount=1.0, pulls=0)


# Dirichlet bandit


def dirichlet_mean(successes, failures, alpha):
    """Exact: a sum over which arm each failure stands for."""
    arms = len(successes)
    ways = [
        [np.eye(arms)[j] for j in range(arms) if j != i]
        for i, f in enumerate(failures)
        for _ in range(int(f))
    ]
    total, mean = 0.0, np.zeros(arms)
    for way in itertools.product(*ways):
        a = alpha + np.asarray(successes) + np.sum(way, axis=0) if way else alpha + np.asarray(successes)
        weight = math.exp(sum(math.lgamma(x) for x in a) - math.lgamma(a.sum()))
        total += weight
        mean += weight * a / a.sum()
    return mean / total


FEW = (np.array([3, 1, 0]), np.array([2, 3, 1]))
"""Successes and failures of three arms."""


def pulls_of(successes, failures):
    """Those counts, in some order."""
    pulls = [
        (arm, reward)
        for reward, counts in ((1, successes), (0, failures))
        for arm, count in enumerate(counts)
        for _ in range(count)
    ]
    return [pulls[i] for i in np.random.default_rng(0).permutation(len(pulls))]


@pytest.mark.parametrize("alpha", [0.2, 1.5])
def test_convolution_tends_to_the_sum_over_all_ways(alpha):
    exact = dirichlet_mean(*FEW, alpha)
    coarse, fine = (np.abs(convolution_mean(*FEW, alpha, cells=cells) - exact).max() for cells in (200, 1600))
    assert fine < 2e-3
    assert fine < coarse / 4
    assert convolution_mean(*FEW, alpha).sum() == pytest.approx(1)


def test_draws_from_the_dirichlet_agree_where_enough_of_them_count():
    mean, size = importance_mean(*map(jnp.asarray, FEW), 0.2, samples=100_000, key=KEY)
    assert 1000 < size < 100_000
    # Chances vary by at most 1/2.
    np.testing.assert_allclose(mean, dirichlet_mean(*FEW, 0.2), atol=2.5 / math.sqrt(size))


def test_draws_that_follow_the_pulls_are_the_sum_over_all_ways():
    belief = pulled(DirichletOracle(3, 0.2, KEY, particles=4096), pulls_of(*FEW))
    np.testing.assert_array_equal([belief.successes, belief.failures], FEW)
    assert belief.effective_sample_size() >= 2048
    # Chances vary by at most 1/2.
    np.testing.assert_allclose(belief.mean(), dirichlet_mean(*FEW, 0.2), atol=2.5 / math.sqrt(2048))
    # The mean square of a chance is its mean times what the mean would be after one more success.
    again = [dirichlet_mean(FEW[0] + one, FEW[1], 0.2)[arm] for arm, one in enumerate(np.eye(3, dtype=int))]
    exact = dirichlet_mean(*FEW, 0.2) * (again - dirichlet_mean(*FEW, 0.2))
    np.testing.assert_allclose(belief.variance(), exact, atol=2.5 / math.sqrt(2048))
    assert_close(jnp.sum(jnp.exp(belief.log_chances), axis=-1), np.ones(4096))


@pytest.mark.slow
def test_draws_that_follow_the_pulls_hold_where_those_at_once_do_not():
    """Two good arms that fail half the time, one tried twice as often."""
    counts = np.array([60, 25, 0, 0, 0]), np.array([65, 30, 3, 2, 1])
    _, size = importance_mean(*map(jnp.asarray, counts), 0.3, samples=4096, key=KEY)
    assert size < 50
    belief = pulled(DirichletOracle(5, 0.3, KEY, particles=4096), pulls_of(*counts))
    assert belief.effective_sample_size() >= 2048
    expected = convolution_mean(*counts, 0.3)
    deviation = np.sqrt(np.mean((np.exp(belief.log_chances) - expected) ** 2, axis=0))
    # Five standard errors, doubled since draws share some of their past, and cells of 1/1000.
    assert np.all(np.abs(belief.mean() - expected) < 10 * deviation / math.sqrt(2048) + 1e-3)
    assert deviation[0] == pytest.approx(math.sqrt(0.48 * 0.52 / 180), rel=0.3)


@pytest.mark.slow
def test_entropy_of_a_bandit_is_that_of_its_best_arm():
    oracle = DirichletOracle(5, 0.3, KEY, particles=4096)
    # An estimate from 4096 draws: shares to 0.006, and a bias of 4 / 8000.
    assert oracle.init(jnp.zeros(1)).entropy() == pytest.approx(math.log(5), abs=0.01)
    belief = pulled(oracle, [(3, 1)] * 20)
    assert belief.entropy() < 0.01
    np.testing.assert_allclose(belief.best_arm(), np.eye(5)[3], atol=0.01)
    quantiles = [np.asarray(belief.quantile(level)) for level in (0.1, 0.5, 0.9)]
    np.testing.assert_array_less(quantiles[0], quantiles[1])
    # Beta(20.3, 1.2) is the third arm's.
    expected = scipy.stats.beta(20.3, 1.2).ppf([0.1, 0.5, 0.9])
    np.testing.assert_allclose([q[3] for q in quantiles], expected, atol=0.015)


KNOWN_REGRETS = {
    # Cumulative expected regret at 50 pulls, for alpha 0.2 and 0.3.
    "random": (25.1, 22.0),
    "ucb1": (13.7, 13.0),
    "thompson": (4.7, 4.9),
    "greedy": (3.3, 3.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN_REGRETS)
@pytest.mark.parametrize("test", [False, True])
def test_reference_agents_have_their_known_regrets(name, test):
    task, tasks = DirichletBandit(), 512
    agent_of = make_references(task, test=test)[name]
    regrets = many(task, agent_of, tasks=tasks, steps=50, test=test, read=lambda played: played.regret.sum())
    # Five standard errors of ours, and those of the known number: of 512 tasks too, and rounded.
    error = math.sqrt(2) * regrets.std() / math.sqrt(tasks)
    assert abs(regrets.mean() - KNOWN_REGRETS[name][test]) < 5 * error + 0.05


def test_greedy_is_near_its_known_regret():
    """The quick version of the test above."""
    task, tasks = DirichletBandit(), 64
    agent = Greedy(DirichletOracle(5, 0.3, KEY, particles=64))
    read = lambda played: played.regret.sum()
    regrets = many(task, lambda _: agent, tasks=tasks, steps=50, test=True, read=read)
    assert abs(regrets.mean() - 3.9) < 5 * regrets.std() / math.sqrt(tasks)
    assert regrets.mean() < 10


def test_quantiles_explore():
    task = TwoArmBandit()
    agent = BayesUCB(TwoArmOracle(task))
    regrets = many(task, lambda _: agent, tasks=32, steps=30, read=lambda played: played.regret.sum())
    # A random agent's is 30 E|p - 1/2|.
    assert regrets.mean() < 0.5 * 30 * 0.25


# Regression


@pytest.mark.parametrize(("terms", "period"), [(4, 2.0), (2, 3.7)])
def test_prior_has_the_moments_of_the_task(terms, period):
    task, draws = Regression(terms=terms, period=period), 20_000
    x = jnp.linspace(-1, 1, 4 * terms + 3)
    values = np.asarray(jax.jit(jax.vmap(lambda key: task.sample(key)(x)))(jax.random.split(KEY, draws)))
    prediction = SeriesOracle(task).prior().predict(x[:, None])
    error = values.std(axis=0) / math.sqrt(draws)
    assert np.all(np.abs(values.mean(axis=0) - prediction.mean[:, 0]) < 5 * error)
    # Covariances of values at all pairs of points, against those of the prior's weights.
    belief = SeriesOracle(task).prior()
    at = np.asarray(basis(x, task))
    products = values[:, :, None] * values[:, None, :]
    error = products.std(axis=0) / math.sqrt(draws)
    assert np.all(np.abs(products.mean(axis=0) - at @ np.asarray(belief.covariance) @ at.T) < 5 * error)


@functools.cache
def series(noise_stddev, inputs="interval", steps=20):
    task = Regression(noise_stddev=noise_stddev, inputs=inputs)
    problem = task.sample(jax.random.key(3))
    x, y = task.pairs(problem, jax.random.key(4), steps)
    return task, problem, x, y


@pytest.mark.parametrize("noise_stddev", [0.0, 0.2])
def test_regression_is_a_gaussian_process(noise_stddev):
    task, _, x, y = series(noise_stddev)
    beliefs = jax.jit(SeriesOracle(task).unroll)(x, y)
    query = jnp.linspace(-1, 1, 15)[:, None]
    noise = max(noise_stddev, 1e-3) ** 2

    def kernel(a, b):
        """The covariance of the prior, as a sum of cosines of differences."""
        k = np.arange(1, task.terms + 1)
        return 1 / 12 + np.cos(2 * np.pi * k * (a[:, None] - b)[..., None] / task.period).sum(-1) / 6

    points, values, where = np.asarray(x)[:, 0], np.asarray(y)[:, 0], np.asarray(query)[:, 0]
    for t in (1, 4, 20):
        observed = kernel(points[:t], points[:t]) + noise * np.eye(t)
        across = kernel(where, points[:t])
        mean = across @ np.linalg.solve(observed, values[:t])
        variance = 1 / 12 + 4 / 6 - np.einsum("ij,ji->i", across, np.linalg.solve(observed, across.T)) + noise
        belief = jax.tree.map(lambda leaf, t=t: leaf[t - 1], beliefs)
        prediction = belief.predict(query)
        # Without noise the systems to solve have condition 1e6.
        tolerance = 1e-10 if noise_stddev else 1e-6
        np.testing.assert_allclose(prediction.mean[:, 0], mean, atol=tolerance)
        np.testing.assert_allclose(prediction.variance[:, 0], variance, atol=tolerance)
        sign, log_determinant = np.linalg.slogdet(2 * np.pi * np.e * np.asarray(belief.covariance))
        assert sign == 1
        np.testing.assert_allclose(belief.entropy(), log_determinant / 2, rtol=1e-5)


def test_nine_points_tell_everything():
    task, problem, x, y = series(0.0)
    beliefs = jax.jit(SeriesOracle(task).unroll)(x, y)
    query = jnp.linspace(-1, 1, 50)
    after = lambda t: jax.tree.map(lambda leaf: leaf[t - 1], beliefs).predict(query[:, None]).mean[:, 0]
    errors = {t: float(jnp.sqrt(jnp.mean((after(t) - problem(query)) ** 2))) for t in (1, 8, 20)}
    assert errors[1] > 0.3
    assert errors[8] > 0.02
    assert errors[20] < 2e-3


def test_float32_is_enough():
    task, _, x, y = series(0.0, "strips", 200)
    with jax.enable_x64(False):
        beliefs = jax.jit(SeriesOracle(task).unroll)(x.astype(jnp.float32), y.astype(jnp.float32))
        assert beliefs.mean.dtype == jnp.float32
        diagonal = jnp.diagonal(beliefs.covariance, axis1=1, axis2=2)
        assert jnp.all(diagonal > 0)
        last = jax.tree.map(lambda leaf: leaf[-1], beliefs)
        prediction = last.predict(x.astype(jnp.float32))
    assert jnp.all(prediction.variance > 0)
    np.testing.assert_allclose(prediction.mean, y, atol=5e-3)


@pytest.mark.parametrize("inputs", ["interval", "strips"])
def test_float32_agrees_with_float64_where_points_are_close_together(inputs):
    """Among many functions some have nine points that tell little: covariances of condition 1e10."""
    task = Regression(inputs=inputs)
    oracle = SeriesOracle(task)
    with jax.enable_x64(False):
        keys = jax.random.split(jax.random.key(0), 300)
        x, y = jax.vmap(lambda key: task.pairs(task.sample(key), key, 30))(keys)
    query = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]

    def predictions(x, y):
        run = lambda x, y: jax.vmap(lambda belief: belief.predict(jnp.asarray(query, x.dtype)))(
            oracle.unroll(x, y)
        )
        found = jax.jit(jax.vmap(run))(x, y)
        return np.asarray(found.mean, float), np.asarray(found.variance, float)

    with jax.enable_x64(False):
        mean, variance = predictions(x, y)
    exact_mean, exact_variance = predictions(np.asarray(x, float), np.asarray(y, float))
    np.testing.assert_allclose(variance, exact_variance, rtol=0.05)
    assert np.max(np.abs(mean - exact_mean) / np.sqrt(exact_variance)) < 0.1


def test_regression_agent_predicts_what_its_belief_says():
    task, problem, *_ = series(0.2)
    agent = BestLinear(SeriesOracle(task))
    played = jax.jit(lambda: play(task, agent, problem, steps=20, key=KEY))()
    # The world draws pairs with the key that `play` resets it with.
    x, y = task.pairs(problem, jax.random.split(KEY)[0], 20)
    beliefs = jax.jit(agent.oracle.unroll)(x, y)
    for t in (0, 1, 12):
        belief = jax.tree.map(lambda leaf, t=t: leaf[t - 1], beliefs) if t else agent.oracle.prior()
        prediction = belief.predict(x[t])
        assert_close(played.reward[t], -((y[t, 0] - prediction.mean[0]) ** 2))
        assert_close(played.entropy[t], belief.entropy())
        assert_close(played.surprise[t + 1], min(-prediction.log_prob(y[t]), MOST_SURPRISE))


@pytest.mark.slow
def test_linear_predictions_are_near_those_of_nuts():
    """The exact posterior of amplitudes, phases and shift, sampled, gives the exact predictive mean."""
    task, problem, x, y = series(0.1)
    query = jnp.linspace(-1, 1, 21)
    bounds = {"amplitudes": (-1.0, 1.0), "phases": (0.0, math.pi), "shift": (0.0, math.pi)}

    def inside(raw):
        """Unbounded numbers to the prior's boxes, and the log-density that makes them uniform there."""
        boxed = {k: low + (high - low) * jax.nn.sigmoid(raw[k]) for k, (low, high) in bounds.items()}
        logits = jnp.concatenate([jnp.ravel(raw[k]) for k in bounds])
        prior = jnp.sum(jax.nn.log_sigmoid(logits) + jax.nn.log_sigmoid(-logits))
        return dataclasses.replace(problem, **boxed), prior

    for t in (4, 12):

        def log_density(raw, t=t):
            candidate, prior = inside(raw)
            return prior - 0.5 * jnp.sum(((candidate(x[:t, 0]) - y[:t, 0]) / task.noise_stddev) ** 2)

        def chain(key, log_density=log_density):
            key_start, key_warm, key_run = jax.random.split(key, 3)
            raw = {"amplitudes": jnp.zeros(5), "phases": jnp.zeros(4), "shift": jnp.zeros(())}
            keys = jax.random.split(key_start, 3)
            raw = {k: jax.random.normal(i, v.shape) for i, (k, v) in zip(keys, raw.items(), strict=True)}
            warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
            (state, parameters), _ = warmup.run(key_warm, raw, num_steps=500)
            kernel = blackjax.nuts(log_density, **parameters)

            def step(state, key):
                state, _ = kernel.step(key, state)
                return state, inside(state.position)[0](query)

            return jax.lax.scan(step, state, jax.random.split(key_run, 1000))[1]

        values = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(KEY, 4)))
        exact = values.reshape(-1, len(query)).mean(axis=0)
        beliefs = SeriesOracle(task).unroll(x[:t], y[:t])
        prediction = jax.tree.map(lambda leaf: leaf[-1], beliefs).predict(query[:, None])
        stddev = np.sqrt(np.asarray(prediction.variance)[:, 0])
        error = np.abs(exact - np.asarray(prediction.mean)[:, 0]) / stddev
        # Not equal, since the prior is a box; but never far in units of its own uncertainty.
        assert error.max() < 1
        assert np.sqrt(np.mean(error**2)) < 0.5


# All of them


@pytest.mark.parametrize("name", tuple(TASKS))
def test_every_task_has_an_oracle_and_agents_that_play(name):
    task, steps, tasks = make_task(name), 5, 3
    references = make_references(task, steps=steps)
    assert "greedy" in references
    for agent_of in references.values():
        keys = jax.random.split(KEY, (2, tasks))
        shapes = jax.eval_shape(plays(task, agent_of, steps=steps), *keys)
        assert {leaf.shape for leaf in jax.tree.leaves(shapes)} == {(tasks, steps)}
    played = many(task, references["greedy"], tasks=tasks, steps=steps)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(played))
    assert np.all(played.surprise[:, 0] == 0)
    assert np.all(played.surprise[:, 1:] <= MOST_SURPRISE + 1e-6)


@pytest.mark.parametrize("name", ["gridworld", "bandit", "coin"])
def test_following_is_what_playing_believes(name):
    """The same actions in the same world give the same beliefs, by either way."""
    task, steps = make_task(name), 12
    oracle = make_oracle(task, steps=steps)
    problem = task.sample(KEY)
    actions = jnp.arange(steps) * 7 % task.actions
    experience = experience_of(task, problem, actions)
    along = jax.jit(functools.partial(replay, oracle, read=lambda belief: belief.entropy()))(experience)
    assert along.surprise.shape == (steps,)
    np.testing.assert_array_equal(along.belief, along.entropy)
    belief, entropies, surprises = oracle.init(experience.observation[0]), [], [0.0]
    update = jax.jit(lambda b, *given: (oracle.update(b, *given), b.surprise(*given), b.entropy()))
    no, zero = jnp.zeros((), bool), jnp.zeros(())
    for t in range(steps - 1):
        outcome = Step(experience.observation[t + 1], experience.reward[t], no, no, zero)
        belief, surprise, entropy = update(belief, experience.observation[t], actions[t], outcome)
        entropies.append(entropy)
        surprises.append(surprise)
    assert_close(along.surprise, np.array(surprises))
    assert_close(along.entropy[:-1], np.array(entropies))


def test_a_task_without_an_exact_belief_is_refused():
    task = Shifted(base=make_task("gridworld"))
    with pytest.raises(ValueError, match=r"^make_oracle needs an exact belief, .* 'shifted' has none: "):
        make_oracle(task)
