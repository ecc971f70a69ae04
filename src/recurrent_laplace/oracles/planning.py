"""Bayes-optimal returns and policies by dynamic programming over exact beliefs, in NumPy."""

import dataclasses
import functools

import numpy as np

from recurrent_laplace.errors import check_number, check_size
from recurrent_laplace.tasks import AbstractBandit, BetaBandit, Gridworld, TwoArmBandit
from recurrent_laplace.tasks.gridworld import MOVES

LARGEST_GRID = 3
"""Maximum number of tiles per side for `plan_gridworld`."""
LONGEST_PLAN = 100
"""Maximum horizon for `plan_two_arms`."""


def plan_gridworld(task: Gridworld, *, horizon: int) -> float:
    """Bayes-optimal expected return after `horizon` steps, for small grids.

    The states of the program are the position, the steps of the episode, the possible tiles, and the steps
    left. The result is averaged over the starts.

    ```python
    plan_gridworld(rl.Gridworld(size=3), horizon=10)
    ```
    """
    check_size("horizon", horizon)
    if task.size > LARGEST_GRID:
        raise ValueError(f"size must be at most {LARGEST_GRID} to be planned; got {task.size}.")
    starts = range(task.size**2) if task.start == "uniform" else [0]
    return float(np.mean([_optimal_return(task, start, horizon) for start in starts]))


def _optimal_return(task: Gridworld, start: int, horizon: int) -> float:
    size = task.size
    landings = [
        [
            min(max(tile // size + row, 0), size - 1) * size + min(max(tile % size + column, 0), size - 1)
            for row, column in MOVES
        ]
        for tile in range(size**2)
    ]

    @functools.cache
    def value(tile: int, clock: int, possible: int, steps_left: int) -> float:
        """Optimal expected return; `possible` has a bit for each possible tile of the goal."""
        if steps_left == 0:
            return 0.0
        times_out = clock + 1 == task.episode_length
        best = 0.0
        for landing in set(landings[tile]):
            bit = 1 << landing
            probability = bool(possible & bit) / possible.bit_count()
            expected = 0.0
            if probability > 0:
                expected += probability * (1 + value(start, 0, bit, steps_left - 1))
            if probability < 1:
                next_state = (start, 0) if times_out else (landing, clock + 1)
                expected += (1 - probability) * value(*next_state, possible & ~bit, steps_left - 1)
            best = max(best, expected)
        return best

    return value(start, 0, (1 << size**2) - 1 & ~(1 << start), horizon)


@dataclasses.dataclass(frozen=True)
class TwoArmPlan:
    """Expected return of a number of pulls of two arms, and the policy that achieves it."""

    value: float
    """Expected return."""
    second: np.ndarray
    """Whether to pull the second arm, by all pulls, pulls of the first arm, and successes of both."""


def plan_two_arms(task: AbstractBandit, *, horizon: int, greedy: bool = False) -> TwoArmPlan:
    """Bayes-optimal plan for `horizon` pulls of two arms, or the greedy policy and its return.

    ```python
    plan_two_arms(rl.BetaBandit(arms=2), horizon=20).value
    ```
    """
    check_size("horizon", horizon)
    if horizon > LONGEST_PLAN:
        raise ValueError(f"horizon must be at most {LONGEST_PLAN}; got {horizon}.")
    if not isinstance(task, BetaBandit | TwoArmBandit) or task.actions != 2:
        raise ValueError(f"task must be a BetaBandit or a TwoArmBandit with two arms; got {task!r}.")
    second = np.zeros((horizon,) * 4, bool)
    next_value = np.zeros((horizon + 1,) * 3)
    for pulls in reversed(range(horizon)):
        n = pulls + 1
        first, s1, s2 = np.ogrid[:n, :n, :n]
        # Entries with more successes than pulls are computed too, but never reached.
        p1, p2 = _predictive(task, s1, first - s1, s2, pulls - first - s2)
        q1 = p1 * (1 + next_value[1:, 1:, :n]) + (1 - p1) * next_value[1:, :n, :n]
        q2 = p2 * (1 + next_value[:n, :n, 1:]) + (1 - p2) * next_value[:n, :n, :n]
        choice = p2 > p1 if greedy else q2 > q1
        second[pulls, :n, :n, :n] = choice
        next_value = np.where(choice, q2, q1)
    return TwoArmPlan(float(next_value[0, 0, 0]), second)


def _predictive(
    task: BetaBandit | TwoArmBandit, s1: np.ndarray, f1: np.ndarray, s2: np.ndarray, f2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Predictive probability that the next pull of each arm pays."""
    if isinstance(task, TwoArmBandit):
        first = (task.alpha + s1 + f2) / (2 * task.alpha + s1 + f1 + s2 + f2)
        return first, 1 - first
    a, b = task.successes, task.failures
    return (a + s1) / (a + b + s1 + f1), (a + s2) / (a + b + s2 + f2)


def gittins_indices(
    successes: float, failures: float, *, discount: float, pulls: int, rates: int = 401
) -> np.ndarray:
    """Gittins indices of an arm with the prior Beta(successes, failures).

    The index is the certain reward per step at which retiring the arm is as good as pulling it. A dynamic
    program gives the value of pulling for each of `rates` such rewards, interpolated linearly. Entry `[n, s]`
    is the index after n pulls with s successes, for n up to `pulls`.

    ```python
    gittins_indices(1.0, 1.0, discount=0.9, pulls=0)[0, 0]  # 0.7029
    ```
    """
    check_number("successes", successes, above=0)
    check_number("failures", failures, above=0)
    check_number("discount", discount, above=0, most=1 - 1e-4)
    # At this depth discounted rewards no longer matter, and the arm's probability is taken as known.
    depth = pulls + int(np.ceil(np.log(1e-3) / np.log(discount)))
    rate = np.linspace(0, 1, rates)
    retired = rate / (1 - discount)
    mean = (successes + np.arange(depth + 1)) / (successes + failures + depth)
    value = np.maximum(rate, mean[:, None]) / (1 - discount)
    indices = np.zeros((pulls + 1, pulls + 1))
    for n in reversed(range(depth)):
        mean = ((successes + np.arange(n + 1)) / (successes + failures + n))[:, None]
        pulling = mean * (1 + discount * value[1:]) + (1 - mean) * discount * value[:-1]
        if n <= pulls:
            indices[n, : n + 1] = _crossing(rate, pulling - retired)
        value = np.maximum(pulling, retired)
    return indices


def _crossing(x: np.ndarray, falling: np.ndarray) -> np.ndarray:
    """Zero crossing of each falling row, by linear interpolation."""
    left = np.sum(falling >= 0, axis=1).clip(1, len(x) - 1) - 1
    row = np.arange(len(falling))
    above, below = falling[row, left], falling[row, left + 1]
    return x[left] + (x[left + 1] - x[left]) * above / (above - below)
