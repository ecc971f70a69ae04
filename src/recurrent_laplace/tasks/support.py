"""Optional capabilities of tasks, such as oracles and shifts, declared for each class of tasks."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from recurrent_laplace.errors import check_choice
from recurrent_laplace.tasks.base import AbstractTask

if TYPE_CHECKING:
    from recurrent_laplace.tasks.shifts import Shift

EXACT = "exact Bayes"
"""Name in tables of the reference that results are compared with."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskSupport:
    """Optional capabilities of a task: oracle, reference agents, parameters, shifts and picture.

    **Arguments:** each is None where the task lacks the capability.

    - `oracle(task, test=..., steps=...)`: an `AbstractOracle` of `recurrent_laplace.oracles`, which computes
      the exact belief under the test or training prior, for up to `steps` steps;
    - `references(task, oracle, steps=...)`: reference agents by name, each a function from a problem to an
      `AbstractReference` of `recurrent_laplace.oracles`;
    - `reported`: from names in tables to the names in `references` of the agents that evaluation reports;
    - `parameters(task, problem)`: the parameters of a problem as a vector, to be decoded from beliefs;
    - `shifts`: distribution shifts by name, each an `rl.Shift`;
    - `draw(task, key, count)`: a Matplotlib figure of `count` problems.

    ```python
    support = rl.TaskSupport(parameters=lambda task, problem: problem)
    support.oracle  # None
    ```
    """

    oracle: Callable[..., Any] | None = None
    references: Callable[..., Mapping[str, Callable[[Any], Any]]] | None = None
    reported: Mapping[str, str] | None = dataclasses.field(default_factory=lambda: {EXACT: "greedy"})
    parameters: Callable[[Any, Any], Any] | None = None
    shifts: "Mapping[str, Shift] | None" = None
    draw: Callable[..., Any] | None = None


PARTS = {
    "oracle": "an exact belief",
    "references": "reference agents",
    "reported": "names of reference agents",
    "parameters": "the parameters of a problem as a vector",
    "shifts": "changes of the world",
    "draw": "a picture",
}
"""Descriptions of the parts of `TaskSupport`, for messages."""

_SUPPORT: dict[type, dict[str, Any]] = {}


def register_support(task: type[AbstractTask], **parts: Any) -> None:
    """Declare optional capabilities of a class of tasks, in addition to those already declared.

    A subclass inherits the parts of its bases. Where one does not hold for it, register its own, or None.

    **Arguments:**

    - `task`: the class of tasks.
    - `parts`: `oracle`, `references`, `reported`, `parameters`, `shifts`, `draw`, as in `rl.TaskSupport`.

    ```python
    import dataclasses

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class SlipperyGrid(rl.Gridworld):
        name = "slippery_grid"

    rl.register_support(SlipperyGrid, oracle=None, references=None)  # those of the gridworld would be wrong
    ```
    """
    for part in parts:
        check_choice("part", part, tuple(PARTS))
    _SUPPORT.setdefault(task, {}).update(parts)


def support_of(task: AbstractTask) -> TaskSupport:
    """Collect the parts registered for the class of a task and its bases."""
    parts: dict[str, Any] = {}
    for kind in reversed(type(task).__mro__):
        parts |= _SUPPORT.get(kind, {})
    return TaskSupport(**parts)


def require_support(task: AbstractTask, part: str, *, verb: str) -> Any:
    """Return one part of a task; refuse a task without it, with a sentence that says how to add it."""
    value = getattr(support_of(task), part)
    if value is None:
        raise ValueError(
            f"{verb} needs {PARTS[part]}, and the task {task.name!r} has none: "
            f"add it by rl.register_task(..., {part}=...) or rl.register_support."
        )
    return value
