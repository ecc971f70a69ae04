"""When a coin was last exchanged, and what its chance of heads is since (Adams and MacKay, 2007)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.evaluation.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    surprise_at,
)
from recurrent_laplace.evaluation.oracles.beta import beta_entropy
from recurrent_laplace.tasks import PiecewiseCoin, Step
from recurrent_laplace.tasks.coin import HEADS, TAILS


class CoinBelief(AbstractExactBelief):
    """The run length, which is the number of tosses since the last change; and given it, a Beta.

    Entry n of `heads` is how many of the last n tosses were heads.
    """

    log_run: Float[Array, " N"]
    heads: Float[Array, " N"]
    prior: tuple[float, float] = eqx.field(static=True)

    def run_length(self) -> Float[Array, " N"]:
        """The probability of each run length, from 0 on."""
        return jnp.exp(self.log_run)

    def chances(self) -> Float[Array, " N"]:
        """Of heads, given each run length."""
        a, b = self._parameters()
        return a / (a + b)

    def mean(self) -> Float[Array, ""]:
        """The chance that the next toss is heads."""
        return self.run_length() @ self.chances()

    def entropy(self) -> Float[Array, ""]:
        """Of the run length and the chance of heads together: discrete, plus differential."""
        run = self.run_length()
        return jnp.sum(jax.scipy.special.entr(run)) + run @ beta_entropy(*self._parameters())

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """At the toss."""
        del observation, action
        chance = self.mean()
        return surprise_at(jnp.where(_is_heads(outcome), chance, 1 - chance))

    def _parameters(self) -> tuple[Array, Array]:
        tosses = jnp.arange(len(self.heads))
        return self.prior[0] + self.heads, self.prior[1] + tosses - self.heads


class CoinOracle(AbstractOracle[CoinBelief]):
    """The exact change-point filter: after each toss, the run goes on or the coin is another.

    ```python
    oracle = CoinOracle(rl.PiecewiseCoin(hazard=0.05), steps=200)
    ```
    """

    task: PiecewiseCoin = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    """The longest run that is told apart: exact for as many tosses."""

    def check_steps(self, steps: int) -> None:
        if steps > self.steps:
            raise ValueError(f"steps must be at most the oracle's {self.steps}; got {steps}.")

    def init(self, observation: Float[Array, " O"]) -> CoinBelief:
        none = jnp.zeros(self.steps + 1, observation.dtype)
        return CoinBelief(none.at[1:].set(-jnp.inf), none, (self.task.heads, self.task.tails))

    def update(
        self, belief: CoinBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> CoinBelief:
        del observation, action
        heads = _is_heads(outcome)
        chances = belief.chances()
        joint = belief.log_run + jnp.log(jnp.where(heads, chances, 1 - chances))
        hazard = jnp.asarray(self.task.hazard, joint.dtype)
        anew = jnp.log(hazard) + jax.nn.logsumexp(joint)
        log_run = jnp.append(anew, joint[:-1] + jnp.log1p(-hazard))
        counts = jnp.append(jnp.zeros((), joint.dtype), belief.heads[:-1] + heads)
        return CoinBelief(log_run - jax.nn.logsumexp(log_run), counts, belief.prior)


class Predictor(AbstractReference[CoinBelief]):
    """Predicts the likelier side. No one can do better, since predictions change nothing."""

    oracle: CoinOracle

    def act(self, belief: CoinBelief, observation: Float[Array, " O"], key: Array) -> Int[Array, ""]:
        del observation, key
        return jnp.where(belief.mean() > 0.5, HEADS, TAILS)


def _is_heads(outcome: Step) -> Bool[Array, ""]:
    return outcome.observation[0] > 0
