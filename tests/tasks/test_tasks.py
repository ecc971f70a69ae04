"""Tasks: against NumPy formulas, moments in closed form, and a simulator in plain Python."""

import collections
import dataclasses
import functools
import inspect
import itertools
import re
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from support.registry import assert_close

from recurrent_laplace import tasks
from recurrent_laplace.posterior import GaussianLikelihood
from recurrent_laplace.tasks import TASKS, make_task, register_task
from recurrent_laplace.tasks.gridworld import GridProblem
from recurrent_laplace.tasks.regression import STRIPS, FourierSeries

KEY = jax.random.key(0)
DRAWS = 20_000

each_task = pytest.mark.parametrize("name", tuple(TASKS))

# Those of the tests of moments, so that each sampler is compiled once.
PARAMETERS = {
    "beta_bandit": {"arms": 3, "successes": 2.0, "failures": 0.5},
    "two_arm_bandit": {"alpha": 3.0},
}


def draws(task, *, test=False):
    return _draws(task, test)


@functools.cache
def _draws(task, test):
    sample = jax.jit(jax.vmap(lambda key: task.sample(key, test=test)))
    return jax.tree.map(np.asarray, sample(jax.random.split(KEY, DRAWS)))


def assert_mean(samples, expected):
    """Over the first axis, to five standard errors of the samples themselves."""
    samples = np.asarray(samples)
    error = samples.std(axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(samples.mean(axis=0) - expected) < 5 * error), (samples.mean(axis=0), expected)


def assert_frequency(happened, chance):
    """To five standard errors of a coin with that chance."""
    happened = np.asarray(happened)
    error = np.sqrt(chance * (1 - chance) / len(happened))
    assert abs(happened.mean() - chance) < 5 * error, (happened.mean(), chance)


# All of them


def play(task, problem, keys):
    """Each action in turn. `scan` refuses a state that changes its shape or dtype."""
    state, observation = task.reset(problem, keys[0])
    actions = jnp.linspace(-1, 1, len(keys))
    if isinstance(task, tasks.AbstractControlTask):
        actions = jax.vmap(task.action_space.sample)(keys)
    if isinstance(task, tasks.AbstractControlTask) and task.action_space.discrete_actions:
        actions = jnp.arange(len(keys)) % task.actions
    move = lambda state, given: task.step(problem, state, *given)
    state, steps = jax.lax.scan(move, state, (actions, keys))
    return state, observation, steps


def test_registry_holds_every_task_exported():
    exported = {
        value
        for value in vars(tasks).values()
        if inspect.isclass(value) and issubclass(value, tasks.AbstractTask) and not inspect.isabstract(value)
    }
    assert exported == set(TASKS.values())
    assert all(name == task.name for name, task in TASKS.items())


@each_task
def test_jit_and_vmap_give_the_shapes(name):
    task, batch, length = make_task(name, **PARAMETERS.get(name, {})), 3, 20
    hash(task)  # so that it can be a static argument
    problems = draws(task)
    for leaf in jax.tree.leaves(problems):
        assert len(leaf) == DRAWS
        assert leaf.std(axis=0).min() > 0  # other keys, other problems
    test_problem = jax.eval_shape(functools.partial(task.sample, test=True), KEY)
    assert jax.tree.structure(test_problem) == jax.tree.structure(problems)
    some = jax.tree.map(lambda leaf: leaf[:batch], problems)
    keys = jax.random.split(KEY, (batch, length))
    _, observation, steps = jax.jit(jax.vmap(functools.partial(play, task)))(some, keys)
    size = task.observation_size
    expected = {
        "observation": ((batch, length, size), jnp.float64),
        "reward": ((batch, length), jnp.float64),
        "terminated": ((batch, length), jnp.bool),
        "truncated": ((batch, length), jnp.bool),
        "regret": ((batch, length), jnp.float64),
    }
    assert {key: (leaf.shape, leaf.dtype) for key, leaf in vars(steps).items()} == expected
    assert (observation.shape, observation.dtype) == ((batch, size), jnp.float64)
    assert not np.any(np.asarray(steps.terminated) & np.asarray(steps.truncated))


@each_task
def test_all_is_float32_where_people_do_not_ask_for_float64(name):
    with jax.enable_x64(False):
        keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))
        task = make_task(name)
        problem = jax.eval_shape(task.sample, jax.eval_shape(jax.random.key, 0))
        shapes = problem, jax.eval_shape(functools.partial(play, task), problem, keys)
    wide = [leaf for leaf in jax.tree.leaves(shapes) if str(leaf.dtype) in ("float64", "int64")]
    assert not wide


