"""A task as a user writes it, in a file of their own."""

import contextlib
import sys
from collections.abc import Iterator
from unittest import mock

from recurrent_laplace.tasks import TASKS, references


@contextlib.contextmanager
def forgotten(*modules: str) -> Iterator[None]:
    """Context in which no reference is loaded; afterwards, what was loaded is forgotten, with its modules."""
    path = list(sys.path)
    with (
        mock.patch.dict(TASKS),
        mock.patch.dict(references._LOADED, clear=True),
        mock.patch.dict(references._ORIGINS, clear=True),
    ):
        yield
    sys.path[:] = path
    for name in modules:
        sys.modules.pop(name, None)


LEVERS = '''
"""Two levers, of which the better one pays more often."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

import recurrent_laplace as rl


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levers(rl.AbstractControlTask):
    """Find the better of two levers. A problem is the chance of the second."""

    name: ClassVar[str] = "levers"

    chance: float = 0.8
    """Chance of the better lever; the other has the rest."""

    actions = 2
    observation_size = 1

    def check(self):
        if not 0.5 <= self.chance <= 1:
            raise ValueError(f"chance must lie in [0.5, 1]; got {self.chance}.")

    def sample(self, key, *, test=False):
        return jnp.where(jax.random.bernoulli(key), self.chance, 1 - self.chance)

    def reset(self, problem, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, problem, state, action, key):
        chance = jnp.where(action == 1, problem, 1 - problem)
        reward = jax.random.bernoulli(key, chance).astype(float)
        yes = jnp.ones((), bool)
        return state + 1, rl.Step(reward[None], reward, yes, ~yes)
'''
"""Source of a module with the task `levers`, which has no regret."""
