"""A model on the test tasks of its task."""

import dataclasses

import numpy as np

from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.control import evaluate_control
from recurrent_laplace.evaluation.regression import evaluate_regression
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractControlTask, AbstractRegressionTask, AbstractTask

TEST_TASKS = 128


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What to test on, and how."""

    tasks: int = TEST_TASKS
    """Number of test tasks; the first 128 are the same however many there are."""
    greedy: bool = False
    """Take the likeliest action instead of a draw from the policy (control)."""

    def check(self) -> None:
        """Refuse what cannot be run."""
        check_size("tasks", self.tasks)


def evaluate(
    model: Agent | Regressor, task: AbstractTask, learning: LearningConfig, config: EvaluationConfig
) -> dict[str, np.ndarray]:
    """For each metric, a row per test task and a column per length; NaN is what has no value.

    ```python
    table = rl.evaluate(state.model, config.task, config.learning, rl.EvaluationConfig(tasks=8))
    table["return"][:, -1].mean()
    ```
    """
    config.check()
    check_fit(model, task)
    if isinstance(model, Agent):
        assert isinstance(task, AbstractControlTask)
        table = evaluate_control(
            model,
            task,
            tasks=config.tasks,
            samples=learning.acting_samples,
            policy=learning.acting_policy,
            greedy=config.greedy,
        )
    else:
        assert isinstance(task, AbstractRegressionTask)
        table = evaluate_regression(model, task, tasks=config.tasks)
    return {name: np.asarray(column, dtype=np.float64) for name, column in table.items()}


def check_fit(model: Agent | Regressor, task: AbstractTask) -> None:
    """Refuse a task whose shapes are not the model's."""
    if isinstance(model, Regressor):
        if not isinstance(task, AbstractRegressionTask):
            raise ValueError(f"task {task.name!r} is to be acted in; this model was trained to predict.")
        return
    if not isinstance(task, AbstractControlTask):
        raise ValueError(f"task {task.name!r} is to be predicted; this agent was trained to act.")
    observed = model.observation_embedder.mlp.layers[0].weight.shape[-1]
    if (observed, model.actions) != (task.observation_size, task.actions):
        raise ValueError(
            f"task {task.name!r} has observations of size {task.observation_size} and {task.actions} "
            f"actions; this agent was trained with {observed} and {model.actions}."
        )
