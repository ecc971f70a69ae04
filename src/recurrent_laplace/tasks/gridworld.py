"""Gridworld with a hidden goal."""

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.models import Discrete
from recurrent_laplace.posterior import (
    AbstractLikelihood,
    BernoulliLikelihood,
    CategoricalLikelihood,
    JointLikelihood,
)
from recurrent_laplace.tasks.base import AbstractControlTask, Step, Vocabulary
from recurrent_laplace.tasks.registry import register_task
from recurrent_laplace.tasks.shifts import CONTROL_SHIFTS, Shift
from recurrent_laplace.tasks.support import register_support

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Changes of (row, column) by the actions up, down, left and right."""

LARGEST_VOCABULARY = 64
"""Tiles per side up to which all observations, one for each tile, are listed."""


class GridProblem(eqx.Module):
    """Tiles of the start and of the goal."""

    start: Int[Array, " 2"]
    goal: Int[Array, " 2"]


class GridState(eqx.Module):
    """Position of the agent, steps of the episode so far, and steps of the task."""

    position: Int[Array, " 2"]
    episode_steps: Int[Array, ""]
    steps: Int[Array, ""]


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class Gridworld(AbstractControlTask):
    """Gridworld with a hidden goal, to be found and then returned to.

    Walls block. The goal pays 1 and ends the episode, as does running out of time; the next episode begins at
    the start. The observation is the one-hot row and column of the agent, never the goal.

    ```python
    task = rl.Gridworld(size=5)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))  # (10,)
    ```
    """

    name: ClassVar[str] = "gridworld"

    size: int = 5
    """Tiles per side."""
    start: Literal["uniform", "corner"] = "uniform"
    """Start of a problem: any tile but the goal's, or always a corner."""
    episode_length: int = 15
    """Steps after which an episode is truncated."""

    def check(self) -> None:
        check_size("size", self.size)
        if self.size < 2:
            raise ValueError(f"size must be at least 2, to have a start and a goal; got {self.size}.")
        check_choice("start", self.start, ("uniform", "corner"))
        check_size("episode_length", self.episode_length)

    @property
    def action_space(self) -> Discrete:
        return Discrete(len(MOVES))

    @property
    def observation_size(self) -> int:
        return 2 * self.size

    def targets(self) -> dict[str, AbstractLikelihood]:
        tile = JointLikelihood(("row", "column"), (CategoricalLikelihood(self.size),) * 2)
        return {"reward": BernoulliLikelihood(1), "observation": tile}

    def vocabulary(self) -> Vocabulary | None:
        if self.size > LARGEST_VOCABULARY:
            return None
        rows, columns = np.divmod(np.arange(self.size**2), self.size)
        one_hot = np.eye(self.size)
        return Vocabulary(np.concatenate([one_hot[rows], one_hot[columns]], axis=1), np.array([0.0, 1.0]))

    def sample(self, key: Array, *, test: bool = False) -> GridProblem:
        del test
        key_start, key_goal = jax.random.split(key)
        tiles = self.size**2
        start = jnp.zeros((), int)
        if self.start == "uniform":
            start = jax.random.randint(key_start, (), 0, tiles)
        goal = jax.random.randint(key_goal, (), 0, tiles - 1)
        goal = goal + (goal >= start)
        return GridProblem(self._tile(start), self._tile(goal))

    def reset(self, problem: GridProblem, key: Array) -> tuple[GridState, Float[Array, " O"]]:
        del key
        zero = jnp.zeros((), int)
        return GridState(problem.start, zero, zero), self._observe(problem.start)

    def step(
        self, problem: GridProblem, state: GridState, action: Array, key: Array
    ) -> tuple[GridState, Step]:
        del key
        position = jnp.clip(state.position + jnp.array(MOVES)[action], 0, self.size - 1)
        episode_steps = state.episode_steps + 1
        steps = state.steps + 1
        terminated = jnp.all(position == problem.goal)
        truncated = ~terminated & (episode_steps >= self.episode_length)
        episode_end = terminated | truncated
        position = jnp.where(episode_end, problem.start, position)
        reward = terminated.astype(float)
        best = self.best_return(problem, steps) - self.best_return(problem, state.steps)
        return (
            GridState(position, jnp.where(episode_end, 0, episode_steps), steps),
            Step(self._observe(position), reward, terminated, truncated, best - reward),
        )

    def best_return(self, problem: GridProblem, steps: Int[Array, ""]) -> Float[Array, ""]:
        """Return after `steps` of an agent that knows the goal: one for each shortest path."""
        distance = jnp.sum(jnp.abs(problem.goal - problem.start))
        return jnp.where(distance <= self.episode_length, steps // distance, 0).astype(float)

    def _tile(self, index: Int[Array, ""]) -> Int[Array, " 2"]:
        return jnp.stack([index // self.size, index % self.size])

    def _observe(self, position: Int[Array, " 2"]) -> Float[Array, " O"]:
        return jax.nn.one_hot(position, self.size).reshape(-1)


def move_goal(task: Gridworld, problem: GridProblem, key: Array) -> GridProblem:
    """Move the goal to another tile."""
    tiles = task.size**2
    start, goal = (tile[0] * task.size + tile[1] for tile in (problem.start, problem.goal))
    low, high = jnp.minimum(start, goal), jnp.maximum(start, goal)
    other = jax.random.randint(key, (), 0, tiles - 2)
    other = other + (other >= low)
    other = other + (other >= high)
    return GridProblem(problem.start, jnp.stack([other // task.size, other % task.size]))


def remove_goal(task: Gridworld, problem: GridProblem, key: Array) -> GridProblem:
    """Put the goal out of reach of any episode, so that regret is zero."""
    del task, key
    return GridProblem(problem.start, jnp.full_like(problem.goal, -(10**6)))


def goal_beside_start(task: Gridworld, problem: GridProblem, key: Array) -> GridProblem:
    """Put the goal next to the start."""
    neighbours = problem.start + jnp.array(MOVES)
    inside = jnp.all((neighbours >= 0) & (neighbours < task.size), axis=-1)
    chosen = jax.random.categorical(key, jnp.where(inside, 0.0, -jnp.inf))
    return GridProblem(problem.start, neighbours[chosen])


register_support(
    Gridworld,
    parameters=lambda task, problem: problem.goal.astype(float),
    shifts={
        **CONTROL_SHIFTS,
        "moved": Shift(problem=move_goal),
        "support": Shift(problem=remove_goal, from_the_start=True),
        "prior": Shift(problem=goal_beside_start, from_the_start=True),
    },
)
