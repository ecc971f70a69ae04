"""What a Fourier series is, from its values: Bayesian linear regression.

A series of n cosines is linear in 2n + 1 weights: a constant, a cosine and a sine of each frequency.
Their moments under the prior, for any period: amplitudes have mean 0 and mean square 1/3, and a phase
uniform on [0, pi) turns the weights `A cos(theta), A sin(theta)` so that both have mean square 1/6 and
nothing is correlated. The constant is half an amplitude: 1/12. With a Gaussian of these moments the
prediction is the best linear one. It is not the exact one, since the weights are not Gaussian, until
2n + 1 values have told all.
"""

import math

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
from recurrent_laplace.models import Prediction
from recurrent_laplace.tasks import Regression, Step

LEAST_NOISE_STDDEV = 1e-3
"""Values without noise count as having this much: what is then left of the variance is not rounding."""


class SeriesBelief(AbstractExactBelief):
    """A Gaussian over the weights of the series, in the order of `basis`."""

    mean: Float[Array, " D"]
    root: Float[Array, "D D"]
    """`S` of the covariance `S S^T`: what is known after nine values is known to seven digits in it, and to
    none in its square."""
    log_determinant: Float[Array, ""]
    """Of the covariance, kept apart because it is then exact."""
    task: Regression = eqx.field(static=True)

    @property
    def covariance(self) -> Float[Array, "D D"]:
        """Of the weights."""
        return self.root @ jnp.swapaxes(self.root, -1, -2)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the weights."""
        return 0.5 * (len(self.mean) * math.log(2 * math.pi * math.e) + self.log_determinant)

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """At the value: negative where its predictive density is above 1."""
        del action
        return surprise_at(jnp.exp(self.predict(observation[:1]).log_prob(outcome.observation[1:])))

    def predict(self, x: Float[Array, "*lead 1"]) -> Prediction:
        """Of the observed value at x, its noise included."""
        at = basis(x[..., 0], self.task)
        variance = jnp.sum((at @ self.root) ** 2, axis=-1)
        return Prediction((at @ self.mean)[..., None], variance[..., None] + noise_variance(self.task))


class SeriesOracle(AbstractOracle[SeriesBelief]):
    """Bayesian linear regression, one value at a time.

    ```python
    oracle = SeriesOracle(rl.Regression())
    beliefs = oracle.unroll(x, y)  # after each of T pairs
    ```
    """

    task: Regression = eqx.field(static=True)

    def prior(self, dtype: jnp.dtype | None = None) -> SeriesBelief:
        """Before any value."""
        variances = jnp.array([1 / 12, *[1 / 6] * (2 * self.task.terms)], dtype)
        root = jnp.diag(jnp.sqrt(variances))
        return SeriesBelief(jnp.zeros_like(variances), root, jnp.sum(jnp.log(variances)), self.task)

    def init(self, observation: Float[Array, " O"]) -> SeriesBelief:
        return self.prior(observation.dtype)

    def update(
        self, belief: SeriesBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> SeriesBelief:
        del action
        return self.observe(belief, observation[0], outcome.observation[1])

    def observe(self, belief: SeriesBelief, x: Float[Array, ""], y: Float[Array, ""]) -> SeriesBelief:
        """The belief after one more pair."""
        at, noise = basis(x, self.task), noise_variance(self.task)
        # Potter's form: the root is updated, never its square.
        seen = belief.root.T @ at
        variance = seen @ seen + noise
        direction = belief.root @ seen
        shrink = 1 / (variance + jnp.sqrt(noise * variance))
        return SeriesBelief(
            belief.mean + direction / variance * (y - at @ belief.mean),
            belief.root - shrink * jnp.outer(direction, seen),
            belief.log_determinant + math.log(noise) - jnp.log(variance),
            belief.task,
        )

    def unroll(self, x: Float[Array, "T 1"], y: Float[Array, "T 1"]) -> SeriesBelief:
        """Beliefs after each pair, with a leading T."""

        def step(belief: SeriesBelief, pair: tuple[Array, Array]) -> tuple[SeriesBelief, SeriesBelief]:
            belief = self.observe(belief, *pair)
            return belief, belief

        return jax.lax.scan(step, self.prior(x.dtype), (x[:, 0], y[:, 0]))[1]


class BestLinear(AbstractReference[SeriesBelief]):
    """Predicts the mean."""

    oracle: SeriesOracle

    def act(self, belief: SeriesBelief, observation: Float[Array, " O"], key: Array) -> Float[Array, " 1"]:
        del key
        return belief.predict(observation[:1]).mean


def basis(x: Float[Array, "*lead"], task: Regression) -> Float[Array, "*lead D"]:
    """A constant, the cosines and the sines."""
    angles = 2 * jnp.pi * jnp.arange(1, task.terms + 1) / task.period * x[..., None]
    return jnp.concatenate([jnp.ones_like(x)[..., None], jnp.cos(angles), jnp.sin(angles)], axis=-1)


def noise_variance(task: Regression) -> float:
    """That of observed values, never zero."""
    return max(task.noise_stddev, LEAST_NOISE_STDDEV) ** 2
