"""Prediction of a coin with change points."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number
from recurrent_laplace.models import Discrete
from recurrent_laplace.models.config import PolicyInput
from recurrent_laplace.posterior import AbstractLikelihood, BernoulliLikelihood
from recurrent_laplace.tasks.base import AbstractControlTask, Step, Vocabulary
from recurrent_laplace.tasks.registry import register_task

TAILS, HEADS = 0, 1
"""Actions: the predicted side."""


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class PiecewiseCoin(AbstractControlTask):
    """Prediction of the tosses of a coin whose probability of heads is resampled at change points.

    A right prediction pays 1. The observation is the last toss: 1 for heads, -1 for tails, 0 before the
    first. Every toss is an episode, since predictions have no effect on later tosses. A problem is the first
    probability of heads; the state is the current one, which regret assumes to be known.

    ```python
    task = rl.PiecewiseCoin(hazard=0.1)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))
    state, step = task.step(problem, state, jnp.array(1), jax.random.key(2))  # predict heads
    ```
    """

    name: ClassVar[str] = "coin"
    policy_input: ClassVar[PolicyInput] = "belief"

    hazard: float = 0.05
    """Probability of a change point after each toss."""
    heads: float = 1.0
    """First parameter of the Beta distribution of the probability of heads."""
    tails: float = 1.0
    """Second parameter of the Beta distribution of the probability of heads."""

    def check(self) -> None:
        check_number("hazard", self.hazard, least=0, most=1)
        check_number("heads", self.heads, above=0)
        check_number("tails", self.tails, above=0)

    @property
    def action_space(self) -> Discrete:
        return Discrete(2)

    @property
    def observation_size(self) -> int:
        return 1

    def targets(self) -> dict[str, AbstractLikelihood]:
        return super().targets() | {"reward": BernoulliLikelihood(1)}

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(np.array([[-1.0], [0.0], [1.0]]), np.array([0.0, 1.0]))

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, ""]:
        del test
        return jax.random.beta(key, self.heads, self.tails)

    def reset(self, problem: Float[Array, ""], key: Array) -> tuple[Float[Array, ""], Float[Array, " 1"]]:
        del key
        return problem, jnp.zeros(1, problem.dtype)

    def step(
        self, problem: Float[Array, ""], state: Float[Array, ""], action: Array, key: Array
    ) -> tuple[Float[Array, ""], Step]:
        key_toss, key_change, key_probability = jax.random.split(key, 3)
        heads = jax.random.bernoulli(key_toss, state)
        right = (action == HEADS) == heads
        expected = jnp.where(action == HEADS, state, 1 - state)
        changes = jax.random.bernoulli(key_change, self.hazard)
        return jnp.where(changes, self.sample(key_probability), state), Step(
            observation=jnp.where(heads, 1, -1).astype(problem.dtype)[None],
            reward=right.astype(problem.dtype),
            terminated=jnp.array(True),
            truncated=jnp.array(False),
            regret=jnp.maximum(state, 1 - state) - expected,
        )
