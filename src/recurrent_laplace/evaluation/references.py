"""What exact Bayes reaches on the test tasks of a task, in the numbers that `evaluate` gives of a model."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.evaluation.lengths import LENGTHS, TASKS_AT_ONCE, at_lengths, test_keys
from recurrent_laplace.evaluation.oracles import SeriesOracle, make_references, play
from recurrent_laplace.evaluation.regression import Predicted, beliefs_at_lengths, score_predictor
from recurrent_laplace.tasks import (
    AbstractTask,
    BetaBandit,
    DirichletBandit,
    Gridworld,
    PiecewiseCoin,
    Regression,
    TwoArmBandit,
)

EXACT = "exact Bayes"
"""The reference that every task with an exact belief has, and that shares are of."""

REFERENCES: dict[type[AbstractTask], dict[str, str]] = {
    Gridworld: {EXACT: "greedy", "told the goal": "told"},
    DirichletBandit: {EXACT: "greedy", "Thompson": "thompson"},
    BetaBandit: {EXACT: "gittins", "Thompson": "thompson"},
    TwoArmBandit: {EXACT: "greedy"},
    PiecewiseCoin: {EXACT: "greedy"},
}
"""For each task, agents of `make_references` under the names that tables have; regression has no agents."""


@eqx.filter_jit
def evaluate_references(task: AbstractTask, *, tasks: int) -> dict[str, Table]:
    """For each reference the table of `evaluate`, on the same test tasks; of beliefs there is nothing in it.

    Empty for a task without an exact belief.

    ```python
    tables = evaluate_references(rl.Gridworld(), tasks=8)
    tables["exact Bayes"]["return"]  # (8, 14)
    ```
    """
    if type(task) is Regression:
        return {EXACT: _evaluate_series(task, tasks)}
    return _play_references(task, REFERENCES.get(type(task), {}), tasks=tasks, test=True, lengths=LENGTHS)


@eqx.filter_jit
def training_reference(task: AbstractTask, *, tasks: int, steps: int) -> dict[str, Table]:
    """The same of exact Bayes alone, after `steps` steps of tasks as training draws them: one column."""
    names = {name: agent for name, agent in REFERENCES.get(type(task), {}).items() if name == EXACT}
    return _play_references(task, names, tasks=tasks, test=False, lengths=(steps,))


def _play_references(
    task: AbstractTask, names: dict[str, str], *, tasks: int, test: bool, lengths: Sequence[int]
) -> dict[str, Table]:
    if not names:
        return {}
    steps = max(lengths)
    agents = make_references(task, test=test, steps=steps)

    def one(keys: tuple[Array, Array]) -> dict[str, Table]:
        key_problem, key_play = keys
        problem = task.sample(key_problem, test=test)
        tables = {}
        for name, agent in names.items():
            played = play(task, agents[agent](problem), problem, steps=steps, key=key_play)
            tables[name] = {
                "return": at_lengths(jnp.cumsum(played.reward), 0.0, lengths),
                "cumulative_regret": at_lengths(jnp.cumsum(played.regret), 0.0, lengths),
                "regret": at_lengths(played.regret, lengths=lengths),
            }
        return tables

    return jax.lax.map(one, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))


def _evaluate_series(task: Regression, tasks: int) -> Table:
    oracle = SeriesOracle(task)

    def predict(x: Array, y: Array, query_x: Array, key: Array) -> Predicted:
        del key
        known = beliefs_at_lengths(oracle.prior(x.dtype), oracle.unroll(x, y))
        return Predicted(jax.vmap(lambda belief: belief.predict(query_x))(known), {}, {})

    return score_predictor(predict, task, tasks=tasks)
