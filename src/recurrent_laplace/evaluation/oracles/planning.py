"""The most that can be expected: dynamic programmes over exact beliefs, in NumPy."""

import dataclasses
import functools

import numpy as np

from recurrent_laplace.errors import check_number, check_size
from recurrent_laplace.tasks import AbstractBandit, BetaBandit, Gridworld, TwoArmBandit
from recurrent_laplace.tasks.gridworld import MOVES

LARGEST_GRID = 3
LONGEST_PLAN = 100


def plan_gridworld(task: Gridworld, *, horizon: int) -> float:
    """The expected return of the best agent after `horizon` steps; small grids only.

    Over where one is, the time left in the episode, the tiles that the goal can be on, and the steps
    left; averaged over the starts.

    ```python
    plan_gridworld(rl.Gridworld(size=3), horizon=10)
    ```
    """
    check_size("horizon", horizon)
    if task.size > LARGEST_GRID:
        raise ValueError(f"size must be at most {LARGEST_GRID} to be planned; got {task.size}.")
    starts = range(task.size**2) if task.start == "uniform" else [0]
    return float(np.mean([_best_from(task, start, horizon) for start in starts]))


def _best_from(task: Gridworld, start: int, horizon: int) -> float:
    size = task.size
    landings = [
        [
            min(max(tile // size + row, 0), size - 1) * size + min(max(tile % size + column, 0), size - 1)
            for row, column in MOVES
        ]
        for tile in range(size**2)
    ]

    @functools.cache
    def value(here: int, clock: int, possible: int, left: int) -> float:
        """`possible` has a bit for each tile that the goal can be on."""
        if left == 0:
            return 0.0
        late = clock + 1 == task.episode_length
        best = 0.0
        for landing in set(landings[here]):
            bit = 1 << landing
            chance = bool(possible & bit) / possible.bit_count()
            expected = 0.0
            if chance > 0:
                expected += chance * (1 + value(start, 0, bit, left - 1))
            if chance < 1:
                then = (start, 0) if late else (landing, clock + 1)
                expected += (1 - chance) * value(*then, possible & ~bit, left - 1)
            best = max(best, expected)
        return best

    return value(start, 0, (1 << size**2) - 1 & ~(1 << start), horizon)


@dataclasses.dataclass(frozen=True)
class TwoArmPlan:
    """What to expect of a number of pulls, and which arm to pull."""

    value: float
    """The expected return."""
    second: np.ndarray
    """Whether to pull the second arm: indexed by all pulls, those of the first arm, and both successes."""


def plan_two_arms(task: AbstractBandit, *, horizon: int, greedy: bool = False) -> TwoArmPlan:
    """The best way to pull two arms `horizon` times; or with `greedy`, what the likelier arm gives.

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
    after = np.zeros((horizon + 1,) * 3)
    for pulls in reversed(range(horizon)):
        n = pulls + 1
        first, s1, s2 = np.ogrid[:n, :n, :n]
        # Entries with more successes than pulls are computed too, and never reached.
        chance1, chance2 = _chances(task, s1, first - s1, s2, pulls - first - s2)
        q1 = chance1 * (1 + after[1:, 1:, :n]) + (1 - chance1) * after[1:, :n, :n]
        q2 = chance2 * (1 + after[:n, :n, 1:]) + (1 - chance2) * after[:n, :n, :n]
        choice = chance2 > chance1 if greedy else q2 > q1
        second[pulls, :n, :n, :n] = choice
        after = np.where(choice, q2, q1)
    return TwoArmPlan(float(after[0, 0, 0]), second)


def _chances(
    task: BetaBandit | TwoArmBandit, s1: np.ndarray, f1: np.ndarray, s2: np.ndarray, f2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """That the next pull of each arm pays."""
    if isinstance(task, TwoArmBandit):
        chance = (task.alpha + s1 + f2) / (2 * task.alpha + s1 + f1 + s2 + f2)
        return chance, 1 - chance
    a, b = task.successes, task.failures
    return (a + s1) / (a + b + s1 + f1), (a + s2) / (a + b + s2 + f2)


def gittins_indices(
    successes: float, failures: float, *, discount: float, pulls: int, rates: int = 401
) -> np.ndarray:
    """Gittins indices of an arm whose chance is Beta(successes, failures) before any pull.

    The index is the sure reward per step for which one would as soon give up the arm. For each of
    `rates` such rewards a programme says what going on is worth; between them it is a line. Entry
    `[n, s]` is the index after n pulls with s successes, for n up to `pulls`.

    ```python
    gittins_indices(1.0, 1.0, discount=0.9, pulls=0)[0, 0]  # 0.7029
    ```
    """
    check_number("successes", successes, above=0)
    check_number("failures", failures, above=0)
    check_number("discount", discount, above=0, most=1 - 1e-4)
    # Until discounted rewards no longer matter; from there on the arm's chance is taken as known.
    depth = pulls + int(np.ceil(np.log(1e-3) / np.log(discount)))
    rate = np.linspace(0, 1, rates)
    retired = rate / (1 - discount)
    mean = (successes + np.arange(depth + 1)) / (successes + failures + depth)
    value = np.maximum(rate, mean[:, None]) / (1 - discount)
    indices = np.zeros((pulls + 1, pulls + 1))
    for n in reversed(range(depth)):
        mean = ((successes + np.arange(n + 1)) / (successes + failures + n))[:, None]
        going_on = mean * (1 + discount * value[1:]) + (1 - mean) * discount * value[:-1]
        if n <= pulls:
            indices[n, : n + 1] = _crossing(rate, going_on - retired)
        value = np.maximum(going_on, retired)
    return indices


def _crossing(x: np.ndarray, falling: np.ndarray) -> np.ndarray:
    """Where each row falls through zero, by a line between the two points around it."""
    left = np.sum(falling >= 0, axis=1).clip(1, len(x) - 1) - 1
    row = np.arange(len(falling))
    above, below = falling[row, left], falling[row, left + 1]
    return x[left] + (x[left + 1] - x[left]) * above / (above - below)
