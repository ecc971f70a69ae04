"""Registry of tasks by name."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, overload

from recurrent_laplace.errors import check_choice
from recurrent_laplace.tasks.base import AbstractTask
from recurrent_laplace.tasks.support import register_support

TASKS: dict[str, type[AbstractTask]] = {}
"""Every registered task; modules of this folder register theirs when the folder is imported."""

AnyTask = TypeVar("AnyTask", bound=AbstractTask)


@overload
def register_task(task: type[AnyTask], **parts: Any) -> type[AnyTask]: ...
@overload
def register_task(task: None = None, **parts: Any) -> Callable[[type[AnyTask]], type[AnyTask]]: ...
def register_task(task: Any = None, **parts: Any) -> Any:
    """Register a class of tasks by its `name`, for `rl.make_task`, files and the command line.

    Usable as a decorator, with or without arguments.

    **Arguments:**

    - `task`: the class, a frozen dataclass; left out where the decorator has arguments.
    - `parts`: what the task supports: `oracle`, `references`, `reported`, `parameters`, `shifts`, `draw`, as
      in `rl.TaskSupport`. `rl.register_support` adds more of them later.

    ```python
    import dataclasses

    @rl.register_task(parameters=lambda task, problem: problem[:1])
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class FairBandit(rl.BetaBandit):
        name = "fair_bandit"
    ```
    """
    if task is None:
        return lambda task: register_task(task, **parts)
    if not (isinstance(task, type) and issubclass(task, AbstractTask)):
        raise ValueError(f"task must be a subclass of AbstractTask; got {task!r}.")
    # A subclass without the decorator inherits `__dataclass_fields__`, but its own fields are not in it.
    if "__dataclass_fields__" not in vars(task):
        raise ValueError(f"task must be a frozen dataclass; got {task!r}.")
    if "reference" in vars(task)["__dataclass_fields__"]:
        raise ValueError(f"task must not have a parameter called 'reference'; {task!r} has one.")
    if not isinstance(getattr(task, "name", None), str):
        raise ValueError(f"task must have a name; {task!r} has none.")
    if TASKS.get(task.name, task) is not task:
        raise ValueError(f"task name {task.name!r} is taken by {TASKS[task.name].__qualname__}.")
    register_support(task, **parts)
    TASKS[task.name] = task
    return task


def check_task(name: Any) -> None:
    """Refuse an unknown task name, with a message that lists the known ones."""
    check_choice("task", name, tuple(TASKS))


def make_task(name: str, /, **parameters: Any) -> AbstractTask:
    """Make a task from its registered name.

    **Arguments:**

    - `name`: a registered name, as on the command line.
    - `parameters`: values of the fields of the task.

    ```python
    task = rl.make_task("gridworld", size=7)
    ```
    """
    check_task(name)
    known = [field.name for field in dataclasses.fields(TASKS[name])]
    for parameter in parameters:
        check_choice(f"parameter of task {name!r}", parameter, known)
    task = TASKS[name](**parameters)
    task.check()
    return task
