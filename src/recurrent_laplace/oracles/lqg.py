"""Kalman filter of the LQG task, and its optimal controller."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import LOG_2PI
from recurrent_laplace.oracles.base import (
    AbstractExactBelief,
    AbstractOracle,
    AbstractReference,
    surprise_at,
)
from recurrent_laplace.tasks import LQG, Step, register_support
from recurrent_laplace.tasks.lqg import START_STDDEV


class LQGBelief(AbstractExactBelief):
    """Gaussian posterior over the state and the disturbance."""

    mean: Float[Array, " 2"]
    state_variance: Float[Array, ""]
    covariance: Float[Array, ""]
    disturbance_variance: Float[Array, ""]
    determinant: Float[Array, ""]
    """Determinant of the covariance matrix, updated separately so that no digits cancel."""
    task: LQG = eqx.field(static=True)

    def entropy(self) -> Float[Array, ""]:
        """Differential entropy of the state and the disturbance."""
        return 1 + LOG_2PI + 0.5 * jnp.log(self.determinant)

    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of the next observation, negative where its predictive density is above 1."""
        del observation
        predicted = self.advance(action)
        variance = predicted.state_variance + self.task.observation_stddev**2
        distance = (outcome.observation[0] - predicted.mean[0]) ** 2 / variance
        return surprise_at(jnp.exp(-0.5 * (distance + LOG_2PI + jnp.log(variance))))

    def advance(self, action: Float[Array, " 1"]) -> "LQGBelief":
        """Belief over the next state and the disturbance, before the next observation."""
        keep, noise = self.task.persistence, self.task.process_stddev**2
        covariance = keep * self.covariance + self.disturbance_variance
        without_noise = keep * (keep * self.state_variance + self.covariance) + covariance
        return LQGBelief(
            jnp.stack([keep * self.mean[0] + self.mean[1] + action[0], self.mean[1]]),
            without_noise + noise,
            covariance,
            self.disturbance_variance,
            keep**2 * self.determinant + noise * self.disturbance_variance,
            self.task,
        )

    def observe(self, observation: Float[Array, " 1"]) -> "LQGBelief":
        """Belief after an observation of the state."""
        noise = self.task.observation_stddev**2
        variance = self.state_variance + noise
        gain = jnp.stack([self.state_variance, self.covariance]) / variance
        return LQGBelief(
            self.mean + gain * (observation[0] - self.mean[0]),
            self.state_variance * noise / variance,
            self.covariance * noise / variance,
            (self.determinant + self.disturbance_variance * noise) / variance,
            self.determinant * noise / variance,
            self.task,
        )


class LQGOracle(AbstractOracle[LQGBelief]):
    """Kalman filter over the state and the disturbance.

    ```python
    oracle = LQGOracle(rl.LQG())
    belief = oracle.init(jnp.array([0.3]))  # after the first observation
    ```
    """

    is_gradual: ClassVar[bool] = True

    task: LQG = eqx.field(static=True)

    def init(self, observation: Float[Array, " O"]) -> LQGBelief:
        variances = jnp.array([START_STDDEV**2, self.task.disturbance_stddev**2], observation.dtype)
        zero = jnp.zeros((), observation.dtype)
        prior = LQGBelief(
            jnp.zeros_like(variances), variances[0], zero, variances[1], jnp.prod(variances), self.task
        )
        return prior.observe(observation)

    def update(
        self, belief: LQGBelief, observation: Float[Array, " O"], action: Array, outcome: Step
    ) -> LQGBelief:
        del observation
        return belief.advance(action).observe(outcome.observation)


class Controller(AbstractReference[LQGBelief]):
    """LQG controller, which cancels the expected next state; optimal, since actions cost nothing."""

    oracle: LQGOracle

    def act(self, belief: LQGBelief, observation: Float[Array, " O"], key: Array) -> Float[Array, " 1"]:
        del observation, key
        return -(belief.task.persistence * belief.mean[:1] + belief.mean[1:])


register_support(
    LQG,
    oracle=lambda task, **_: LQGOracle(task),
    references=lambda task, oracle, **_: {"greedy": lambda _: Controller(oracle)},
)
