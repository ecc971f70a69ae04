"""Bayesian online change-point detection for the piecewise coin (Adams and MacKay, 2007)."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    surprise_at,
)
from recurrent_laplace.oracles.beta import beta_entropy
from recurrent_laplace.tasks import PiecewiseCoin, Step, register_support
from recurrent_laplace.tasks.coin import HEADS, TAILS


class CoinBelief(AbstractExactBelief):
    """Posterior over the run length, the number of tosses since the last change, with a Beta given each.

    Entry n of `heads` is the number of heads in the last n tosses.
    """

    log_run: Float[Array, " N"]
    heads: Float[Array, " N"]
    prior: tuple[float, float] = eqx.field(static=True)

    def run_length(self) -> Float[Array, " N"]:
        """Probability of each run length, from 0 on."""
        return jnp.exp(self.log_run)

    def chances(self) -> Float[Array, " N"]:
        """Predictive probability of heads given each run length."""
        a, b = self._parameters()
        return a / (a + b)

    def mean(self) -> Float[Array, ""]:
        """Predictive probability that the next toss is heads."""
        return self.run_length() @ self.chances()

    def entropy(self) -> Float[Array, ""]:
        """Joint entropy of the run length (discrete) and the probability of heads (differential)."""
        run = self.run_length()
        return jnp.sum(jax.scipy.special.entr(run)) + run @ beta_entropy(*self._parameters())

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of the toss."""
        del observation, action
        heads = self.mean()
        return surprise_at(jnp.where(_is_heads(outcome), heads, 1 - heads))

    def _parameters(self) -> tuple[Array, Array]:
        tosses = jnp.arange(len(self.heads))
        return self.prior[0] + self.heads, self.prior[1] + tosses - self.heads


class CoinOracle(AbstractOracle[CoinBelief]):
    """Exact change-point filter: after each toss, the run continues or a new one begins.

    ```python
    oracle = CoinOracle(rl.PiecewiseCoin(hazard=0.05), steps=200)
    ```
    """

    is_gradual: ClassVar[bool] = True

    task: PiecewiseCoin = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    """Longest run length that is distinguished; the filter is exact for as many tosses."""

    def check_steps(self, steps: int) -> None:
        if steps > self.steps:
            raise ValueError(f"steps must be at most the oracle's {self.steps}; got {steps}.")

    def init(self, observation: Float[Array, " O"]) -> CoinBelief:
        zeros = jnp.zeros(self.steps + 1, observation.dtype)
        return CoinBelief(zeros.at[1:].set(-jnp.inf), zeros, (self.task.heads, self.task.tails))

    def update(
        self, belief: CoinBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> CoinBelief:
        del observation, action
        heads = _is_heads(outcome)
        chances = belief.chances()
        joint = belief.log_run + jnp.log(jnp.where(heads, chances, 1 - chances))
        hazard = jnp.asarray(self.task.hazard, joint.dtype)
        new_run = jnp.log(hazard) + jax.nn.logsumexp(joint)
        log_run = jnp.append(new_run, joint[:-1] + jnp.log1p(-hazard))
        counts = jnp.append(jnp.zeros((), joint.dtype), belief.heads[:-1] + heads)
        return CoinBelief(log_run - jax.nn.logsumexp(log_run), counts, belief.prior)


class Predictor(AbstractReference[CoinBelief]):
    """Agent that predicts the likelier side, which is optimal since predictions have no effect."""

    oracle: CoinOracle

    def act(self, belief: CoinBelief, observation: Float[Array, " O"], key: Array) -> Int[Array, ""]:
        del observation, key
        return jnp.where(belief.mean() > 0.5, HEADS, TAILS)


def _is_heads(outcome: Step) -> Bool[Array, ""]:
    return outcome.observation[0] > 0


register_support(
    PiecewiseCoin,
    oracle=lambda task, *, steps, **_: CoinOracle(task, steps),
    references=lambda task, oracle, **_: {"greedy": lambda _: Predictor(oracle)},
)
