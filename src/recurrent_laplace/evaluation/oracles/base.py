"""What an exact belief is, who keeps it, and who acts on it."""

import abc
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recurrent_laplace.tasks import Step

LEAST_PROBABILITY = 1e-6
"""What is less likely counts as this likely, so that surprises are finite: at most 13.8 nats."""


class AbstractExactBelief(eqx.Module):
    """What can be known of a problem from what was seen of it. Acts on one problem."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats; each belief says of what."""

    @abc.abstractmethod
    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """`-log` of the predictive probability of what came of an action, in nats, at most 13.8."""


Belief = TypeVar("Belief", bound=AbstractExactBelief)


class AbstractOracle(eqx.Module, Generic[Belief]):
    """Bayes' rule for one task. Knows the task's prior, never the problem.

    Of an outcome it reads what an agent is given: the observation and the reward.
    """

    @abc.abstractmethod
    def init(self, observation: Float[Array, " O"]) -> Belief:
        """The belief when only the first observation was seen."""

    @abc.abstractmethod
    def update(self, belief: Belief, observation: Float[Array, " O"], action: Array, outcome: Step) -> Belief:
        """The belief after an action at an observation, and what came of it."""

    def check_steps(self, steps: int) -> None:
        """Refuse more steps than the belief is exact for."""


class AbstractReference(eqx.Module, Generic[Belief]):
    """An agent that acts on an exact belief."""

    oracle: eqx.AbstractVar[AbstractOracle[Belief]]

    @abc.abstractmethod
    def act(self, belief: Belief, observation: Float[Array, " O"], key: Array) -> Array:
        """What to do."""


class RandomAgent(AbstractReference[AbstractExactBelief]):
    """Any action, each as likely."""

    oracle: AbstractOracle
    actions: int = eqx.field(static=True)

    def act(self, belief: AbstractExactBelief, observation: Float[Array, " O"], key: Array) -> Int[Array, ""]:
        del belief, observation
        return jax.random.randint(key, (), 0, self.actions)


def surprise_at(probability: Float[Array, ""]) -> Float[Array, ""]:
    """Nats of surprise at what had this probability, or density."""
    return -jnp.log(jnp.maximum(probability, LEAST_PROBABILITY))
