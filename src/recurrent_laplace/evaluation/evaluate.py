"""Evaluation of a model on fixed test tasks."""

import dataclasses

import numpy as np

from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.control import evaluate_control
from recurrent_laplace.evaluation.regression import evaluate_regression, predictive_samples
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractControlTask, AbstractRegressionTask, AbstractTask

TEST_TASKS = 128
"""Default number of test tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """Options of `rl.evaluate`: the number of test tasks, and how actions are chosen.

    ```python
    config = rl.EvaluationConfig(tasks=8, greedy=True)
    ```
    """

    tasks: int = TEST_TASKS
    """Number of test tasks; fewer tasks are a prefix of more."""
    greedy: bool = False
    """Take the most likely action instead of sampling from the policy (control)."""

    def check(self) -> None:
        """Raise if an option is invalid."""
        check_size("tasks", self.tasks)


def evaluate(
    model: Agent | Regressor, task: AbstractTask, learning: LearningConfig, config: EvaluationConfig
) -> dict[str, np.ndarray]:
    """Evaluate an agent or a regressor on fixed test tasks.

    Returns, for each metric, an array with one row per task and one column per length of the history.
    Missing values are NaN.

    **Arguments:**

    - `model`: agent or regressor.
    - `task`: task to evaluate on, with the shapes of the model's own.
    - `learning`: options of acting, such as `acting_samples`.
    - `config`: number of test tasks, and whether to act greedily.

    ```python
    small = rl.AgentConfig(hidden_size=4, features=2, embedding_sizes=(4,), head_sizes=(4,))
    config = rl.Config(task=rl.TwoArmBandit(), agent=small)
    model = rl.make_train(config).init(jax.random.key(0)).model
    table = rl.evaluate(model, config.task, config.learning, rl.EvaluationConfig(tasks=8))
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
            lookup=learning.lookup,
        )
    else:
        assert isinstance(task, AbstractRegressionTask)
        table = evaluate_regression(
            model, task, tasks=config.tasks, samples=predictive_samples(learning.training_samples)
        )
    return {name: np.asarray(column, dtype=np.float64) for name, column in table.items()}


def check_fit(model: Agent | Regressor, task: AbstractTask) -> None:
    """Raise if the shapes of a task do not fit the model."""
    if isinstance(model, Regressor):
        if not isinstance(task, AbstractRegressionTask):
            raise ValueError(f"task {task.name!r} is a control task; this model was trained to predict.")
        return
    if not isinstance(task, AbstractControlTask):
        raise ValueError(f"task {task.name!r} is a regression task; this agent was trained to act.")
    observed = model.observation_embedder.input_size
    if (observed, model.action_space) != (task.observation_size, task.action_space):
        raise ValueError(
            f"task {task.name!r} has observations of size {task.observation_size} and {task.action_space}; "
            f"this agent was trained with {observed} and {model.action_space}."
        )
