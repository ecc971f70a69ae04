"""Exact beliefs and reference agents of bandits with Beta priors."""

import abc
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    Targets,
    surprise_at,
)
from recurrent_laplace.oracles.beta import beta_entropy, beta_quantile, beta_variance
from recurrent_laplace.oracles.planning import gittins_indices
from recurrent_laplace.tasks import AbstractBandit, BetaBandit, Step, TwoArmBandit, register_support
from recurrent_laplace.tasks.support import EXACT

GITTINS_DISCOUNT = 0.99
"""Discount of the Gittins index, whose horizon matches the length of an evaluation."""


class AbstractBanditBelief(AbstractExactBelief):
    """Posterior over the success probabilities of arms, and the counts of pulls it is based on."""

    successes: eqx.AbstractVar[Float[Array, " A"]]
    failures: eqx.AbstractVar[Float[Array, " A"]]

    @abc.abstractmethod
    def mean(self) -> Float[Array, " A"]:
        """Posterior mean of each arm, the predictive probability that its next pull pays."""

    @abc.abstractmethod
    def variance(self) -> Float[Array, " A"]:
        """Posterior variance of each arm."""

    @abc.abstractmethod
    def sample(self, key: Array) -> Float[Array, " A"]:
        """Sample of the success probabilities."""

    @abc.abstractmethod
    def quantile(self, level: Float[Array, ""] | float) -> Float[Array, " A"]:
        """Posterior quantile of each arm."""

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of the reward of the pulled arm."""
        del observation
        probability = self.mean()[action]
        return surprise_at(jnp.where(outcome.reward > 0, probability, 1 - probability))


class BetaBelief(AbstractBanditBelief):
    """Posterior of independent arms: Beta(a + successes, b + failures) for each."""

    successes: Float[Array, " A"]
    failures: Float[Array, " A"]
    prior: tuple[float, float] = eqx.field(static=True)

    def mean(self) -> Float[Array, " A"]:
        a, b = self._parameters()
        return a / (a + b)

    def variance(self) -> Float[Array, " A"]:
        return beta_variance(*self._parameters())

    def sample(self, key: Array) -> Float[Array, " A"]:
        return jax.random.beta(key, *self._parameters())

    def quantile(self, level: Float[Array, ""] | float) -> Float[Array, " A"]:
        return beta_quantile(*self._parameters(), level)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the success probabilities."""
        return jnp.sum(beta_entropy(*self._parameters()))

    def _parameters(self) -> tuple[Array, Array]:
        return self.prior[0] + self.successes, self.prior[1] + self.failures


class TwoArmBelief(AbstractBanditBelief):
    """Posterior of two arms that sum to one: a failure of one counts as a success of the other."""

    successes: Float[Array, " 2"]
    failures: Float[Array, " 2"]
    alpha: float = eqx.field(static=True)

    def mean(self) -> Float[Array, " 2"]:
        a, b = self._parameters()
        return jnp.stack([a, b]) / (a + b)

    def variance(self) -> Float[Array, " 2"]:
        return jnp.repeat(beta_variance(*self._parameters()), 2)

    def sample(self, key: Array) -> Float[Array, " 2"]:
        first = jax.random.beta(key, *self._parameters())
        return jnp.stack([first, 1 - first])

    def quantile(self, level: Float[Array, ""] | float) -> Float[Array, " 2"]:
        a, b = self._parameters()
        return beta_quantile(jnp.stack([a, b]), jnp.stack([b, a]), level)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the first arm's success probability."""
        return beta_entropy(*self._parameters())

    def _parameters(self) -> tuple[Array, Array]:
        """Parameters of the first arm's Beta distribution."""
        (s1, s2), (f1, f2) = self.successes, self.failures
        return self.alpha + s1 + f2, self.alpha + f1 + s2


BanditBelief = TypeVar("BanditBelief", bound=AbstractBanditBelief)


class AbstractBanditOracle(AbstractOracle[BanditBelief]):
    """Bayes' rule for the success probabilities of arms."""

    is_gradual: ClassVar[bool] = True

    def read(self, belief: BanditBelief) -> tuple[Float[Array, " A"], Float[Array, " A"]]:
        return belief.mean(), belief.variance()

    def targets(self, beliefs: Any, observation: Float[np.ndarray, "E T O"]) -> Targets:
        """Posterior means of the success probabilities, which are also the parameters."""
        del observation
        mean, variance = (np.asarray(moment, float) for moment in beliefs)
        pays = np.broadcast_to(np.arange(mean.shape[-1]), mean.shape)
        return Targets(mean, "chances", mean, variance, pays)


