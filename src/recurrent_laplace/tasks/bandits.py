"""Bernoulli bandits: every pull is an episode, and the observation is the reward."""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number, check_size
from recurrent_laplace.models import Discrete
from recurrent_laplace.models.config import PolicyInput
from recurrent_laplace.posterior import AbstractLikelihood, BernoulliLikelihood
from recurrent_laplace.tasks.base import AbstractControlTask, Step, Vocabulary
from recurrent_laplace.tasks.registry import register_task
from recurrent_laplace.tasks.shifts import CONTROL_SHIFTS, Shift, drop_reward
from recurrent_laplace.tasks.support import register_support

PRIOR_ALPHA = 2.0
"""Concentration of the shifted prior, under which arms hardly differ."""


class AbstractBandit(AbstractControlTask):
    """Interface of a Bernoulli bandit, whose problems are vectors of success probabilities.

    A subclass is a frozen dataclass with `name`, `check`, `action_space` and `sample`.

    ```python
    import dataclasses

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class UniformBandit(rl.AbstractBandit):
        name = "uniform_bandit"
        actions = 3

        def check(self):
            pass

        def sample(self, key, *, test=False):
            return jax.random.uniform(key, (3,))

    probabilities = UniformBandit().sample(jax.random.key(0))
    ```
    """

    policy_input: ClassVar[PolicyInput] = "belief"

    @abc.abstractmethod
    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]: ...

    @property
    def observation_size(self) -> int:
        return 1

    def targets(self) -> dict[str, AbstractLikelihood]:
        return {"reward": BernoulliLikelihood(1), "observation": BernoulliLikelihood(1)}

    def vocabulary(self) -> Vocabulary:
        return Vocabulary(np.array([[0.0], [1.0]]), np.array([0.0, 1.0]))

    def reset(self, problem: Float[Array, " A"], key: Array) -> tuple[None, Float[Array, " 1"]]:
        del key
        return None, jnp.zeros(1, problem.dtype)

    def step(self, problem: Float[Array, " A"], state: None, action: Array, key: Array) -> tuple[None, Step]:
        probability = problem[action]
        reward = jax.random.bernoulli(key, probability).astype(problem.dtype)
        regret = jnp.max(problem) - probability
        return None, Step(reward[None], reward, jnp.array(True), jnp.array(False), regret)


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class DirichletBandit(AbstractBandit):
    """Bandit of the paper, whose success probabilities are Dirichlet-distributed and sum to one.

    ```python
    task = rl.DirichletBandit(arms=5)
    probabilities = task.sample(jax.random.key(0), test=True)  # (5,)
    ```
    """

    name: ClassVar[str] = "bandit"

    arms: int = 5
    """Number of arms."""
    train_alpha: float = 0.2
    """Concentration of the Dirichlet distribution in training; lower is easier."""
    test_alpha: float = 0.3
    """Concentration of the Dirichlet distribution in evaluation."""

    def check(self) -> None:
        check_size("arms", self.arms)
        check_number("train_alpha", self.train_alpha, above=0)
        check_number("test_alpha", self.test_alpha, above=0)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.arms)

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]:
        alpha = self.test_alpha if test else self.train_alpha
        return jax.random.dirichlet(key, jnp.full(self.arms, alpha))


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class BetaBandit(AbstractBandit):
    """Bandit with independent arms, whose success probabilities are Beta-distributed.

    ```python
    probabilities = rl.BetaBandit(arms=2).sample(jax.random.key(0))
    ```
    """

    name: ClassVar[str] = "beta_bandit"

    arms: int = 2
    """Number of arms."""
    successes: float = 1.0
    """First parameter of the Beta distribution of each arm's success probability."""
    failures: float = 1.0
    """Second parameter of the Beta distribution of each arm's success probability."""

    def check(self) -> None:
        check_size("arms", self.arms)
        check_number("successes", self.successes, above=0)
        check_number("failures", self.failures, above=0)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.arms)

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " A"]:
        del test
        return jax.random.beta(key, self.successes, self.failures, (self.arms,))


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoArmBandit(AbstractBandit):
    """Bandit with two arms whose success probabilities sum to one.

    Both arms are equally informative, so the greedy policy is optimal.

    ```python
    probabilities = rl.TwoArmBandit(alpha=1.0).sample(jax.random.key(0))
    ```
    """

    name: ClassVar[str] = "two_arm_bandit"

    alpha: float = 1.0
    """Concentration of the first arm's success probability, which is Beta(alpha, alpha)."""

    def check(self) -> None:
        check_number("alpha", self.alpha, above=0)

    @property
    def action_space(self) -> Discrete:
        return Discrete(2)

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, " 2"]:
        del test
        probability = jax.random.beta(key, self.alpha, self.alpha)
        return jnp.stack([probability, 1 - probability])


def drop_observed_reward(task: AbstractBandit, step: Step, key: Array) -> Step:
    """Replace some rewards by 0, also in the observation, which is the reward."""
    step = drop_reward(task, step, key)
    return eqx.tree_at(lambda s: s.observation, step, step.reward[None])


BANDIT_SHIFTS = {
    **CONTROL_SHIFTS,
    "dropped_rewards": Shift(outcome=drop_observed_reward),
    # The same success probabilities on other arms.
    "moved": Shift(problem=lambda task, p, key: jnp.roll(p, jax.random.randint(key, (), 1, task.actions))),
    # Every arm pays with the mean probability.
    "support": Shift(problem=lambda task, p, key: jnp.full_like(p, jnp.mean(p)), from_the_start=True),
    "prior": Shift(
        problem=lambda task, p, key: jax.random.beta(key, PRIOR_ALPHA, PRIOR_ALPHA, p.shape),
        from_the_start=True,
    ),
}
DIRICHLET_PRIOR_SHIFT = Shift(
    problem=lambda task, p, key: jax.random.dirichlet(key, jnp.full(task.arms, PRIOR_ALPHA)),
    from_the_start=True,
)
register_support(AbstractBandit, parameters=lambda task, problem: problem, shifts=BANDIT_SHIFTS)
register_support(DirichletBandit, shifts={**BANDIT_SHIFTS, "prior": DIRICHLET_PRIOR_SHIFT})
