"""Exact belief and reference agents of the gridworld."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.errors import check_size
from recurrent_laplace.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    Targets,
    surprise_at,
)
from recurrent_laplace.tasks import Gridworld, Step, register_support
from recurrent_laplace.tasks.gridworld import MOVES
from recurrent_laplace.tasks.support import EXACT


class GridBelief(AbstractExactBelief):
    """Posterior over the goal: uniform over the tiles that the history does not exclude."""

    possible: Bool[Array, "S S"]
    start: Int[Array, " 2"]
    episode_steps: Int[Array, ""]
    episode_length: int = eqx.field(static=True)

    @property
    def probabilities(self) -> Float[Array, "*lead S S"]:
        """Probability of each tile to be the goal."""
        possible = self.possible.astype(float)
        return possible / jnp.sum(possible, axis=(-2, -1), keepdims=True)

    def entropy(self) -> Float[Array, ""]:
        """Entropy of the goal: the log of the number of possible tiles."""
        return jnp.log(jnp.sum(self.possible).astype(float))

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of the reward and the next position, which only the goal makes uncertain."""
        landing, times_out = self.landing(observation, action), self.times_out()
        probability = self.probabilities[landing[0], landing[1]]
        paid = outcome.reward > 0
        expected = jnp.where(paid | times_out, self.start, landing)
        is_expected = jnp.all(position(outcome.observation) == expected)
        return surprise_at(jnp.where(paid, probability, 1 - probability) * is_expected)

    def landing(self, observation: Float[Array, " O"], action: Array) -> Int[Array, " 2"]:
        """Tile that an action leads to, before a return to the start."""
        target = position(observation) + jnp.array(MOVES)[action]
        return jnp.clip(target, 0, self.possible.shape[-1] - 1)

    def times_out(self) -> Bool[Array, ""]:
        """Whether the next step is the last of the episode."""
        return self.episode_steps + 1 >= self.episode_length