class BetaOracle(AbstractBanditOracle[BetaBelief]):
    """Exact belief about independent arms, by counts of successes and failures."""

    task: BetaBandit = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> BetaBelief:
        zeros = jnp.zeros(self.task.arms, observation.dtype)
        return BetaBelief(zeros, zeros, (self.task.successes, self.task.failures))

    def update(
        self, belief: BetaBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> BetaBelief:
        del observation
        return BetaBelief(*updated_counts(belief, action, outcome), belief.prior)


class TwoArmOracle(AbstractBanditOracle[TwoArmBelief]):
    """Exact belief about two arms that sum to one, by counts of successes and failures."""

    task: TwoArmBandit = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> TwoArmBelief:
        zeros = jnp.zeros(2, observation.dtype)
        return TwoArmBelief(zeros, zeros, self.task.alpha)

    def update(
        self, belief: TwoArmBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> TwoArmBelief:
        del observation
        return TwoArmBelief(*updated_counts(belief, action, outcome), belief.alpha)


def updated_counts(belief: AbstractBanditBelief, action: Array, outcome: Step) -> tuple[Array, Array]:
    """Counts of successes and failures after one more pull."""
    pulled = jax.nn.one_hot(action, belief.successes.shape[-1], dtype=belief.successes.dtype)
    paid = outcome.reward > 0
    return belief.successes + pulled * paid, belief.failures + pulled * ~paid


class Thompson(AbstractReference[AbstractBanditBelief]):
    """Thompson sampling: pulls the best arm of a sample of the belief.

    ```python
    agent = Thompson(BetaOracle(rl.BetaBandit()))
    ```
    """

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation
        return jnp.argmax(belief.sample(key))


class Greedy(AbstractReference[AbstractBanditBelief]):
    """Greedy agent: pulls the arm of the highest posterior mean."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        return jnp.argmax(belief.mean())


class UCB1(AbstractReference[AbstractBanditBelief]):
    """UCB1 (Auer et al., 2002): each arm once, then the highest `mean + sqrt(2 log(t) / pulls)`."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = belief.successes + belief.failures
        divisor = jnp.maximum(pulls, 1)
        bonus = jnp.sqrt(2 * jnp.log(jnp.maximum(jnp.sum(pulls), 1)) / divisor)
        return jnp.argmax(jnp.where(pulls > 0, belief.successes / divisor + bonus, jnp.inf))


class BayesUCB(AbstractReference[AbstractBanditBelief]):
    """Bayes-UCB (Kaufmann et al., 2012): the arm of the highest posterior quantile at `1 - 1/t`."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = jnp.sum(belief.successes + belief.failures)
        return jnp.argmax(belief.quantile(1 - 1 / (pulls + 1)))


class Planned(AbstractReference[AbstractBanditBelief]):
    """Optimal agent for a known number of pulls of two arms, by the table of `plan_two_arms`.

    ```python
    task = rl.BetaBandit(arms=2)
    agent = Planned(BetaOracle(task), jnp.asarray(plan_two_arms(task, horizon=20).second))
    ```
    """

    oracle: AbstractOracle
    second: Array
    """Whether to pull the second arm, by all pulls, pulls of the first arm, and successes of both."""

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = (belief.successes + belief.failures).astype(int)
        successes = belief.successes.astype(int)
        return self.second[jnp.sum(pulls), pulls[0], successes[0], successes[1]].astype(int)


class Gittins(AbstractReference[BetaBelief]):
    """Gittins index policy: optimal for independent arms and discounted rewards.

    ```python
    task = rl.BetaBandit(arms=3)
    agent = Gittins(BetaOracle(task), jnp.asarray(gittins_indices(1.0, 1.0, discount=0.95, pulls=100)))
    ```
    """

    oracle: BetaOracle
    index: Float[Array, "N N"]
    """Gittins indices by the pulls and the successes of an arm."""

    def act(self, belief: BetaBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = (belief.successes + belief.failures).astype(int)
        return jnp.argmax(self.index[pulls, belief.successes.astype(int)])


def _references(task: AbstractBandit, oracle: AbstractOracle, *, steps: int) -> dict[str, Any]:
    del task, steps
    return {
        "ucb1": lambda _: UCB1(oracle),
        "bayes_ucb": lambda _: BayesUCB(oracle),
        "thompson": lambda _: Thompson(oracle),
        "greedy": lambda _: Greedy(oracle),
    }


def _beta_references(task: BetaBandit, oracle: BetaOracle, *, steps: int) -> dict[str, Any]:
    def gittins(problem: Array) -> Gittins:
        del problem
        index = gittins_indices(task.successes, task.failures, discount=GITTINS_DISCOUNT, pulls=steps)
        return Gittins(oracle, jnp.asarray(index))

    return {**_references(task, oracle, steps=steps), "gittins": gittins}


register_support(AbstractBandit, references=_references)
register_support(TwoArmBandit, oracle=lambda task, **_: TwoArmOracle(task))
register_support(
    BetaBandit,
    oracle=lambda task, **_: BetaOracle(task),
    references=_beta_references,
    reported={EXACT: "gittins", "Thompson": "thompson"},
)
