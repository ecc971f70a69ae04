"""A grid with a hidden goal."""

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.tasks.base import AbstractControlTask, Alphabet, Step

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right: changes of (row, column)."""


class GridProblem(eqx.Module):
    """Where one begins, and where the goal is."""

    start: Int[Array, " 2"]
    goal: Int[Array, " 2"]


class GridState(eqx.Module):
    """Where one is, for how many steps of the episode, and of the task."""

    position: Int[Array, " 2"]
    episode_steps: Int[Array, ""]
    steps: Int[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gridworld(AbstractControlTask):
    """Find a hidden goal on a grid, then go there again and again.

    Walls block. The goal pays 1 and sends back to the start; so does running out of time, unpaid. The
    observation is the row and the column, one-hot; the goal is never seen.

    ```python
    task = rl.Gridworld(size=5)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))  # (10,)
    ```
    """

    name: ClassVar[str] = "gridworld"

    size: int = 5
    """Tiles on each side."""
    start: Literal["uniform", "corner"] = "uniform"
    """Where tasks begin: on any tile but the goal's, or always in a corner."""
    episode_length: int = 15
    """Steps until one is sent back to the start."""

    def check(self) -> None:
        check_size("size", self.size)
        if self.size < 2:
            raise ValueError(f"size must be at least 2, to have a start and a goal; got {self.size}.")
        check_choice("start", self.start, ("uniform", "corner"))
        check_size("episode_length", self.episode_length)

    @property
    def actions(self) -> int:
        return len(MOVES)

    @property
    def observation_size(self) -> int:
        return 2 * self.size

    def alphabet(self) -> Alphabet | None:
        rows, columns = np.divmod(np.arange(self.size**2), self.size)
        one_hot = np.eye(self.size)
        return Alphabet(np.concatenate([one_hot[rows], one_hot[columns]], axis=1), np.array([0.0, 1.0]))

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
        over = terminated | truncated
        position = jnp.where(over, problem.start, position)
        reward = terminated.astype(float)
        best = self.best_return(problem, steps) - self.best_return(problem, state.steps)
        return (
            GridState(position, jnp.where(over, 0, episode_steps), steps),
            Step(self._observe(position), reward, terminated, truncated, best - reward),
        )

    def best_return(self, problem: GridProblem, steps: Int[Array, ""]) -> Float[Array, ""]:
        """Reward after `steps` of an agent that was told the goal: one for each shortest path."""
        distance = jnp.sum(jnp.abs(problem.goal - problem.start))
        return jnp.where(distance <= self.episode_length, steps // distance, 0).astype(float)

    def _tile(self, index: Int[Array, ""]) -> Int[Array, " 2"]:
        return jnp.stack([index // self.size, index % self.size])

    def _observe(self, position: Int[Array, " 2"]) -> Float[Array, " O"]:
        return jax.nn.one_hot(position, self.size).reshape(-1)
