"""Registry of objectives by name."""

from typing import TypeVar

from recurrent_laplace.errors import check_choice
from recurrent_laplace.learning.objectives.base import AbstractObjective
from recurrent_laplace.learning.objectives.ppo import PPO
from recurrent_laplace.learning.objectives.regression import RegressionBound
from recurrent_laplace.learning.objectives.vmpo import VMPO

Kind = TypeVar("Kind", bound=type[AbstractObjective])

OBJECTIVES: dict[str, type[AbstractObjective]] = {kind.name: kind for kind in (PPO, RegressionBound, VMPO)}


def register_objective(kind: Kind) -> Kind:
    """Register an objective by its `name`, for configurations, presets and the command line.

    **Arguments:**

    - `kind`: a subclass of `rl.AbstractObjective` with a `name`. It is returned, so this is a decorator.

    ```python
    @rl.register_objective
    class Unclipped(rl.PPO):
        name = "unclipped"
    ```
    """
    if not (isinstance(kind, type) and issubclass(kind, AbstractObjective)):
        raise ValueError(f"objective must be a subclass of AbstractObjective; got {kind!r}.")
    for name, expected in (("name", str), ("acts", bool)):
        if not isinstance(getattr(kind, name, None), expected):
            raise ValueError(f"objective must have a {name} (a {expected.__name__}); {kind!r} has none.")
    if OBJECTIVES.setdefault(kind.name, kind) is not kind:
        raise ValueError(f"objective name {kind.name!r} is taken by {OBJECTIVES[kind.name].__qualname__}.")
    return kind


def find_objective(name: str) -> type[AbstractObjective]:
    """Look up the class of an objective by name."""
    check_choice("objective", name, tuple(OBJECTIVES))
    return OBJECTIVES[name]
