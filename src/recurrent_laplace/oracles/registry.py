"""Oracle and reference agents of a task."""

from collections.abc import Callable

from recurrent_laplace.oracles.base import AbstractOracle, AbstractReference, RandomAgent
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask, require_support
from recurrent_laplace.tasks.base import Problem
from recurrent_laplace.tasks.held_out import LENGTHS


def make_oracle(task: AbstractTask, *, test: bool = True, steps: int = max(LENGTHS)) -> AbstractOracle:
    """Make the oracle of a task, with the test or training prior, for up to `steps` steps.

    ```python
    oracle = make_oracle(rl.DirichletBandit(arms=5), test=True)
    ```
    """
    return require_support(task, "oracle", verb="make_oracle")(task, test=test, steps=steps)


def make_references(
    task: AbstractTask, *, test: bool = True, steps: int = max(LENGTHS)
) -> dict[str, Callable[[Problem], AbstractReference]]:
    """Make reference agents by name, each a function of a problem, which only `told` uses.

    ```python
    task = rl.Gridworld()
    agent = make_references(task)["told"](task.sample(jax.random.key(0)))
    ```
    """
    oracle = make_oracle(task, test=test, steps=steps)
    references: dict[str, Callable[[Problem], AbstractReference]] = {}
    if isinstance(task, AbstractControlTask):
        references["random"] = lambda _: RandomAgent(oracle, task.action_space)
    own = require_support(task, "references", verb="make_references")
    return {**references, **own(task, oracle, steps=steps)}
