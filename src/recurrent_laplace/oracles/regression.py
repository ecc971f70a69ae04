"""Bayesian linear regression of a Fourier series: the best linear prediction.

A series of n cosines is linear in 2n + 1 weights: a constant, a cosine and a sine of each frequency. Under
the prior, for any period, amplitudes have mean 0 and mean square 1/3. A phase uniform on [0, pi) rotates the
weights `A cos(theta), A sin(theta)`, so that both have mean square 1/6 and are uncorrelated. The constant is
half an amplitude: 1/12. With a Gaussian prior of these moments, the prediction is the best linear one. Since
the weights are not Gaussian, it is exact only once 2n + 1 values determine them.
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.models import Prediction
from recurrent_laplace.oracles.base import (
    AbstractPredictiveBelief,
    AbstractReference,
    AbstractRegressionOracle,
    surprise_at,
)
from recurrent_laplace.tasks import Regression, Step, register_support

LEAST_NOISE_STDDEV = 1e-3
"""Lower bound of the noise, so that the remaining variance is not rounding error."""


class SeriesBelief(AbstractPredictiveBelief):
    """Gaussian posterior over the weights of the series, in the order of `basis`."""

    mean: Float[Array, " D"]
    root: Float[Array, "D D"]
    """Square root `S` of the covariance `S S^T`, which keeps seven digits after nine values where the
    covariance itself would keep none."""
    log_determinant: Float[Array, ""]
    """Log-determinant of the covariance, updated separately because it is then exact."""
    task: Regression = eqx.field(static=True)

    @property
    def covariance(self) -> Float[Array, "*lead D D"]:
        """Covariance of the weights."""
        return self.root @ jnp.swapaxes(self.root, -1, -2)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the weights."""
        return 0.5 * (len(self.mean) * math.log(2 * math.pi * math.e) + self.log_determinant)

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of the value, negative where its predictive density is above 1."""
        del action
        return surprise_at(jnp.exp(self.predict(observation[:1]).log_prob(outcome.observation[1:])))

    def predict(self, x: Float[Array, "*lead 1"]) -> Prediction:
        """Predictive distribution of the observed value at x, noise included."""
        row = basis(x[..., 0], self.task)
        variance = jnp.sum((row @ self.root) ** 2, axis=-1)
        return Prediction((row @ self.mean)[..., None], variance[..., None] + noise_variance(self.task))


class SeriesOracle(AbstractRegressionOracle[SeriesBelief]):
    """Sequential Bayesian linear regression.

    ```python
    task = rl.Regression()
    x, y = task.pairs(task.sample(jax.random.key(0)), jax.random.key(1), steps=20)
    beliefs = SeriesOracle(task).unroll(x, y)  # after each of 20 pairs
    ```
    """

    task: Regression = eqx.field(static=True)

    def prior(self, dtype: jnp.dtype | None = None) -> SeriesBelief:
        """Belief before any value."""
        variances = jnp.array([1 / 12, *[1 / 6] * (2 * self.task.terms)], dtype)
        root = jnp.diag(jnp.sqrt(variances))
        return SeriesBelief(jnp.zeros_like(variances), root, jnp.sum(jnp.log(variances)), self.task)

    def init(self, observation: Float[Array, " O"]) -> SeriesBelief:
        return self.prior(observation.dtype)

    def update(
        self, belief: SeriesBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> SeriesBelief:
        del action
        return self.observe(belief, observation[:1], outcome.observation[1:])

    def observe(self, belief: SeriesBelief, x: Float[Array, " 1"], y: Float[Array, " 1"]) -> SeriesBelief:
        """Belief after one more pair."""
        row, noise = basis(x[0], self.task), noise_variance(self.task)
        # Potter's form updates the root and never forms the covariance.
        projected = belief.root.T @ row
        variance = projected @ projected + noise
        direction = belief.root @ projected
        shrink = 1 / (variance + jnp.sqrt(noise * variance))
        return SeriesBelief(
            belief.mean + direction / variance * (y[0] - row @ belief.mean),
            belief.root - shrink * jnp.outer(direction, projected),
            belief.log_determinant + math.log(noise) - jnp.log(variance),
            belief.task,
        )


class BestLinear(AbstractReference[SeriesBelief]):
    """Agent that predicts the posterior mean."""

    oracle: SeriesOracle

    def act(self, belief: SeriesBelief, observation: Float[Array, " O"], key: Array) -> Float[Array, " 1"]:
        del key
        return belief.predict(observation[:1]).mean


def basis(x: Float[Array, "*lead"], task: Regression) -> Float[Array, "*lead D"]:
    """Basis functions at x: a constant, the cosines and the sines."""
    angles = 2 * jnp.pi * jnp.arange(1, task.terms + 1) / task.period * x[..., None]
    return jnp.concatenate([jnp.ones_like(x)[..., None], jnp.cos(angles), jnp.sin(angles)], axis=-1)


def noise_variance(task: Regression) -> float:
    """Variance of the noise on observed values, never zero."""
    return max(task.noise_stddev, LEAST_NOISE_STDDEV) ** 2


register_support(
    Regression,
    oracle=lambda task, **_: SeriesOracle(task),
    references=lambda task, oracle, **_: {"greedy": lambda _: BestLinear(oracle)},
)
