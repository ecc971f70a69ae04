"""Interface of a task: a distribution over problems, and the dynamics of one problem."""

import abc
import dataclasses
import warnings
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.models.actions import AbstractActionSpace, Discrete
from recurrent_laplace.models.config import PolicyInput
from recurrent_laplace.posterior import AbstractLikelihood, GaussianLikelihood

Problem = Any
"""Sample of the distribution, hidden from the agent: a pytree of arrays."""

State = Any
"""State of the environment: a pytree of arrays."""


class Step(eqx.Module):
    """Outcome of an action: observation, reward, end of the episode, regret.

    **Arguments:**

    - `observation`: the next observation, after the end of an episode the first of the next one.
    - `reward`: the reward of the action.
    - `terminated`: whether the episode ended in a terminal state, such as a goal.
    - `truncated`: whether the episode ran out of time.
    - `regret`: the reward of the best agent that knows the problem, less that of this action, in expectation
      where rewards are random; None, at every step, where it is not known.

    ```python
    task = rl.TwoArmBandit()
    problem = task.sample(jax.random.key(0))
    _, step = task.step(problem, None, jnp.array(1), jax.random.key(1))
    step.reward
    ```
    """

    observation: Float[Array, " O"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    regret: Float[Array, ""] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AbstractTask(abc.ABC):
    """Interface of a task: a distribution over problems, and the dynamics of one problem.

    A task is a frozen dataclass. Its fields are its parameters: numbers and strings, static under `jax.jit`.
    All methods are pure and act on one problem; `jax.vmap` makes batches.

    ```python
    task = rl.Gridworld(size=5)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))
    state, step = task.step(problem, state, jnp.array(2), jax.random.key(2))
    ```
    """

    name: ClassVar[str]
    """Name on the command line and in configuration files."""
    objective: ClassVar[str]
    """Name of the default objective."""

    @abc.abstractmethod
    def check(self) -> None:
        """Refuse invalid parameters, with a sentence that says which are valid."""

    @property
    @abc.abstractmethod
    def observation_size(self) -> int:
        """Length O of an observation."""

    @abc.abstractmethod
    def sample(self, key: Array, *, test: bool = False) -> Problem:
        """Sample a problem from the training distribution, or the test distribution where they differ."""

    @abc.abstractmethod
    def reset(self, problem: Problem, key: Array) -> tuple[State, Float[Array, " O"]]:
        """Initial state of the environment, and the first observation."""

    @abc.abstractmethod
    def step(self, problem: Problem, state: State, action: Array, key: Array) -> tuple[State, Step]:
        """Next state, and the outcome of an action."""


class Vocabulary(NamedTuple):
    """Vocabulary of a task with few inputs: every observation and reward that can occur.

    **Arguments:**

    - `observations`: the N distinct observations, `(N, O)`.
    - `rewards`: the M distinct rewards, `(M,)`.

    ```python
    coin = rl.Vocabulary(observations=np.array([[-1.0], [0.0], [1.0]]), rewards=np.array([0.0, 1.0]))
    ```
    """

    observations: Float[np.ndarray, "N O"]
    rewards: Float[np.ndarray, " M"]


class AbstractControlTask(AbstractTask):
    """Interface of a task with actions, discrete or continuous.

    A subclass implements the abstract methods; `examples/add_a_task.py` is a complete one. A task with
    discrete actions may define `actions`, their number, instead of `action_space`.

    ```python
    task = rl.PiecewiseCoin()
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))
    action = task.action_space.sample(jax.random.key(2))
    state, step = task.step(problem, state, action, jax.random.key(3))
    ```
    """

    objective: ClassVar[str] = "ppo"

    policy_input: ClassVar[PolicyInput] = "belief_and_observation"
    """Default input of the policy."""

    @property
    @abc.abstractmethod
    def action_space(self) -> AbstractActionSpace:
        """Actions that `step` accepts."""

    @property
    def actions(self) -> int:
        """Number A of discrete actions."""
        return self.action_space.count

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "actions" in cls.__dict__ and "action_space" not in cls.__dict__:
            # A property of the class, which a type checker takes for an assignment to a task.
            type.__setattr__(cls, "action_space", property(lambda self: Discrete(self.actions)))
        if "alphabet" in cls.__dict__:
            message = f"{cls.__name__}.alphabet is deprecated: call it vocabulary, and return rl.Vocabulary."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            cls.vocabulary = cls.__dict__["alphabet"]

    def targets(self) -> dict[str, AbstractLikelihood]:
        """Likelihoods of what a predictive head predicts: `"reward"` and (the next) `"observation"`.

        Gaussian, with a standard deviation that is learned from 1 on, unless a task says otherwise.
        """
        return {
            "reward": GaussianLikelihood(jnp.zeros(1)),
            "observation": GaussianLikelihood(jnp.zeros(self.observation_size)),
        }

    def vocabulary(self) -> Vocabulary | None:
        """Every observation and reward that can occur, bit for bit; None if there are many.

        With it, an agent embeds each of them once per update instead of at every step.
        """
        return None


class AbstractRegressionTask(AbstractTask):
    """Interface of a regression task, whose actions are predictions of a function.

    An observation is the next input and the last output, `(x_{t+1}, y_t)`, and the reward is the negative
    squared error. Since nothing depends on the action, `pairs` gives whole sequences at once.

    ```python
    task = rl.Regression()
    problem = task.sample(jax.random.key(0))
    x, y = task.pairs(problem, jax.random.key(1), steps=5)  # (5, 1), (5, 1)
    x_test, y_test = task.queries(problem, jax.random.key(2), count=100)  # (100, 1), (100, 1)
    ```
    """

    objective: ClassVar[str] = "regression"

    @abc.abstractmethod
    def pairs(
        self, problem: Problem, key: Array, steps: int
    ) -> tuple[Float[Array, "T X"], Float[Array, "T Y"]]:
        """First `steps` inputs and outputs, equal to those of repeated `step` with this key."""

    @abc.abstractmethod
    def queries(
        self, problem: Problem, key: Array, count: int
    ) -> tuple[Float[Array, "N X"], Float[Array, "N Y"]]:
        """Inputs from the whole domain and their outputs, to test predictions on."""


def split_like(key: Array, count: int) -> Array:
    """Split a key into `count` keys, of which the i-th does not depend on `count`."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(count))
