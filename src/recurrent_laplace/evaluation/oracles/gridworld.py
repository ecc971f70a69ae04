"""Where the goal can still be."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.evaluation.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    surprise_at,
)
from recurrent_laplace.tasks import Gridworld, Step
from recurrent_laplace.tasks.gridworld import MOVES


class GridBelief(AbstractExactBelief):
    """Uniform over the tiles on which the goal can still be; one tile after the first reward."""

    possible: Bool[Array, "S S"]
    start: Int[Array, " 2"]
    episode_steps: Int[Array, ""]
    episode_length: int = eqx.field(static=True)

    @property
    def probabilities(self) -> Float[Array, "*lead S S"]:
        """Of each tile, that the goal is there."""
        possible = self.possible.astype(float)
        return possible / jnp.sum(possible, axis=(-2, -1), keepdims=True)

    def entropy(self) -> Float[Array, ""]:
        """Of the goal's tile: the log of the number of tiles left."""
        return jnp.log(jnp.sum(self.possible).astype(float))

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """At the reward and at where one is next, which the belief knows but for the goal."""
        landing, late = self.landing(observation, action), self.late()
        chance = self.probabilities[landing[0], landing[1]]
        paid = outcome.reward > 0
        where = jnp.where(paid | late, self.start, landing)
        seen = jnp.all(position(outcome.observation) == where)
        return surprise_at(jnp.where(paid, chance, 1 - chance) * seen)

    def landing(self, observation: Float[Array, " O"], action: Array) -> Int[Array, " 2"]:
        """The tile that an action leads to, before one is sent back to the start."""
        there = position(observation) + jnp.array(MOVES)[action]
        return jnp.clip(there, 0, self.possible.shape[-1] - 1)

    def late(self) -> Bool[Array, ""]:
        """Whether the next step is the last of the episode."""
        return self.episode_steps + 1 >= self.episode_length


class GridOracle(AbstractOracle[GridBelief]):
    """Crosses out the tiles that were seen to be empty.

    What contradicts the belief (the goal has moved) is treated as news: a reward on a tile that was
    crossed out is where the goal is, and when no tile is left, all are possible again but the start and
    the one just seen.
    """

    task: Gridworld = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> GridBelief:
        start = position(observation)
        return GridBelief(~self._tile(start), start, jnp.zeros((), int), self.task.episode_length)

    def update(
        self, belief: GridBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> GridBelief:
        landing, late = belief.landing(observation, action), belief.late()
        paid = outcome.reward > 0
        # Out of time, one is not seen on the tile that one came to.
        visited = self._tile(jnp.where(late, landing, position(outcome.observation)))
        left = belief.possible & ~visited
        anew = ~visited & ~self._tile(belief.start)
        left = jnp.where(jnp.any(left), left, anew)
        return GridBelief(
            jnp.where(paid, self._tile(landing), left),
            belief.start,
            jnp.where(paid | late, 0, belief.episode_steps + 1),
            belief.episode_length,
        )

    def _tile(self, at: Int[Array, " 2"]) -> Bool[Array, "S S"]:
        line = jnp.arange(self.task.size)
        return (line == at[0])[:, None] & (line == at[1])


class Walker(AbstractReference[GridBelief]):
    """Goes to the nearest tile that the goal can be on, by a shortest path.

    Of several it takes the one with the fewest such neighbours, so that none is left behind alone.

    ```python
    agent = Walker(GridOracle(rl.Gridworld(size=5)))
    ```
    """

    oracle: GridOracle

    def act(self, belief: GridBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del key
        here, side = position(observation), belief.possible.shape[-1]
        line = jnp.arange(side)
        distance = jnp.abs(line - here[0])[:, None] + jnp.abs(line - here[1])
        # A neighbour weighs less than any distance: there are at most four.
        cost = 5 * distance + _neighbours(belief.possible)
        nearest = jnp.argmin(jnp.where(belief.possible, cost, 10 * side))
        return _towards(here, jnp.stack([nearest // side, nearest % side]))


class ToldWalker(AbstractReference[GridBelief]):
    """Was told the goal: the most that anyone can get. Built for one problem."""

    oracle: GridOracle
    goal: Int[Array, " 2"]

    def act(self, belief: GridBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del belief, key
        return _towards(position(observation), self.goal)


def position(observation: Float[Array, " O"]) -> Int[Array, " 2"]:
    """Row and column, from their one-hot codes."""
    return jnp.argmax(observation.reshape(2, -1), axis=-1)


def _neighbours(tiles: Bool[Array, "S S"]) -> Int[Array, "S S"]:
    """How many of the tiles above, below, left and right of each are marked."""
    padded = jnp.pad(tiles.astype(int), 1)
    vertical = padded[:-2, 1:-1] + padded[2:, 1:-1]
    return vertical + padded[1:-1, :-2] + padded[1:-1, 2:]


def _towards(here: Int[Array, " 2"], there: Int[Array, " 2"]) -> Int[Array, ""]:
    """First to its row, then to its column."""
    vertical = jnp.where(there[0] < here[0], 0, 1)
    horizontal = jnp.where(there[1] < here[1], 2, 3)
    return jnp.where(there[0] != here[0], vertical, horizontal)
