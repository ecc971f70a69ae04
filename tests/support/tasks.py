"""Tasks from outside of the package."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

import recurrent_laplace as rl


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aim(rl.AbstractControlTask):
    """A hidden point of the plane, seen with noise; an action costs its squared distance from it."""

    name: ClassVar[str] = "aim"

    noise_stddev: float = 0.5

    def check(self) -> None:
        pass

    @property
    def action_space(self) -> rl.Box:
        return rl.Box(low=(-2.0, -2.0), high=(2.0, 2.0))

    @property
    def observation_size(self) -> int:
        return 2

    def sample(self, key, *, test=False):
        del test
        return jax.random.uniform(key, (2,), minval=-1, maxval=1)

    def reset(self, problem, key):
        return jnp.zeros(()), self._observe(problem, key)

    def step(self, problem, state, action, key):
        self.action_space.check(action)
        cost = jnp.sum((action - problem) ** 2)
        yes, no = jnp.ones((), bool), jnp.zeros((), bool)
        return state, rl.Step(self._observe(problem, key), -cost, yes, no, cost)

    def _observe(self, problem, key):
        return problem + self.noise_stddev * jax.random.normal(key, (2,))