# Regression


def by_hand(series, x):
    """`A_0 / 2 + sum_k A_k cos(2 pi k (x - shift) / period - phase_k)` in NumPy, one term at a time."""
    y = np.full(x.shape, series.amplitudes[0] / 2)
    for k, phase in enumerate(series.phases, start=1):
        y += series.amplitudes[k] * np.cos(2 * np.pi * k * (x - series.shift) / series.period - phase)
    return y


@pytest.mark.parametrize(("terms", "period"), [(4, 2.0), (1, 3.5)])
def test_series_is_the_formula(terms, period):
    random = np.random.default_rng(1)
    leaves = [jnp.asarray(random.normal(size=size)) for size in (terms + 1, terms, ())]
    series = FourierSeries(*leaves, period)
    x = np.linspace(-1, 1, 30).reshape(5, 6)
    y = jax.jit(lambda series, x: series(x))(series, x)
    assert_close(y, by_hand(jax.tree.map(np.asarray, series), x))
    sampled = jax.eval_shape(make_task("regression", terms=terms, period=period).sample, KEY)
    assert (sampled.amplitudes.shape, sampled.phases.shape) == ((terms + 1,), (terms,))
    assert (sampled.shift.shape, sampled.period) == ((), period)


def test_series_has_the_coefficients_of_the_paper():
    task = make_task("regression")
    assert (task.terms, task.period, task.noise_stddev, task.inputs) == (4, 2.0, 0.0, "interval")
    problems = draws(task)
    for leaf, low, high in (
        (problems.amplitudes, -1, 1),
        (problems.phases, 0, np.pi),
        (problems.shift, 0, np.pi),
    ):
        assert leaf.min() >= low
        assert leaf.max() <= high
        assert_mean(leaf, (low + high) / 2)
        assert_mean((leaf - (low + high) / 2) ** 2, (high - low) ** 2 / 12)
    # Independent draws: no coefficient repeats another.
    assert len(np.unique(problems.amplitudes[0])) == 5
    assert len({*problems.phases[0], problems.shift[0]}) == 5


@functools.cache
def observe(task, count=DRAWS):
    """A function, `count` pairs of it, and as many queries: x and y, in NumPy."""
    problem = jax.tree.map(lambda leaf: leaf[0], draws(tasks.Regression()))
    pairs, queries = jax.jit(
        lambda key: (task.pairs(problem, key, count), task.queries(problem, key, count))
    )(KEY)
    assert all(a.shape == (count, 1) for a in (*pairs, *queries))
    return problem, *([np.asarray(a)[:, 0] for a in given] for given in (pairs, queries))


@pytest.mark.parametrize(("inputs", "noise_stddev"), [("interval", 0.3), ("strips", 0.0)])
def test_pairs_are_what_repeated_steps_give(inputs, noise_stddev):
    task, length = make_task("regression", noise_stddev=noise_stddev, inputs=inputs), 12
    problem, (x, y), _ = observe(task)
    actions = np.linspace(-1, 1, length)

    @jax.jit
    def by_steps(key):
        state, first = task.reset(problem, key)
        other = jax.random.key(99)  # The key of a step changes nothing.
        move = lambda state, action: task.step(problem, state, action, other)
        return first, jax.lax.scan(move, state, jnp.asarray(actions))[1]

    first, steps = jax.tree.map(np.asarray, by_steps(KEY))
    # The first pairs do not depend on how many are asked for: here 12, there DRAWS.
    x, y, after = x[:length], y[:length], x[1 : length + 1]
    assert len(np.unique(x)) == length
    assert_close(first, np.array([x[0], 0.0]))
    assert_close(steps.observation, np.stack([after, y], axis=1))
    assert_close(steps.reward, -((y - actions) ** 2))
    # Regret knows the function, not the noise.
    assert_close(steps.regret, (by_hand(problem, x) - actions) ** 2)
    assert not steps.terminated.any()
    assert not steps.truncated.any()


def test_a_longer_sequence_begins_like_a_shorter_one():
    task = make_task("regression", noise_stddev=0.3)
    problem, *long = observe(task)
    short = jax.jit(lambda key: (task.pairs(problem, key, 7), task.queries(problem, key, 7)))(KEY)
    for few, many in zip(short, long, strict=True):
        np.testing.assert_array_equal(few[0][:, 0], many[0][:7])
        assert_close(few[1][:, 0], many[1][:7])  # XLA's cosine rounds by the shape


