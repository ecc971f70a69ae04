"""Check of a task from outside of the package: its methods run, and shapes stay the same."""

from typing import Any

import jax

from recurrent_laplace.tasks.base import AbstractControlTask, AbstractTask, Step
from recurrent_laplace.tasks.references import one_line, origin_of


def check_dynamics(task: AbstractTask) -> None:
    """Refuse a task that was loaded by a reference if its methods raise errors or change shapes.

    Nothing is computed or compiled: the methods are traced.
    """
    if origin_of(type(task)) is None:
        return
    key = jax.random.key(0)
    problem = _trace(task, "sample", task.sample, key)
    state, observation = _pair(task, "reset", _trace(task, "reset", task.reset, problem, key))
    expected = (task.observation_size,)
    _check_shape(task, "the observation of reset", observation, expected)
    if not isinstance(task, AbstractControlTask):
        return  # `step` takes a prediction, whose size only `pairs` has.
    action = _trace(task, "action_space", lambda key: task.action_space.sample(key), key)
    new_state, step = _pair(task, "step", _trace(task, "step", task.step, problem, state, action, key))
    if not isinstance(step, Step):
        raise ValueError(f"step of task {task.name!r} must return a state and an rl.Step; got {_kind(step)}.")
    _check_shape(task, "the observation of step", step.observation, expected)
    for name in ("reward", "terminated", "truncated"):
        _check_shape(task, f"{name} of step", getattr(step, name), ())
    if step.regret is not None:
        _check_shape(task, "regret of step", step.regret, ())
    if _shapes(new_state) != _shapes(state):
        raise ValueError(
            f"step of task {task.name!r} must return a state of the same shapes and types as it was given: "
            f"{_shapes(state)}; got {_shapes(new_state)}."
        )


def _trace(task: AbstractTask, name: str, method: Any, *arguments: Any) -> Any:
    try:
        return jax.eval_shape(method, *arguments)
    except Exception as problem:  # The code of a user can raise anything.
        raise ValueError(f"{name} of task {task.name!r} cannot be traced: {one_line(problem)}.") from problem


def _pair(task: AbstractTask, name: str, result: Any) -> tuple[Any, Any]:
    if not isinstance(result, tuple) or len(result) != 2:
        raise ValueError(f"{name} of task {task.name!r} must return a pair; got {_kind(result)}.")
    return result


def _check_shape(task: AbstractTask, what: str, array: Any, expected: tuple[int, ...]) -> None:
    shape = getattr(array, "shape", None)
    if shape != expected:
        got = _kind(array) if shape is None else shape
        source = ", from observation_size" if expected else ""
        raise ValueError(f"{what} of task {task.name!r} must have shape {expected}{source}; got {got}.")


def _shapes(tree: Any) -> str:
    leaves = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree)]
    return ", ".join(leaves) or "no arrays"


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
