"""Bandits: every pull is an episode, the reward is 0 or 1, and the observation is the reward."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number, check_size
from recurrent_laplace.tasks.base import AbstractControlTask, Alphabet, PolicyInput, Step


class AbstractBandit(AbstractControlTask):
    """Arms that pay 1 with a hidden probability; a problem is the vector of probabilities."""

    policy_input: ClassVar[PolicyInput] = "belief"

    @abc.abstractmethod
    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]: ...

    @property
    def observation_size(self) -> int:
        return 1

    def alphabet(self) -> Alphabet:
        return Alphabet(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))

    def reset(self, problem: Float[Array, " A"], key: Array) -> tuple[None, Float[Array, " 1"]]:
        del key
        return None, jnp.zeros(1, problem.dtype)

    def step(self, problem: Float[Array, " A"], state: None, action: Array, key: Array) -> tuple[None, Step]:
        chance = problem[action]
        reward = jax.random.bernoulli(key, chance).astype(problem.dtype)
        yes, no = jnp.ones((), bool), jnp.zeros((), bool)
        return None, Step(reward[None], reward, yes, no, jnp.max(problem) - chance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirichletBandit(AbstractBandit):
    """Find the best of several arms whose chances sum to one (the paper's bandit).

    ```python
    task = rl.DirichletBandit(arms=5)
    probabilities = task.sample(jax.random.key(0), test=True)  # (5,)
    ```
    """

    name: ClassVar[str] = "bandit"

    arms: int = 5
    """Number of arms."""
    train_alpha: float = 0.2
    """Concentration of the Dirichlet distribution in training: lower is easier."""
    test_alpha: float = 0.3
    """Concentration of the Dirichlet distribution in evaluation."""

    def check(self) -> None:
        check_size("arms", self.arms)
        check_number("train_alpha", self.train_alpha, above=0)
        check_number("test_alpha", self.test_alpha, above=0)

    @property
    def actions(self) -> int:
        return self.arms

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]:
        alpha = self.test_alpha if test else self.train_alpha
        return jax.random.dirichlet(key, jnp.full(self.arms, alpha))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaBandit(AbstractBandit):
    """Arms that know nothing of each other, each with a Beta-distributed chance.

    ```python
    probabilities = rl.BetaBandit(arms=2).sample(jax.random.key(0))
    ```
    """

    name: ClassVar[str] = "beta_bandit"

    arms: int = 2
    """Number of arms."""
    successes: float = 1.0
    """First parameter of the Beta distribution of each arm's chance."""
    failures: float = 1.0
    """Second parameter of it."""

    def check(self) -> None:
        check_size("arms", self.arms)
        check_number("successes", self.successes, above=0)
        check_number("failures", self.failures, above=0)

    @property
    def actions(self) -> int:
        return self.arms

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]:
        del test
        return jax.random.beta(key, self.successes, self.failures, (self.arms,))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoArmBandit(AbstractBandit):
    """Two arms whose chances sum to one, so that either pull tells as much: greedy is optimal.

    ```python
    probabilities = rl.TwoArmBandit(alpha=1.0).sample(jax.random.key(0))
    ```
    """

    name: ClassVar[str] = "two_arm_bandit"

    alpha: float = 1.0
    """The first arm's chance is Beta(alpha, alpha)."""

    def check(self) -> None:
        check_number("alpha", self.alpha, above=0)

    @property
    def actions(self) -> int:
        return 2

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " 2"]:
        del test
        chance = jax.random.beta(key, self.alpha, self.alpha)
        return jnp.stack([chance, 1 - chance])