def test_strips_hold_all_inputs_and_queries_cover_the_interval():
    task = make_task("regression", inputs="strips")
    problem, (x, y), (query, answer) = observe(task)
    assert_close(y, by_hand(problem, x))
    assert STRIPS == ((-1.0, -0.8), (-0.2, 0.2), (0.8, 1.0))
    inside = np.zeros(DRAWS, bool)
    for (low, high), share in zip(STRIPS, (0.25, 0.5, 0.25), strict=True):
        here = (x > low - 1e-12) & (x < high + 1e-12)
        assert_frequency(here, share)
        assert_mean(x[here], (low + high) / 2)
        assert_mean((x[here] - (low + high) / 2) ** 2, (high - low) ** 2 / 12)
        inside |= here
    assert inside.all()
    assert_close(answer, by_hand(problem, query))
    assert_whole_interval(query)


def assert_whole_interval(x):
    assert x.min() >= -1
    assert x.max() <= 1
    counts, _ = np.histogram(x, bins=20, range=(-1, 1))
    assert scipy.stats.chisquare(counts).pvalue > 1e-6


def test_interval_inputs_are_uniform_and_the_noise_has_its_stddev():
    stddev = 0.3
    task = make_task("regression", noise_stddev=stddev)
    problem, (x, y), _ = observe(task)
    assert_whole_interval(x)
    noise = y - by_hand(problem, x)
    assert abs(noise.mean()) < 5 * stddev / np.sqrt(DRAWS)
    assert abs(noise.std() - stddev) < 5 * stddev / np.sqrt(2 * DRAWS)
    assert abs(np.corrcoef(noise, x)[0, 1]) < 5 / np.sqrt(DRAWS)


# Bandits


@pytest.mark.parametrize(("test", "alpha"), [(False, 0.2), (True, 0.3)])
def test_dirichlet_moments(test, alpha):
    chances = draws(make_task("bandit"), test=test)
    assert chances.shape == (DRAWS, 5)
    assert chances.min() >= 0
    assert_close(chances.sum(axis=1), np.ones(DRAWS))
    exact = scipy.stats.dirichlet(np.full(5, alpha))
    assert_mean(chances, exact.mean())
    centred = chances - exact.mean()
    off_diagonal = np.triu_indices(5, 1)
    assert_mean(centred**2, exact.var())
    assert_mean((centred[:, :, None] * centred[:, None, :])[:, *off_diagonal], exact.cov()[off_diagonal])
    # By hand, that each of the two concentrations has its own spread.
    assert_close(exact.var(), np.full(5, 0.2 * 0.8 / (5 * alpha + 1)))


def test_beta_moments_of_arms_that_know_nothing_of_each_other():
    chances = draws(make_task("beta_bandit", **PARAMETERS["beta_bandit"]))
    exact = scipy.stats.beta(2.0, 0.5)
    assert chances.shape == (DRAWS, 3)
    assert_mean(chances, exact.mean())
    centred = chances - exact.mean()
    assert_mean(centred**2, exact.var())
    assert_mean(centred * np.roll(centred, 1, axis=1), 0.0)


def test_two_arms_sum_to_one():
    chances = draws(make_task("two_arm_bandit", **PARAMETERS["two_arm_bandit"]))
    assert chances.shape == (DRAWS, 2)
    assert_close(chances.sum(axis=1), np.ones(DRAWS))
    assert_mean(chances[:, 0], 0.5)
    assert_mean((chances[:, 0] - 0.5) ** 2, scipy.stats.beta(3.0, 3.0).var())


@pytest.mark.parametrize("name", ["bandit", "beta_bandit", "two_arm_bandit"])
def test_bandit_pays_as_often_as_its_chances_say(name):
    task = make_task(name)
    chances = np.array([0.25, 0.4, 0.15, 0.0, 0.2] if name == "bandit" else [0.9, 0.1])
    assert task.actions == len(chances)
    problem, each = jnp.asarray(chances), 4000
    state, observation = task.reset(problem, KEY)
    assert_close(observation, jnp.zeros(1))
    pull = jax.vmap(lambda action, key: task.step(problem, state, action, key)[1])
    actions = np.repeat(np.arange(task.actions), each)
    step = jax.tree.map(np.asarray, jax.jit(pull)(actions, jax.random.split(KEY, len(actions))))
    for arm, rewards in enumerate(step.reward.reshape(-1, each)):
        assert set(np.unique(rewards)) <= {0.0, 1.0}
        if chances[arm] == 0:
            assert not rewards.any()
        else:
            assert_frequency(rewards, chances[arm])
    np.testing.assert_array_equal(step.observation[:, 0], step.reward)
    assert_close(step.regret, np.repeat(chances.max() - chances, each))
    assert step.terminated.all()
    assert not step.truncated.any()


