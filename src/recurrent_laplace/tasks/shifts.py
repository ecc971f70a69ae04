"""Distribution shifts: tasks that change without notice to the agent."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.models import AbstractActionSpace
from recurrent_laplace.models.config import PolicyInput
from recurrent_laplace.tasks.base import (
    AbstractControlTask,
    AbstractRegressionTask,
    AbstractTask,
    Problem,
    State,
    Step,
)
from recurrent_laplace.tasks.support import require_support, support_of

SHIFTS = {
    "none": "nothing changes",
    "new_task": "another problem of the same prior from the start on, which should raise no alarm",
    "moved": "the goal moves, the arms swap their probabilities, or values come from another function",
    "support": "a problem outside the training support: a grid without a goal, equal arms, a function "
    "of twice the amplitude",
    "prior": "problems of another prior: a goal next to the start, arms of another concentration, the "
    "fastest cosine alone",
    "horizon": "no change but more steps than in training",
    "function_class": "functions of another class: steps where the series crosses zero",
    "observation_noise": "Gaussian noise on the observation",
    "dropped_rewards": "rewards that are not always observed",
    "remapped_actions": "every action has the effect of another one",
    "slips": "actions that are sometimes replaced by random ones",
}
"""Descriptions of the shifts by name."""

OBSERVATION_NOISE_STDDEV = 0.5
DROP_PROBABILITY = 0.5
SLIP_PROBABILITY = 0.3


def _unchanged(task: Any, value: Any, key: Array) -> Any:
    del task, key
    return value


def _unchanged_values(task: Any, x: Array, y: Array, key: Array) -> Array:
    del task, x, key
    return y


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shift:
    """Distribution shift of a task, from the start or after a number of steps.

    Each function gets the task that the agent was trained on and a value, and returns the value after the
    shift. By default, nothing changes.

    **Arguments:**

    - `problem(task, problem, key)`: the problem; in a regression task it holds from the start.
    - `action(task, action, key)`: the action that the environment receives (control).
    - `outcome(task, step, key)`: the outcome that the agent observes (control).
    - `values(task, x, y, key)`: the values at the inputs x (regression).
    - `from_the_start`: whether the shift holds from the first step on.

    ```python
    other_arms = rl.Shift(problem=lambda task, problem, key: jnp.roll(problem, 1))
    ```
    """

    problem: Callable[[Any, Problem, Array], Problem] = _unchanged
    action: Callable[[Any, Array, Array], Array] = _unchanged
    outcome: Callable[[Any, Step, Array], Step] = _unchanged
    values: Callable[[Any, Array, Array, Array], Array] = _unchanged_values
    from_the_start: bool = False


def shifts_of(task: AbstractTask) -> tuple[str, ...]:
    """Names of the shifts of a task: those of `SHIFTS` first, then custom ones."""
    own = support_of(task).shifts or {}
    return tuple(sorted(own, key=list({**SHIFTS, **own}).index))


def shift_of(task: AbstractTask, name: str) -> Shift:
    """Shift of a task by name."""
    shifts = require_support(task, "shifts", verb="a shift")
    check_choice("shift", name, shifts_of(task))
    return shifts[name]


class ShiftedProblem(eqx.Module):
    """Problem before and after the shift."""

    before: Problem
    after: Problem


class ShiftedState(eqx.Module):
    """State of the environment, and the number of steps so far."""

    world: State
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shifted(AbstractControlTask):
    """Control task with a shift after `at` steps.

    Regret is that of `base` for the current problem.

    ```python
    task = Shifted(base=rl.Gridworld(), shift="moved", at=50)
    ```
    """

    name: ClassVar[str] = "shifted"

    base: AbstractControlTask
    """Task that the agent was trained on."""
    shift: str = "moved"
    """Name of the shift: one of `shifts_of(base)`."""
    at: int = 50
    """Steps before the shift, unless it holds from the start."""

    def check(self) -> None:
        if not isinstance(self.base, AbstractControlTask):
            raise ValueError(f"base must be a control task; got {self.base.name!r}.")
        shift_of(self.base, self.shift)
        check_size("at", self.at)

    @property
    def policy_input(self) -> PolicyInput:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.policy_input

    @property
    def observation_size(self) -> int:
        return self.base.observation_size

    @property
    def action_space(self) -> AbstractActionSpace:
        return self.base.action_space

    def sample(self, key: Array, *, test: bool = False) -> ShiftedProblem:
        key_problem, key_change = jax.random.split(key)
        problem, shift = self.base.sample(key_problem, test=test), shift_of(self.base, self.shift)
        after = shift.problem(self.base, problem, key_change)
        return ShiftedProblem(after if shift.from_the_start else problem, after)

    def reset(self, problem: ShiftedProblem, key: Array) -> tuple[ShiftedState, Float[Array, " O"]]:
        world, observation = self.base.reset(problem.before, key)
        return ShiftedState(world, jnp.zeros((), int)), observation

    def step(
        self, problem: ShiftedProblem, state: ShiftedState, action: Array, key: Array
    ) -> tuple[ShiftedState, Step]:
        key_world, key_change = jax.random.split(key)
        shift = shift_of(self.base, self.shift)
        changed = (state.steps >= self.at) | shift.from_the_start
        current = jax.tree.map(lambda old, new: jnp.where(changed, new, old), problem.before, problem.after)
        action = jnp.where(changed, shift.action(self.base, action, key_change), action)
        world, step = self.base.step(current, state.world, action, key_world)
        outcome = shift.outcome(self.base, step, key_change)
        step = jax.tree.map(lambda old, new: jnp.where(changed, new, old), step, outcome)
        return ShiftedState(world, state.steps + 1), step


def shifted_pairs(
    task: AbstractRegressionTask, shift: str, key: Array, *, steps: int, at: int
) -> tuple[Float[Array, "T X"], Float[Array, "T Y"]]:
    """Pairs of a function with a shift after `at` of them, or from the start."""
    change = shift_of(task, shift)
    key_problem, key_pairs, key_change = jax.random.split(key, 3)
    problem = change.problem(task, task.sample(key_problem), key_change)
    x, y = task.pairs(problem, key_pairs, steps)
    start = 0 if change.from_the_start else at
    return x, jnp.where(jnp.arange(steps)[:, None] < start, y, change.values(task, x, y, key_change))


def remap_action(task: AbstractControlTask, action: Array, key: Array) -> Array:
    """Replace each action by another one: the next one, or its reflection at the centre."""
    del key
    return task.action_space.remap(action)


def slip(task: AbstractControlTask, action: Array, key: Array) -> Array:
    """Replace some actions by random ones."""
    key_slip, key_action = jax.random.split(key)
    other = task.action_space.sample(key_action)
    return jnp.where(jax.random.bernoulli(key_slip, SLIP_PROBABILITY), other, action)


def noisy_observation(task: AbstractControlTask, step: Step, key: Array) -> Step:
    """Add Gaussian noise to the observation."""
    del task
    noise = OBSERVATION_NOISE_STDDEV * jax.random.normal(key, step.observation.shape)
    return eqx.tree_at(lambda s: s.observation, step, step.observation + noise)


def drop_reward(task: AbstractControlTask, step: Step, key: Array) -> Step:
    """Replace some rewards by 0."""
    del task
    reward = jnp.where(jax.random.bernoulli(key, DROP_PROBABILITY), 0.0, step.reward)
    return eqx.tree_at(lambda s: s.reward, step, reward)


def noisy_values(task: AbstractRegressionTask, x: Array, y: Array, key: Array) -> Array:
    """Add Gaussian noise to the values."""
    del task, x
    return y + OBSERVATION_NOISE_STDDEV * jax.random.normal(key, y.shape)


CONTROL_SHIFTS = {
    "none": Shift(from_the_start=True),
    "new_task": Shift(from_the_start=True),
    "horizon": Shift(),
    "observation_noise": Shift(outcome=noisy_observation),
    "dropped_rewards": Shift(outcome=drop_reward),
    "remapped_actions": Shift(action=remap_action),
    "slips": Shift(action=slip),
}
"""Shifts of every control task; those of the problem are defined by each task."""

REGRESSION_SHIFTS = {
    "none": Shift(from_the_start=True),
    "new_task": Shift(problem=lambda task, problem, key: task.sample(key), from_the_start=True),
    "horizon": Shift(),
    "observation_noise": Shift(values=noisy_values),
}
"""Shifts of every regression task."""
