"""Return of the best memoryless walk: against all policies of small grids, and a walk that is played."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from recurrent_laplace.oracles import GridOracle, memoryless_return, play
from recurrent_laplace.oracles.base import AbstractReference
from recurrent_laplace.oracles.gridworld import position
from recurrent_laplace.tasks import Gridworld
from recurrent_laplace.tasks.gridworld import MOVES


def best_policy(task: Gridworld, steps: int) -> float:
    """Highest expected return of all functions from the tile to an action."""
    size = task.size
    tiles = np.array(list(itertools.product(range(size), repeat=2)))
    landing = np.clip(tiles[:, None] + np.array(MOVES), 0, size - 1) @ np.array([size, 1])
    policies = np.array(list(itertools.product(range(4), repeat=size**2)))
    following = landing[np.arange(size**2), policies]
    totals = np.zeros(len(policies))
    for start in range(size**2) if task.start == "uniform" else [0]:
        at, first_visit = np.full(len(policies), start), np.full((len(policies), size**2), np.inf)
        for step in range(1, task.episode_length + 1):
            at = following[np.arange(len(policies)), at]
            row = np.arange(len(policies))
            first_visit[row, at] = np.minimum(first_visit[row, at], step)
        first_visit[:, start] = np.inf
        totals += (steps // first_visit).sum(axis=1)
    starts = size**2 if task.start == "uniform" else 1
    return totals.max() / starts / (size**2 - 1)


@pytest.mark.parametrize("start", ["uniform", "corner"])
@pytest.mark.parametrize(("size", "steps", "length"), [(2, 20, 15), (2, 7, 2), (3, 40, 15), (3, 40, 4)])
def test_no_function_of_the_tile_is_better(size, steps, length, start):
    task = Gridworld(size=size, start=start, episode_length=length)
    np.testing.assert_allclose(memoryless_return(task, steps=steps), best_policy(task, steps), rtol=1e-12)


# Around a corner that is left out: 24 tiles, each with the action that leads to the next.
CYCLE = """
>>>>v
^v<<<
^>>>v
^v<v<
^<^<.
"""


class CyclicWalker(AbstractReference):
    oracle: GridOracle

    def act(self, belief, observation, key):
        del belief, key
        tile = position(observation)
        return jnp.array(ACTIONS)[tile[0], tile[1]]


ACTIONS = [["^v<>".index(mark) for mark in row.replace(".", "^")] for row in CYCLE.split()]


def test_the_walk_has_the_return_that_is_said():
    task = Gridworld(size=5)
    assert memoryless_return(task, steps=100) == pytest.approx(328 / 24)
    assert memoryless_return(task, steps=50) == pytest.approx(161 / 24)
    agent = CyclicWalker(GridOracle(task))
    problems = [(start, goal) for start, goal in itertools.permutations(range(25), 2)]

    def returns(start, goal):
        problem = task.sample(jax.random.key(0))
        tile = lambda index: jnp.stack([index // 5, index % 5])
        problem = type(problem)(tile(start), tile(goal))
        return play(task, agent, problem, steps=100, key=jax.random.key(0)).reward.sum()

    starts, goals = jnp.array(problems).T
    found = jax.jit(jax.vmap(returns))(starts, goals)
    assert float(found.mean()) == pytest.approx(memoryless_return(task, steps=100), abs=1e-4)


def test_steps_are_checked():
    with pytest.raises(ValueError, match="steps"):
        memoryless_return(Gridworld(), steps=0)