# Gridworld


class Simulator:
    """The rules again, with `if` for each wall."""

    def __init__(self, size, episode_length, start, goal):
        self.size, self.episode_length, self.start, self.goal = size, episode_length, start, goal
        self.here, self.clock = start, 0

    def act(self, action):
        """The reward, and whether one has arrived or run out of time."""
        row, column = self.here
        if action == 0 and row > 0:
            row -= 1
        if action == 1 and row < self.size - 1:
            row += 1
        if action == 2 and column > 0:
            column -= 1
        if action == 3 and column < self.size - 1:
            column += 1
        self.here = (row, column)
        self.clock += 1
        arrived = self.here == self.goal
        late = not arrived and self.clock == self.episode_length
        if arrived or late:
            self.here, self.clock = self.start, 0
        return int(arrived), arrived, late


SIZE, EPISODE, LENGTH = 4, 5, 60
GRID = tasks.Gridworld(size=SIZE, episode_length=EPISODE)
TILES = list(itertools.product(range(SIZE), repeat=2))
PAIRS = list(itertools.permutations(TILES, 2))


@jax.jit
@jax.vmap
def walk(problem, actions):
    """The states after each action, the answers, and the best returns, on GRID."""
    state, observation = GRID.reset(problem, KEY)

    def move(state, action):
        state, step = GRID.step(problem, state, action, KEY)
        return state, (state, step, GRID.best_return(problem, state.steps))

    return observation, *jax.lax.scan(move, state, actions)[1]


def grid_problems(pairs):
    return jax.vmap(GridProblem)(*(jnp.array([pair[i] for pair in pairs]) for i in range(2)))


def walk_all(actions):
    """`walk` on every ordered pair of tiles, in NumPy; always one shape, to compile once."""
    assert actions.shape == (len(PAIRS), LENGTH)
    return jax.tree.map(np.asarray, walk(grid_problems(PAIRS), jnp.asarray(actions)))


def one_hot(position):
    return np.concatenate([np.eye(SIZE)[position[0]], np.eye(SIZE)[position[1]]])


def shortest(start, goal):
    """Actions: rows first, then columns."""
    down, right = goal[0] - start[0], goal[1] - start[1]
    return [int(down > 0)] * abs(down) + [2 + int(right > 0)] * abs(right)


@pytest.mark.parametrize("start", ["uniform", "corner"])
def test_starts_and_goals_are_uniform_and_differ(start):
    task = make_task("gridworld", start=start)
    assert (task.size, task.episode_length, task.actions) == (5, 15, 4)
    problems = draws(task)
    for tiles in (problems.start, problems.goal):
        assert tiles.shape == (DRAWS, 2)
    begin, goal = (np.ravel_multi_index(tiles.T, (5, 5)) for tiles in (problems.start, problems.goal))
    assert not np.any(begin == goal)
    counts = collections.Counter(zip(begin.tolist(), goal.tolist(), strict=True))
    starts = range(25) if start == "uniform" else [0]
    expected = [(a, b) for a in starts for b in range(25) if a != b]
    assert set(counts) <= set(expected)
    assert scipy.stats.chisquare([counts[pair] for pair in expected]).pvalue > 1e-6


def test_gridworld_is_the_simulator():
    actions = np.random.default_rng(0).integers(4, size=(len(PAIRS), LENGTH))
    first, state, step, best = walk_all(actions)
    seen = collections.Counter()
    for i, (start, goal) in enumerate(PAIRS):
        world = Simulator(SIZE, EPISODE, start, goal)
        np.testing.assert_array_equal(first[i], one_hot(start))
        paid = 0
        for t in range(LENGTH):
            reward, arrived, late = world.act(actions[i, t])
            paid += reward
            seen[arrived, late] += 1
            assert (step.reward[i, t], step.terminated[i, t], step.truncated[i, t]) == (reward, arrived, late)
            assert tuple(state.position[i, t]) == world.here
            assert (state.episode_steps[i, t], state.steps[i, t]) == (world.clock, t + 1)
            np.testing.assert_array_equal(step.observation[i, t], one_hot(world.here))
        assert best[i, -1] - paid == step.regret[i].sum()
    assert min(seen[True, False], seen[False, True]) > 100


