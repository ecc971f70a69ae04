"""What the chances of arms are, from how often they paid; and who pulls them."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    surprise_at,
)
from recurrent_laplace.evaluation.oracles.beta import beta_entropy, beta_quantile, beta_variance
from recurrent_laplace.tasks import BetaBandit, Step, TwoArmBandit


class AbstractBanditBelief(AbstractExactBelief):
    """A distribution over the chances of arms, and the pulls that it comes from."""

    successes: eqx.AbstractVar[Float[Array, " A"]]
    failures: eqx.AbstractVar[Float[Array, " A"]]

    @abc.abstractmethod
    def mean(self) -> Float[Array, " A"]:
        """The expected chance of each arm, which is the chance that its next pull pays."""

    @abc.abstractmethod
    def variance(self) -> Float[Array, " A"]:
        """Of the chance of each arm."""

    @abc.abstractmethod
    def draw(self, key: Array) -> Float[Array, " A"]:
        """Chances drawn from the belief."""

    @abc.abstractmethod
    def quantile(self, level: Float[Array, ""]) -> Float[Array, " A"]:
        """Of the chance of each arm."""

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """At the reward of the pulled arm."""
        del observation
        chance = self.mean()[action]
        return surprise_at(jnp.where(outcome.reward > 0, chance, 1 - chance))


class BetaBelief(AbstractBanditBelief):
    """Independent arms: the chance of each is Beta(a + successes, b + failures)."""

    successes: Float[Array, " A"]
    failures: Float[Array, " A"]
    prior: tuple[float, float] = eqx.field(static=True)

    def mean(self) -> Float[Array, " A"]:
        a, b = self._parameters()
        return a / (a + b)

    def variance(self) -> Float[Array, " A"]:
        return beta_variance(*self._parameters())

    def draw(self, key: Array) -> Float[Array, " A"]:
        return jax.random.beta(key, *self._parameters())

    def quantile(self, level: Float[Array, ""]) -> Float[Array, " A"]:
        return beta_quantile(*self._parameters(), level)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the chances."""
        return jnp.sum(beta_entropy(*self._parameters()))

    def _parameters(self) -> tuple[Array, Array]:
        return self.prior[0] + self.successes, self.prior[1] + self.failures


class TwoArmBelief(AbstractBanditBelief):
    """Two arms whose chances sum to one: a failure of one says what a success of the other says."""

    successes: Float[Array, " 2"]
    failures: Float[Array, " 2"]
    alpha: float = eqx.field(static=True)

    def mean(self) -> Float[Array, " 2"]:
        a, b = self._parameters()
        return jnp.stack([a, b]) / (a + b)

    def variance(self) -> Float[Array, " 2"]:
        return jnp.repeat(beta_variance(*self._parameters()), 2)

    def draw(self, key: Array) -> Float[Array, " 2"]:
        chance = jax.random.beta(key, *self._parameters())
        return jnp.stack([chance, 1 - chance])

    def quantile(self, level: Float[Array, ""]) -> Float[Array, " 2"]:
        a, b = self._parameters()
        return beta_quantile(jnp.stack([a, b]), jnp.stack([b, a]), level)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the first arm's chance."""
        return beta_entropy(*self._parameters())

    def _parameters(self) -> tuple[Array, Array]:
        """Of the first arm's Beta distribution."""
        (s1, s2), (f1, f2) = self.successes, self.failures
        return self.alpha + s1 + f2, self.alpha + f1 + s2


class BetaOracle(AbstractOracle[BetaBelief]):
    """Counts the successes and failures of independent arms."""

    task: BetaBandit = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> BetaBelief:
        none = jnp.zeros(self.task.arms, observation.dtype)
        return BetaBelief(none, none, (self.task.successes, self.task.failures))

    def update(
        self, belief: BetaBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> BetaBelief:
        del observation
        return BetaBelief(*counted(belief, action, outcome), belief.prior)


class TwoArmOracle(AbstractOracle[TwoArmBelief]):
    """Counts the successes and failures of two arms whose chances sum to one."""

    task: TwoArmBandit = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> TwoArmBelief:
        none = jnp.zeros(2, observation.dtype)
        return TwoArmBelief(none, none, self.task.alpha)

    def update(
        self, belief: TwoArmBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> TwoArmBelief:
        del observation
        return TwoArmBelief(*counted(belief, action, outcome), belief.alpha)


def counted(belief: AbstractBanditBelief, action: Array, outcome: Step) -> tuple[Array, Array]:
    """Successes and failures after one more pull."""
    pulled = jax.nn.one_hot(action, belief.successes.shape[-1], dtype=belief.successes.dtype)
    paid = outcome.reward > 0
    return belief.successes + pulled * paid, belief.failures + pulled * ~paid


class Thompson(AbstractReference[AbstractBanditBelief]):
    """Pulls the best arm of a draw from the belief.

    ```python
    agent = Thompson(BetaOracle(rl.BetaBandit()))
    ```
    """

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation
        return jnp.argmax(belief.draw(key))


class Greedy(AbstractReference[AbstractBanditBelief]):
    """Pulls the arm of the highest expected chance."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        return jnp.argmax(belief.mean())


class UCB1(AbstractReference[AbstractBanditBelief]):
    """Pulls each arm once, then that of the highest `mean + sqrt(2 log(t) / pulls)` (Auer et al., 2002)."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = belief.successes + belief.failures
        some = jnp.maximum(pulls, 1)
        bonus = jnp.sqrt(2 * jnp.log(jnp.maximum(jnp.sum(pulls), 1)) / some)
        return jnp.argmax(jnp.where(pulls > 0, belief.successes / some + bonus, jnp.inf))


class BayesUCB(AbstractReference[AbstractBanditBelief]):
    """Pulls the arm whose chance may be highest: its quantile at `1 - 1/t` (Kaufmann et al., 2012)."""

    oracle: AbstractOracle

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = jnp.sum(belief.successes + belief.failures)
        return jnp.argmax(belief.quantile(1 - 1 / (pulls + 1)))


class Planned(AbstractReference[AbstractBanditBelief]):
    """Pulls what a table says for the pulls so far: optimal for a known number of pulls of two arms.

    ```python
    task = rl.BetaBandit(arms=2)
    agent = Planned(BetaOracle(task), jnp.asarray(plan_two_arms(task, horizon=20).second))
    ```
    """

    oracle: AbstractOracle
    second: Array
    """Whether to pull the second arm: indexed by all pulls, those of the first arm, and both successes."""

    def act(self, belief: AbstractBanditBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = (belief.successes + belief.failures).astype(int)
        successes = belief.successes.astype(int)
        return self.second[jnp.sum(pulls), pulls[0], successes[0], successes[1]].astype(int)


class Gittins(AbstractReference[BetaBelief]):
    """Pulls the arm of the highest index: optimal for independent arms and discounted rewards.

    ```python
    task = rl.BetaBandit(arms=3)
    agent = Gittins(BetaOracle(task), jnp.asarray(gittins_indices(1.0, 1.0, discount=0.95, pulls=100)))
    ```
    """

    oracle: BetaOracle
    index: Float[Array, "N N"]
    """Indexed by the pulls and the successes of an arm."""

    def act(self, belief: BetaBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del observation, key
        pulls = (belief.successes + belief.failures).astype(int)
        return jnp.argmax(self.index[pulls, belief.successes.astype(int)])
