"""Which oracle and which reference agents a task has."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.evaluation.oracles.bandits import (
    UCB1,
    BayesUCB,
    BetaOracle,
    Gittins,
    Greedy,
    Thompson,
    TwoArmOracle,
)
from recurrent_laplace.evaluation.oracles.base import AbstractOracle, AbstractReference, RandomAgent
from recurrent_laplace.evaluation.oracles.coin import CoinOracle, Predictor
from recurrent_laplace.evaluation.oracles.dirichlet import DirichletOracle
from recurrent_laplace.evaluation.oracles.gridworld import GridOracle, ToldWalker, Walker
from recurrent_laplace.evaluation.oracles.planning import gittins_indices
from recurrent_laplace.evaluation.oracles.regression import BestLinear, SeriesOracle
from recurrent_laplace.tasks import (
    AbstractBandit,
    AbstractControlTask,
    AbstractTask,
    BetaBandit,
    DirichletBandit,
    Gridworld,
    PiecewiseCoin,
    Regression,
    TwoArmBandit,
)
from recurrent_laplace.tasks.base import Problem

GITTINS_DISCOUNT = 0.99
"""Of rewards, for the index of independent arms: looks as far ahead as an evaluation is long."""


def make_oracle(task: AbstractTask, *, test: bool = True, steps: int = max(LENGTHS)) -> AbstractOracle:
    """The exact belief's keeper, with the prior for test or for training, good for `steps` steps.

    ```python
    oracle = make_oracle(rl.DirichletBandit(arms=5), test=True)
    ```
    """
    if isinstance(task, Gridworld):
        return GridOracle(task)
    if isinstance(task, DirichletBandit):
        return DirichletOracle.of(task, test=test, key=jax.random.key(0))
    if isinstance(task, BetaBandit):
        return BetaOracle(task)
    if isinstance(task, TwoArmBandit):
        return TwoArmOracle(task)
    if isinstance(task, Regression):
        return SeriesOracle(task)
    if isinstance(task, PiecewiseCoin):
        return CoinOracle(task, steps)
    raise ValueError(f"task must have an exact belief; {task!r} has none.")


def make_references(
    task: AbstractTask, *, test: bool = True, steps: int = max(LENGTHS)
) -> dict[str, Callable[[Problem], AbstractReference]]:
    """Reference agents by name. Each is made for a problem, though only `told` looks at it.

    ```python
    agent = make_references(task)["told"](problem)
    ```
    """
    oracle = make_oracle(task, test=test, steps=steps)
    references: dict[str, Callable[[Problem], AbstractReference]] = {}
    if isinstance(task, AbstractControlTask):
        references["random"] = lambda _: RandomAgent(oracle, task.actions)
    if isinstance(oracle, GridOracle):
        references["greedy"] = lambda _: Walker(oracle)
        references["told"] = lambda problem: ToldWalker(oracle, problem.goal)
    if isinstance(task, AbstractBandit):
        references["ucb1"] = lambda _: UCB1(oracle)
        references["bayes_ucb"] = lambda _: BayesUCB(oracle)
        references["thompson"] = lambda _: Thompson(oracle)
        references["greedy"] = lambda _: Greedy(oracle)
    if isinstance(oracle, BetaOracle):
        references["gittins"] = lambda _: _gittins(oracle, steps)
    if isinstance(oracle, SeriesOracle):
        references["greedy"] = lambda _: BestLinear(oracle)
    if isinstance(oracle, CoinOracle):
        references["greedy"] = lambda _: Predictor(oracle)
    return references


def _gittins(oracle: BetaOracle, steps: int) -> Gittins:
    task = oracle.task
    index = gittins_indices(task.successes, task.failures, discount=GITTINS_DISCOUNT, pulls=steps)
    return Gittins(oracle, jnp.asarray(index))
