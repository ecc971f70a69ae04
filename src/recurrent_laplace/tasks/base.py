"""What a task is: a distribution over problems, and how one problem is played."""

import abc
import dataclasses
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

Problem = Any
"""One draw from the distribution: what the agent does not know. A pytree of arrays."""

State = Any

PolicyInput = Literal["belief", "belief_and_observation", "belief_and_hidden"]


class Step(eqx.Module):
    """What the world answers to an action.

    `terminated` (the goal was reached, the pull is over) and `truncated` (out of time) end an episode
    inside the task; `observation` is then already that of the next episode. `regret` is what the best
    agent that knows the problem would have been paid for this step, less what this action was, in
    expectation where the reward is random.
    """

    observation: Float[Array, " O"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    regret: Float[Array, ""]


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractTask(abc.ABC):
    """A distribution over problems.

    The fields of a task are its parameters: numbers and words, fixed when a program is compiled. All
    functions are pure and act on one problem: batches come from `jax.vmap`.

    ```python
    task = rl.Gridworld(size=5)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))
    state, step = task.step(problem, state, jnp.array(2), jax.random.key(2))
    ```
    """

    name: ClassVar[str]
    """The name on the command line and in configuration files."""

    @abc.abstractmethod
    def check(self) -> None:
        """Refuse parameters that make no sense, with a sentence that says what would."""

    @property
    @abc.abstractmethod
    def observation_size(self) -> int:
        """The length O of an observation."""

    @abc.abstractmethod
    def sample(self, key: Array, *, test: bool = False) -> Problem:
        """Draw a problem from the distribution for training, or for test where that is another."""

    @abc.abstractmethod
    def reset(self, problem: Problem, key: Array) -> tuple[State, Float[Array, " O"]]:
        """Begin: the state of the world, and the first observation."""

    @abc.abstractmethod
    def step(self, problem: Problem, state: State, action: Array, key: Array) -> tuple[State, Step]:
        """Act."""


class Alphabet(NamedTuple):
    """All observations and rewards that can occur in a task where they are few.

    ```python
    coin = rl.Alphabet(observations=np.array([[-1.0], [0.0], [1.0]]), rewards=np.array([0.0, 1.0]))
    ```
    """

    observations: Float[np.ndarray, "N O"]
    rewards: Float[np.ndarray, " M"]


class AbstractControlTask(AbstractTask):
    """A task with a finite number of actions."""

    policy_input: ClassVar[PolicyInput] = "belief_and_observation"
    """What the policy sees unless the configuration says otherwise."""

    @property
    @abc.abstractmethod
    def actions(self) -> int:
        """The number A of actions."""

    def alphabet(self) -> Alphabet | None:
        """All observations and rewards there are, to the bit; None where they are no short list.

        With it, an agent's embedders see each of them once in an update, not once in every step.
        """
        return None


class AbstractRegressionTask(AbstractTask):
    """A task where functions are to be predicted: the action is the prediction.

    An observation is the next input and the last output, `(x_{t+1}, y_t)`, and the reward the
    negative squared error. Since nothing depends on the action, `pairs` gives whole sequences at once.
    """

    @abc.abstractmethod
    def pairs(
        self, problem: Problem, key: Array, steps: int
    ) -> tuple[Float[Array, "T X"], Float[Array, "T Y"]]:
        """The first `steps` inputs and outputs, equal to those that `step` would give with this key."""

    @abc.abstractmethod
    def queries(
        self, problem: Problem, key: Array, count: int
    ) -> tuple[Float[Array, "N X"], Float[Array, "N Y"]]:
        """Inputs and outputs to test predictions on, from the whole domain."""


def split_like(key: Array, count: int) -> Array:
    """Key number i depends on i alone, not on how many there are."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count))