def test_walls_block():
    # Against one wall for almost an episode: one arrives at it and stays.
    for action, (axis, edge) in enumerate([(0, 0), (0, SIZE - 1), (1, 0), (1, SIZE - 1)]):
        _, state, _, _ = walk_all(np.full((len(PAIRS), LENGTH), action))
        for i, (start, goal) in enumerate(PAIRS):
            wall = list(start)
            wall[axis] = edge
            if goal[1 - axis] != start[1 - axis]:  # else one may arrive before the wall
                assert state.position[i, EPISODE - 2].tolist() == wall


def test_arriving_on_the_last_step_is_no_truncation():
    far = [i for i, (start, goal) in enumerate(PAIRS) if len(shortest(start, goal)) == EPISODE]
    paths = {i: shortest(*PAIRS[i]) for i in far}
    actions = np.zeros((len(PAIRS), LENGTH), int)
    for i, path in paths.items():
        actions[i, :EPISODE] = path
        # The second time back and forth once: out of time before the goal.
        actions[i, EPISODE : 2 * EPISODE] = [path[0], path[0] ^ 1, *path[:3]]
    _, state, step, _ = walk_all(actions)
    assert far
    for i in far:
        start = list(PAIRS[i][0])
        last, late = EPISODE - 1, 2 * EPISODE - 1
        assert (step.terminated[i, last], step.truncated[i, last], step.reward[i, last]) == (True, False, 1)
        assert (step.terminated[i, late], step.truncated[i, late], step.reward[i, late]) == (False, True, 0)
        assert not np.any(step.terminated[i, :last] | step.truncated[i, :last])
        for t in (last, late):
            assert state.position[i, t].tolist() == start
            assert state.episode_steps[i, t] == 0
            np.testing.assert_array_equal(step.observation[i, t], one_hot(start))


def test_best_return_is_that_of_shortest_paths_and_then_nothing_is_regretted():
    actions = np.array([(shortest(*pair) * LENGTH)[:LENGTH] for pair in PAIRS])
    _, _, step, best = walk_all(actions)
    reachable = np.array([len(shortest(*pair)) <= EPISODE for pair in PAIRS])
    assert 0 < np.sum(~reachable) < len(PAIRS)
    paid = np.cumsum(step.reward, axis=1)
    np.testing.assert_array_equal(best[reachable], paid[reachable])
    np.testing.assert_array_equal(step.regret[reachable], 0)
    np.testing.assert_array_equal(best[~reachable], 0)


@pytest.mark.parametrize("pair", [((0, 0), (0, 1)), ((1, 2), (3, 1)), ((0, 0), (3, 2)), ((0, 0), (3, 3))])
def test_no_agent_does_better_than_best_return(pair):
    @functools.cache
    def most(here, clock, left):
        """Of all sequences of `left` actions."""
        if not left:
            return 0
        returns = []
        for action in range(4):
            world = Simulator(SIZE, EPISODE, *pair)
            world.here, world.clock = here, clock
            reward, _, _ = world.act(action)
            returns.append(reward + most(world.here, world.clock, left - 1))
        return max(returns)

    problem = GridProblem(*map(jnp.array, pair))
    steps = jnp.arange(LENGTH)
    best = jax.jit(jax.vmap(lambda n: GRID.best_return(problem, n)))(steps)
    np.testing.assert_array_equal(best, [most(pair[0], 0, n) for n in range(LENGTH)])


