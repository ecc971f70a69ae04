"""Tasks by name."""

import dataclasses
from typing import Any

from recurrent_laplace.errors import check_choice
from recurrent_laplace.tasks.bandits import BetaBandit, DirichletBandit, TwoArmBandit
from recurrent_laplace.tasks.base import AbstractTask
from recurrent_laplace.tasks.coin import PiecewiseCoin
from recurrent_laplace.tasks.gridworld import Gridworld
from recurrent_laplace.tasks.regression import Regression

TASKS: dict[str, type[AbstractTask]] = {
    task.name: task
    for task in (Regression, DirichletBandit, Gridworld, BetaBandit, TwoArmBandit, PiecewiseCoin)
}


def register_task(task: type[AbstractTask]) -> type[AbstractTask]:
    """Make a task known by its `name`, to the command line as well. Usable as a decorator.

    ```python
    @rl.register_task
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Corridor(rl.AbstractControlTask):
        name = "corridor"
        ...
    ```
    """
    if not (isinstance(task, type) and issubclass(task, AbstractTask)):
        raise ValueError(f"task must be a subclass of AbstractTask; got {task!r}.")
    # A subclass inherits the mark of a dataclass, but not its fields.
    if "__dataclass_fields__" not in vars(task):
        raise ValueError(f"task must be a frozen dataclass; got {task!r}.")
    if not isinstance(getattr(task, "name", None), str):
        raise ValueError(f"task must have a name; {task!r} has none.")
    if TASKS.get(task.name, task) is not task:
        raise ValueError(f"task name {task.name!r} is taken by {TASKS[task.name].__qualname__}.")
    TASKS[task.name] = task
    return task


def make_task(name: str, /, **parameters: Any) -> AbstractTask:
    """The task of that name.

    ```python
    task = rl.make_task("gridworld", size=7)
    ```
    """
    check_choice("task", name, tuple(TASKS))
    known = [field.name for field in dataclasses.fields(TASKS[name])]
    for parameter in parameters:
        check_choice(f"parameter of task {name!r}", parameter, known)
    task = TASKS[name](**parameters)
    task.check()
    return task