class GridOracle(AbstractOracle[GridBelief]):
    """Exact belief about the goal: excludes visited tiles, and keeps one tile after a reward.

    An outcome that contradicts the belief, since the goal has moved, restarts it: a reward on an excluded
    tile makes it the goal, and when no tile is left, all are possible but the start and the visited one.
    """

    task: Gridworld = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> GridBelief:
        start = position(observation)
        return GridBelief(~self._tile(start), start, jnp.zeros((), int), self.task.episode_length)

    def update(
        self, belief: GridBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> GridBelief:
        landing, times_out = belief.landing(observation, action), belief.times_out()
        paid = outcome.reward > 0
        # At the end of an episode, the observation is the start and not the visited tile.
        visited = self._tile(jnp.where(times_out, landing, position(outcome.observation)))
        remaining = belief.possible & ~visited
        restarted = ~visited & ~self._tile(belief.start)
        remaining = jnp.where(jnp.any(remaining), remaining, restarted)
        return GridBelief(
            jnp.where(paid, self._tile(landing), remaining),
            belief.start,
            jnp.where(paid | times_out, 0, belief.episode_steps + 1),
            belief.episode_length,
        )

    def read(self, belief: GridBelief) -> Float[Array, " K"]:
        return belief.probabilities.reshape(-1)

    def targets(self, beliefs: Any, observation: Float[np.ndarray, "E T O"]) -> Targets:
        """Probabilities of the tiles; the parameters are the goal's row and column."""
        size, (tasks, steps) = self.task.size, observation.shape[:2]
        belief = np.asarray(beliefs, float)
        # Normalised in double precision, so that zero variances are exactly zero.
        belief = belief / belief.sum(axis=-1, keepdims=True)
        tiles = np.stack(np.divmod(np.arange(size**2), size), axis=-1)
        mean = belief @ tiles
        variance = np.maximum(belief @ tiles**2 - mean**2, 0)
        positions = np.argmax(observation.reshape(tasks, steps, 2, size), axis=-1)
        landings = np.clip(positions[:, :, None] + np.array(MOVES), 0, size - 1)
        return Targets(belief, "exclusive", mean, variance, landings @ np.array([size, 1]))

    def _tile(self, tile: Int[Array, " 2"]) -> Bool[Array, "S S"]:
        line = jnp.arange(self.task.size)
        return (line == tile[0])[:, None] & (line == tile[1])


class Walker(AbstractReference[GridBelief]):
    """Agent that walks to the nearest possible tile by a shortest path.

    Ties go to the tile with the fewest possible neighbours, so that no isolated tile is left behind.

    ```python
    agent = Walker(GridOracle(rl.Gridworld(size=5)))
    ```
    """

    oracle: GridOracle

    def act(self, belief: GridBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del key
        start, side = position(observation), belief.possible.shape[-1]
        line = jnp.arange(side)
        distance = jnp.abs(line - start[0])[:, None] + jnp.abs(line - start[1])
        # At most four neighbours, so that they only break ties of the distance.
        cost = 5 * distance + _neighbours(belief.possible)
        nearest = jnp.argmin(jnp.where(belief.possible, cost, 10 * side))
        return _towards(start, jnp.stack([nearest // side, nearest % side]))


class ToldWalker(AbstractReference[GridBelief]):
    """Agent that knows the goal of one problem: an upper bound of the return."""

    oracle: GridOracle
    goal: Int[Array, " 2"]

    def act(self, belief: GridBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del belief, key
        return _towards(position(observation), self.goal)


def memoryless_return(task: Gridworld, *, steps: int) -> float:
    """Expected return after `steps` of the best cyclic walk, which acts on the position alone.

    The walk follows one cycle through all tiles, or all but one if their number is odd (a corner for the
    start in any tile), so that each step of an episode visits a new tile until the time is out. A goal at
    distance d along the walk pays once in d steps; a goal beyond the end of an episode never does.

    ```python
    memoryless_return(rl.Gridworld(size=5), steps=100)  # 13.67
    ```
    """
    check_size("steps", steps)
    goals = task.size**2 - 1
    on_cycle = _walk(task, goals - task.size % 2, steps) / goals
    off_cycle = _walk(task, goals, steps) / goals
    if task.start == "corner" or task.size % 2 == 0:
        return off_cycle
    return (on_cycle * goals + off_cycle) / (goals + 1)


def _walk(task: Gridworld, tiles: int, steps: int) -> float:
    """Sum over the goals of the returns of a walk that visits this many new tiles."""
    distances = np.arange(1, min(tiles, task.episode_length) + 1)
    return float(np.sum(steps // distances))


def position(observation: Float[Array, " O"]) -> Int[Array, " 2"]:
    """Row and column of a one-hot observation."""
    return jnp.argmax(observation.reshape(2, -1), axis=-1)


def _neighbours(tiles: Bool[Array, "S S"]) -> Int[Array, "S S"]:
    """Number of marked tiles among the four neighbours of each tile."""
    padded = jnp.pad(tiles.astype(int), 1)
    vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
    return vertical + padded[1:-1, :-2] + padded[1:-1, 2:]


def _towards(start: Int[Array, " 2"], target: Int[Array, " 2"]) -> Int[Array, ""]:
    """First action of a shortest path: rows first, then columns."""
    vertical = jnp.where(target[0] < start[0], 0, 1)
    horizontal = jnp.where(target[1] < start[1], 2, 3)
    return jnp.where(target[0] != start[0], vertical, horizontal)


def _references(task: Gridworld, oracle: GridOracle, *, steps: int) -> dict[str, Any]:
    del task, steps
    return {"greedy": lambda _: Walker(oracle), "told": lambda problem: ToldWalker(oracle, problem.goal)}


register_support(
    Gridworld,
    oracle=lambda task, **_: GridOracle(task),
    references=_references,
    reported={EXACT: "greedy", "told the goal": "told"},
)
