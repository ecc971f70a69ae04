"""A coin that is exchanged now and then."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number
from recurrent_laplace.tasks.base import AbstractControlTask, Alphabet, PolicyInput, Step

TAILS, HEADS = 0, 1
"""The actions: what is predicted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecewiseCoin(AbstractControlTask):
    """Predict the tosses of a coin whose chance of heads is drawn anew now and then.

    A right prediction pays 1. The observation is the last toss: 1 for heads, -1 for tails, 0 before the
    first. Every toss is an episode, since no prediction changes what comes. A problem is the first
    chance of heads; the state is the present one. Regret is against knowing the present one.

    ```python
    task = rl.PiecewiseCoin(hazard=0.1)
    chance = task.sample(jax.random.key(0))
    state, observation = task.reset(chance, jax.random.key(1))
    state, step = task.step(chance, state, jnp.array(1), jax.random.key(2))  # predict heads
    ```
    """

    name: ClassVar[str] = "coin"
    policy_input: ClassVar[PolicyInput] = "belief"

    hazard: float = 0.05
    """Probability, after each toss, that the chance of heads is drawn anew."""
    heads: float = 1.0
    """First parameter of the Beta distribution of the chance of heads."""
    tails: float = 1.0
    """Second parameter of it."""

    def check(self) -> None:
        check_number("hazard", self.hazard, least=0, most=1)
        check_number("heads", self.heads, above=0)
        check_number("tails", self.tails, above=0)

    @property
    def actions(self) -> int:
        return 2

    @property
    def observation_size(self) -> int:
        return 1

    def alphabet(self) -> Alphabet:
        return Alphabet(np.array([[-1.0], [0.0], [1.0]]), np.array([0.0, 1.0]))

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, ""]:
        del test
        return jax.random.beta(key, self.heads, self.tails)

    def reset(self, problem: Float[Array, ""], key: Array) -> tuple[Float[Array, ""], Float[Array, " 1"]]:
        del key
        return problem, jnp.zeros(1, problem.dtype)

    def step(
        self, problem: Float[Array, ""], state: Float[Array, ""], action: Array, key: Array
    ) -> tuple[Float[Array, ""], Step]:
        key_toss, key_change, key_chance = jax.random.split(key, 3)
        heads = jax.random.bernoulli(key_toss, state)
        right = (action == HEADS) == heads
        expected = jnp.where(action == HEADS, state, 1 - state)
        changes = jax.random.bernoulli(key_change, self.hazard)
        yes, no = jnp.ones((), bool), jnp.zeros((), bool)
        return jnp.where(changes, self.sample(key_chance), state), Step(
            observation=jnp.where(heads, 1, -1).astype(problem.dtype)[None],
            reward=right.astype(problem.dtype),
            terminated=yes,
            truncated=no,
            regret=jnp.maximum(state, 1 - state) - expected,
        )
