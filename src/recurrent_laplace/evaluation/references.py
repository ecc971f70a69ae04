"""Evaluation of exact-Bayes references on the test tasks, with the metrics of `evaluate`."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.evaluation.regression import Predicted, beliefs_at_lengths, score_predictor
from recurrent_laplace.oracles import make_oracle, make_references, play
from recurrent_laplace.tasks import AbstractRegressionTask, AbstractTask, support_of
from recurrent_laplace.tasks.held_out import LENGTHS, TASKS_AT_ONCE, at_lengths, test_keys
from recurrent_laplace.tasks.support import EXACT


def evaluate_references(task: AbstractTask, *, tasks: int) -> dict[str, Table]:
    """Evaluate the references of a task on its test tasks: one table of `evaluate` per reference.

    Metrics of beliefs are missing. Empty for a task without an exact belief.

    ```python
    tables = evaluate_references(rl.Gridworld(), tasks=8)
    tables["exact Bayes"]["return"]  # (8, 14)
    ```
    """
    if isinstance(task, AbstractRegressionTask):
        if support_of(task).oracle is None:
            return {}
        return {EXACT: _evaluate_predictions(make_oracle(task), task, tasks)}
    return _play_references(task, reported_references(task), tasks=tasks, test=True, lengths=LENGTHS)


def training_reference(task: AbstractTask, *, tasks: int, steps: int) -> dict[str, Table]:
    """Evaluate exact Bayes on training tasks after `steps` steps: tables with one column."""
    names = {name: agent for name, agent in reported_references(task).items() if name == EXACT}
    return _play_references(task, names, tasks=tasks, test=False, lengths=(steps,))


def reported_references(task: AbstractTask) -> dict[str, str]:
    """Names in tables of the agents of `make_references`; empty for a task that has none."""
    support = support_of(task)
    if support.oracle is None or support.references is None:
        return {}
    return dict(support.reported or {})


@eqx.filter_jit
def _play_references(
    task: AbstractTask, names: dict[str, str], *, tasks: int, test: bool, lengths: Sequence[int]
) -> dict[str, Table]:
    if not names:
        return {}
    steps = max(lengths)
    agents = make_references(task, test=test, steps=steps)

    def play_task(keys: tuple[Array, Array]) -> dict[str, Table]:
        key_problem, key_play = keys
        problem = task.sample(key_problem, test=test)
        tables = {}
        for name, agent in names.items():
            played = play(task, agents[agent](problem), problem, steps=steps, key=key_play)
            tables[name] = {"return": at_lengths(jnp.cumsum(played.reward), 0.0, lengths)}
            if played.regret is not None:
                tables[name] |= {
                    "cumulative_regret": at_lengths(jnp.cumsum(played.regret), 0.0, lengths),
                    "regret": at_lengths(played.regret, lengths=lengths),
                }
        return tables

    return jax.lax.map(play_task, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))


@eqx.filter_jit
def _evaluate_predictions(oracle: Any, task: AbstractRegressionTask, tasks: int) -> Table:
    """Score an `AbstractRegressionOracle`."""

    def predict(x: Array, y: Array, query_x: Array, key: Array) -> Predicted:
        del key
        beliefs = beliefs_at_lengths(oracle.prior(x.dtype), oracle.unroll(x, y))
        return Predicted(jax.vmap(lambda belief: belief.predict(query_x))(beliefs), {}, {})

    return score_predictor(predict, task, tasks=tasks)