def test_mean_best_return_of_the_paper():
    pairs = list(itertools.permutations(itertools.product(range(5), repeat=2), 2))
    best_return = functools.partial(make_task("gridworld").best_return, steps=jnp.array(100))
    best = np.asarray(jax.jit(jax.vmap(best_return))(grid_problems(pairs)))
    # 5 - |d| tiles of a side have another one d further.
    offsets = [d for d in itertools.product(range(-4, 5), repeat=2) if d != (0, 0)]
    total = sum((5 - abs(d)) * (5 - abs(e)) * (100 // (abs(d) + abs(e))) for d, e in offsets)
    assert len(pairs) == 600
    assert best.sum() == total == 24200  # on average 40 1/3


# By name

# Every parameter has a bad value in tests/runs/test_config_keys.py.
NAMES = "'bandit', 'beta_bandit', 'two_arm_bandit', 'coin', 'gridworld', 'lqg', 'regression'"
BAD = [
    ("bandits", {}, f"task must be one of {NAMES} (did you mean 'bandit'?); got 'bandits'."),
    (
        "gridworld",
        {"sise": 7},
        "parameter of task 'gridworld' must be one of 'size', 'start', 'episode_length' "
        "(did you mean 'size'?); got 'sise'.",
    ),
    ("gridworld", {"size": 1}, "size must be at least 2, to have a start and a goal; got 1."),
    ("gridworld", {"size": 2.5}, "size must be a whole number of at least 1; got 2.5."),
    ("coin", {"hazard": 1.5}, "hazard must be a number in [0, 1]; got 1.5."),
]


@pytest.mark.parametrize(("name", "parameters", "message"), BAD)
def test_bad_arguments_are_one_sentence(name, parameters, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_task(name, **parameters)


@pytest.fixture
def registry_restored():
    with mock.patch.dict(TASKS):
        yield


@dataclasses.dataclass(frozen=True, kw_only=True)
class Biased(tasks.AbstractBandit):
    """A new task: the last arm always pays."""

    name = "biased"

    arms: int = 3

    def check(self):
        if self.arms < 2:
            raise ValueError("arms must be at least 2.")

    @property
    def actions(self):
        return self.arms

    def sample(self, key, *, test=False):
        return jnp.zeros(self.arms).at[-1].set(1.0)


@pytest.mark.usefixtures("registry_restored")
def test_a_new_task_is_known_by_its_name():
    assert register_task(Biased) is Biased
    assert register_task(Biased) is Biased  # again, as when a notebook's cell is run twice
    task = make_task("biased", arms=4)
    assert task == Biased(arms=4)
    np.testing.assert_array_equal(task.sample(KEY), [0, 0, 0, 1])
    with pytest.raises(ValueError, match=r"^arms must be at least 2\.$"):
        make_task("biased", arms=1)
    with pytest.raises(ValueError, match=r"'coin', .*, 'biased'; got 'unknown'\.$"):
        make_task("unknown")


class NoTask:
    name = "no_task"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nameless(tasks.AbstractBandit):
    pass


class Undecorated(tasks.AbstractBandit):
    """A class that forgot its decorator: `arms` is then no parameter."""

    name = "undecorated"
    arms: int = 3


@pytest.mark.usefixtures("registry_restored")
@pytest.mark.parametrize(
    ("task", "sentence"),
    [
        (NoTask, "^task must be a subclass of AbstractTask; got <class "),
        (Undecorated, "^task must be a frozen dataclass; got <class "),
        (Nameless, "^task must have a name; <class .* has none"),
    ],
)
def test_what_is_no_task_is_refused(task, sentence):
    before = set(TASKS)
    with pytest.raises(ValueError, match=sentence):
        register_task(task)
    assert set(TASKS) == before


def test_the_registry_was_restored():
    assert set(TASKS) == {"regression", "bandit", "gridworld", "beta_bandit", "two_arm_bandit", "coin", "lqg"}


# Targets of predictive heads


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, task in TASKS.items()
        if issubclass(task, tasks.AbstractControlTask) and task().vocabulary() is not None
    ],
)
def test_targets_have_the_support_of_what_they_predict(name):
    """With equal chances, the probabilities of all that can be observed sum to one."""
    task = make_task(name)
    targets, vocabulary = task.targets(), task.vocabulary()
    assert list(targets) == ["reward", "observation"]
    assert [likelihood.size for likelihood in targets.values()] == [1, task.observation_size]
    values = {"reward": vocabulary.rewards[:, None], "observation": vocabulary.observations}
    for target, likelihood in targets.items():
        if not isinstance(likelihood, GaussianLikelihood):
            outputs = jnp.zeros(likelihood.size)
            chance = jnp.exp(likelihood.log_prob(outputs, jnp.asarray(values[target])))
            assert_close(chance.sum(), 1.0)


def test_targets_are_gaussian_unless_a_task_says_otherwise():
    targets = tasks.AbstractControlTask.targets(make_task("gridworld"))
    assert all(isinstance(likelihood, GaussianLikelihood) for likelihood in targets.values())
    assert [likelihood.size for likelihood in targets.values()] == [1, 10]
