"""Tasks in which something changes that the agent was not told of."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.tasks.bandits import AbstractBandit, DirichletBandit
from recurrent_laplace.tasks.base import AbstractControlTask, AbstractTask, PolicyInput, Problem, State, Step
from recurrent_laplace.tasks.gridworld import GridProblem, Gridworld
from recurrent_laplace.tasks.regression import Regression

SHIFTS = {
    "none": "nothing changes",
    "new_task": "another problem of the same kind from the start on: inside the prior, no alarm wanted",
    "moved": "the goal moves, the arms swap their chances, or values come from another function",
    "support": "a problem that training never had: a grid without a goal, arms that all pay the same, a "
    "function of twice the size",
    "prior": "problems from another prior: a goal next to the start, chances of another concentration, a "
    "function of the fastest cosine alone",
    "horizon": "nothing but time: more steps than training had",
    "function_class": "a function of another kind: a step where the series crosses zero",
    "observation_noise": "noise on the observation",
    "dropped_rewards": "rewards that are paid, but not always seen",
    "remapped_actions": "every action does what another one did",
    "slips": "actions that are sometimes replaced by random ones",
}
"""What can change, in words."""

CONTROL_ONLY = ("dropped_rewards", "remapped_actions", "slips")
REGRESSION_ONLY = ("function_class",)

OBSERVATION_NOISE = 0.5
DROPPED = 0.5
SLIPS = 0.3
PRIOR_ALPHA = 2.0
"""Concentration of a shifted Dirichlet prior: arms that hardly differ."""


def shifts_of(task: AbstractTask) -> tuple[str, ...]:
    """The shifts that mean something in a task."""
    others = CONTROL_ONLY if isinstance(task, Regression) else REGRESSION_ONLY
    return tuple(name for name in SHIFTS if name not in others)


class ShiftedProblem(eqx.Module):
    """The problem before the change, and after it."""

    before: Problem
    after: Problem


class ShiftedState(eqx.Module):
    """The state of the world, and the number of steps so far."""

    world: State
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shifted(AbstractControlTask):
    """A gridworld or a bandit that changes after `at` steps.

    Regret is against an agent that knows the problem of the moment, as `base` counts it.

    ```python
    task = Shifted(base=rl.Gridworld(), shift="moved", at=50)
    ```
    """

    name: ClassVar[str] = "shifted"

    base: AbstractControlTask
    """The task that the agent was trained on."""
    shift: str = "moved"
    """What changes: a word of `SHIFTS`."""
    at: int = 50
    """Steps before the change; what is about the problem as a whole holds from the start."""

    def check(self) -> None:
        check_choice("shift", self.shift, shifts_of(self.base))
        check_size("at", self.at)
        if not isinstance(self.base, Gridworld | AbstractBandit):
            raise ValueError(f"base must be a gridworld or a bandit; got {self.base.name!r}.")

    @property
    def policy_input(self) -> PolicyInput:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.base.policy_input

    @property
    def observation_size(self) -> int:
        return self.base.observation_size

    @property
    def actions(self) -> int:
        return self.base.actions

    def sample(self, key: Array, *, test: bool = False) -> ShiftedProblem:
        key_problem, key_change = jax.random.split(key)
        problem = self.base.sample(key_problem, test=test)
        match self.shift:
            case "moved":
                return ShiftedProblem(problem, moved(self.base, problem, key_change))
            case "support":
                return ShiftedProblem(unsupported(problem), unsupported(problem))
            case "prior":
                other = from_another_prior(self.base, problem, key_change)
                return ShiftedProblem(other, other)
            case _:
                return ShiftedProblem(problem, problem)

    def reset(self, problem: ShiftedProblem, key: Array) -> tuple[ShiftedState, Float[Array, " O"]]:
        world, observation = self.base.reset(problem.before, key)
        return ShiftedState(world, jnp.zeros((), int)), observation

    def step(
        self, problem: ShiftedProblem, state: ShiftedState, action: Array, key: Array
    ) -> tuple[ShiftedState, Step]:
        key_world, key_change = jax.random.split(key)
        changed = state.steps >= self.at
        now = jax.tree.map(lambda old, new: jnp.where(changed, new, old), problem.before, problem.after)
        action = jnp.where(changed, self._action(action, key_change), action)
        world, step = self.base.step(now, state.world, action, key_world)
        step = jax.tree.map(
            lambda old, new: jnp.where(changed, new, old), step, self._outcome(step, key_change)
        )
        return ShiftedState(world, state.steps + 1), step

    def _action(self, action: Array, key: Array) -> Array:
        match self.shift:
            case "remapped_actions":
                return (action + 1) % self.actions
            case "slips":
                key_slip, key_action = jax.random.split(key)
                other = jax.random.randint(key_action, (), 0, self.actions)
                return jnp.where(jax.random.bernoulli(key_slip, SLIPS), other, action)
            case _:
                return action

    def _outcome(self, step: Step, key: Array) -> Step:
        match self.shift:
            case "observation_noise":
                noise = OBSERVATION_NOISE * jax.random.normal(key, step.observation.shape)
                return eqx.tree_at(lambda s: s.observation, step, step.observation + noise)
            case "dropped_rewards":
                seen = jnp.where(jax.random.bernoulli(key, DROPPED), 0.0, step.reward)
                observation = step.observation
                if isinstance(self.base, AbstractBandit):
                    observation = seen[None]
                return eqx.tree_at(lambda s: (s.reward, s.observation), step, (seen, observation))
            case _:
                return step


def moved(task: AbstractControlTask, problem: Any, key: Array) -> Any:
    """Another goal from the same start; the same chances on other arms."""
    if isinstance(task, Gridworld):
        tiles = task.size**2
        start, goal = (tile[0] * task.size + tile[1] for tile in (problem.start, problem.goal))
        low, high = jnp.minimum(start, goal), jnp.maximum(start, goal)
        other = jax.random.randint(key, (), 0, tiles - 2)
        other = other + (other >= low)
        other = other + (other >= high)
        return GridProblem(problem.start, jnp.stack([other // task.size, other % task.size]))
    return jnp.roll(problem, jax.random.randint(key, (), 1, task.actions))


def unsupported(problem: Any) -> Any:
    """A grid whose goal is nowhere; arms that all pay as their mean."""
    if isinstance(problem, GridProblem):
        # Far away: its distance is longer than any episode, so nothing is expected of an agent.
        return GridProblem(problem.start, jnp.full_like(problem.goal, -(10**6)))
    return jnp.full_like(problem, jnp.mean(problem))


def from_another_prior(task: AbstractControlTask, problem: Any, key: Array) -> Any:
    """A goal next to the start; chances from a Dirichlet distribution of another concentration."""
    if isinstance(task, Gridworld):
        steps = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
        near = problem.start + steps
        inside = jnp.all((near >= 0) & (near < task.size), axis=-1)
        chosen = jax.random.categorical(key, jnp.where(inside, 0.0, -jnp.inf))
        return GridProblem(problem.start, near[chosen])
    if isinstance(task, DirichletBandit):
        return jax.random.dirichlet(key, jnp.full(task.arms, PRIOR_ALPHA))
    return jax.random.beta(key, PRIOR_ALPHA, PRIOR_ALPHA, problem.shape)


def shifted_pairs(
    task: Regression, shift: str, key: Array, *, steps: int, at: int
) -> tuple[Float[Array, "T 1"], Float[Array, "T 1"]]:
    """Values of a function that change after `at` of them; what is about the function itself holds from
    the start.
    """
    check_choice("shift", shift, shifts_of(task))
    key_series, key_pairs, key_change = jax.random.split(key, 3)
    series = task.sample(key_series)
    match shift:
        case "new_task":
            series = task.sample(key_change)
        case "support":
            series = eqx.tree_at(lambda s: s.amplitudes, series, 2 * series.amplitudes)
        case "prior":
            alone = jnp.zeros_like(series.amplitudes).at[-1].set(jnp.sign(series.amplitudes[-1]))
            series = eqx.tree_at(lambda s: s.amplitudes, series, alone)
    x, y = task.pairs(series, key_pairs, steps)
    match shift:
        case "moved":
            after = task.sample(key_change)(x)
        case "observation_noise":
            after = y + OBSERVATION_NOISE * jax.random.normal(key_change, y.shape)
        case "function_class":
            return x, jnp.sign(y)
        case _:
            after = y
    return x, jnp.where(jnp.arange(steps)[:, None] < at, y, after)
