"""Interfaces of exact beliefs, oracles and reference agents."""

import abc
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from recurrent_laplace.models import AbstractActionSpace, Prediction
from recurrent_laplace.tasks import Step

LEAST_PROBABILITY = 1e-6
"""Lower bound of predictive probabilities, which limits surprisals to 13.8 nats."""


class AbstractExactBelief(eqx.Module):
    """Exact posterior over a problem, given the history of one agent."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats, of the variable that each subclass names."""

    @abc.abstractmethod
    def surprise(self, observation: Float[Array, " O"], action: Array, outcome: Step) -> Float[Array, ""]:
        """Surprisal of an outcome: `-log` of its predictive probability, in nats, at most 13.8."""


class AbstractPredictiveBelief(AbstractExactBelief):
    """Exact posterior over a function, with predictions of its values."""

    @abc.abstractmethod
    def predict(self, x: Float[Array, "*lead X"]) -> Prediction:
        """Predictive distribution of the observed value at x, noise included."""


class Targets(NamedTuple):
    """Exact beliefs along E episodes of T steps, which `faithfulness` decodes from learned beliefs.

    - `belief`: K probabilities, of exclusive events (`kind` is "exclusive") or of separate ones ("chances");
    - `mean`, `variance`: posterior moments of the task's P parameters;
    - `pays`: for each of A actions, the index in `belief` of the probability that it pays now.
    """

    belief: Float[np.ndarray, "E T K"]
    kind: Literal["exclusive", "chances"]
    mean: Float[np.ndarray, "E T P"]
    variance: Float[np.ndarray, "E T P"]
    pays: Int[np.ndarray, "E T A"]


Belief = TypeVar("Belief", bound=AbstractExactBelief)
PredictiveBelief = TypeVar("PredictiveBelief", bound=AbstractPredictiveBelief)


class AbstractOracle(eqx.Module, Generic[Belief]):
    """Bayes' rule for one task, given its prior.

    Of an outcome it uses what an agent observes: the observation and the reward.
    """

    is_gradual: ClassVar[bool] = False
    """Whether every outcome stays possible, so that no single one proves a change of the problem."""

    @abc.abstractmethod
    def init(self, observation: Float[Array, " O"]) -> Belief:
        """Belief after the first observation."""

    @abc.abstractmethod
    def update(self, belief: Belief, observation: Float[Array, " O"], action: Array, outcome: Step) -> Belief:
        """Belief after an action at an observation, and its outcome."""

    def check_steps(self, steps: int) -> None:
        """Refuse more steps than the belief is exact for."""

    def read(self, belief: Belief) -> Any:
        """Arrays of one belief that `targets` needs; by default all of them."""
        return belief

    def targets(self, beliefs: Any, observation: Float[np.ndarray, "E T O"]) -> Targets:
        """Targets of `faithfulness`, from the results of `read` along episodes."""
        raise ValueError(
            f"faithfulness needs the exact belief as arrays: define `targets` of {type(self).__name__}, "
            "as docs/add-a-task.md shows."
        )


class AbstractRegressionOracle(AbstractOracle[PredictiveBelief]):
    """Bayes' rule for a regression task, where an observation is the next input and the last output."""

    @abc.abstractmethod
    def prior(self, dtype: Any = None) -> PredictiveBelief:
        """Belief before any pair."""

    @abc.abstractmethod
    def observe(
        self, belief: PredictiveBelief, x: Float[Array, " X"], y: Float[Array, " Y"]
    ) -> PredictiveBelief:
        """Belief after one more pair."""

    def unroll(self, x: Float[Array, "T X"], y: Float[Array, "T Y"]) -> PredictiveBelief:
        """Beliefs after each pair, with a leading T."""

        def step(belief: PredictiveBelief, pair: tuple[Array, Array]) -> Any:
            belief = self.observe(belief, *pair)
            return belief, belief

        return jax.lax.scan(step, self.prior(x.dtype), (x, y))[1]


class AbstractReference(eqx.Module, Generic[Belief]):
    """Reference agent, which acts on an exact belief."""

    oracle: eqx.AbstractVar[AbstractOracle[Belief]]

    @abc.abstractmethod
    def act(self, belief: Belief, observation: Float[Array, " O"], key: Array) -> Array:
        """Choose an action."""


class RandomAgent(AbstractReference[AbstractExactBelief]):
    """Agent with a uniformly random policy."""

    oracle: AbstractOracle
    actions: AbstractActionSpace = eqx.field(static=True)

    def act(self, belief: AbstractExactBelief, observation: Float[Array, " O"], key: Array) -> Array:
        del belief, observation
        return self.actions.sample(key)


def surprise_at(probability: Float[Array, ""]) -> Float[Array, ""]:
    """Surprisal, in nats, of an event of this probability or density."""
    return -jnp.log(jnp.maximum(probability, LEAST_PROBABILITY))
