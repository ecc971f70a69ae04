"""Action spaces, which tasks declare: a finite set of actions, or vectors within bounds."""

import abc
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_size, shown
from recurrent_laplace.models.config import AgentConfig
from recurrent_laplace.models.policies import AbstractPolicyFamily, CategoricalFamily, GaussianFamily
from recurrent_laplace.posterior import Predictor


@dataclasses.dataclass(frozen=True)
class AbstractActionSpace(abc.ABC):
    """Interface of an action space: `rl.Discrete` or `rl.Box`.

    ```python
    space = rl.TwoArmBandit().action_space
    space.encode(space.sample(jax.random.key(0)), float)  # one-hot
    ```
    """

    @property
    @abc.abstractmethod
    def count(self) -> int:
        """Number of actions, if they are finite."""

    @property
    @abc.abstractmethod
    def discrete_actions(self) -> int:
        """Number of discrete actions, or 0."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Length of an encoded action."""

    @abc.abstractmethod
    def family(self, config: AgentConfig) -> AbstractPolicyFamily:
        """Family of the policies of an agent; refuses options of the agent that do not fit."""

    @abc.abstractmethod
    def none(self, dtype: Any) -> Array:
        """Placeholder of the previous action before the first one; its encoding is zero."""

    @abc.abstractmethod
    def encode(self, action: Array, dtype: Any) -> Float[Array, "*lead N"]:
        """Input of a network for actions."""

    @abc.abstractmethod
    def query(self, predictor: Predictor, context: Any, action: Array) -> Float[Array, "*lead Q"]:
        """Query of a predictive head for actions."""

    @abc.abstractmethod
    def sample(self, key: Array) -> Array:
        """Sample an action uniformly."""

    @abc.abstractmethod
    def remap(self, action: Array) -> Array:
        """Replace each action by another one, by a fixed rule."""

    @abc.abstractmethod
    def check(self, action: Any) -> None:
        """Raise if an action is outside of the space; traced actions are not checked."""


@dataclasses.dataclass(frozen=True)
class Discrete(AbstractActionSpace):
    """Finite set of actions, the whole numbers from 0 to `actions` - 1.

    ```python
    rl.Discrete(4).sample(jax.random.key(0))
    ```
    """

    actions: int
    """Number A of actions."""

    def __post_init__(self) -> None:
        check_size("actions", self.actions)

    def __str__(self) -> str:
        return f"{self.actions} actions"

    @property
    def count(self) -> int:
        return self.actions

    @property
    def discrete_actions(self) -> int:
        return self.actions

    @property
    def size(self) -> int:
        return self.actions

    def family(self, config: AgentConfig) -> CategoricalFamily:
        del config
        return CategoricalFamily(self)

    def none(self, dtype: Any) -> Int[Array, ""]:
        del dtype
        return jnp.array(-1)

    def encode(self, action: Int[Array, "*lead"], dtype: Any) -> Float[Array, "*lead A"]:
        """One-hot."""
        return jax.nn.one_hot(action, self.actions, dtype=dtype)

    def query(self, predictor: Predictor, context: Any, action: Int[Array, "*lead"]) -> Any:
        return predictor.query(context, action)

    def sample(self, key: Array) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, self.actions)

    def remap(self, action: Int[Array, "*lead"]) -> Int[Array, "*lead"]:
        """The next action."""
        return (action + 1) % self.actions

    def check(self, action: Any) -> None:
        if isinstance(action, Tracer):
            return
        value = np.asarray(action)
        if value.shape or not np.issubdtype(value.dtype, np.integer) or not 0 <= value < self.actions:
            raise ValueError(
                f"action must be a whole number from 0 to {self.actions - 1}; got {shown(value.tolist())}."
            )


@dataclasses.dataclass(frozen=True)
class Box(AbstractActionSpace):
    """Vectors of real numbers, each between two bounds or unbounded.

    An entry of the action is encoded from -1 at its lower bound to 1 at its upper one, an unbounded entry as
    it is: choose units in which it is of the order of 1.

    **Arguments:** `low` and `high`, the bounds of each entry: both finite, or -inf and inf.

    ```python
    rl.Box(low=(-2.0, 0.0), high=(2.0, 1.0)).sample(jax.random.key(0))
    ```
    """

    low: tuple[float, ...]
    """Lower bound of each entry."""
    high: tuple[float, ...]
    """Upper bound of each entry."""

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            bounds = np.asarray(getattr(self, name), float)
            if bounds.ndim > 1 or bounds.size == 0:
                raise ValueError(
                    f"{name} must be one bound or a vector of bounds; got {shown(getattr(self, name))}."
                )
            object.__setattr__(self, name, tuple(map(float, bounds.reshape(-1))))
        if len(self.low) != len(self.high):
            raise ValueError(f"low and high must have one length; got {len(self.low)} and {len(self.high)}.")
        for low, high in zip(self.low, self.high, strict=True):
            if not (low < high and math.isfinite(low) == math.isfinite(high)):
                raise ValueError(
                    "low must be below high in every entry, both finite or both infinite; "
                    f"got {low:g} and {high:g}."
                )

    def __str__(self) -> str:
        low, high = (
            "({})".format(", ".join(f"{bound:g}" for bound in bounds)) for bounds in (self.low, self.high)
        )
        return f"continuous actions between {low} and {high}"

    @property
    def count(self) -> int:
        raise ValueError(f"continuous actions have no number: use action_space, here {self}.")

    @property
    def discrete_actions(self) -> int:
        return 0

    @property
    def size(self) -> int:
        return len(self.low)

    @property
    def is_bounded(self) -> bool:
        """Whether every entry has bounds."""
        return all(map(math.isfinite, self.low))

    def family(self, config: AgentConfig) -> GaussianFamily:
        squashed = config.action_distribution == "tanh_gaussian"
        if squashed and not self.is_bounded:
            raise ValueError(
                f"action_distribution 'tanh_gaussian' needs bounded actions; got {self}: use 'gaussian'."
            )
        if config.reward_model:
            raise ValueError(
                "reward_model needs discrete actions; these are continuous: use predict=('reward',) instead."
            )
        return GaussianFamily(self, squashed=squashed, state_dependent=config.action_stddev == "state")

    def scale(self, dtype: Any = None) -> Float[Array, " A"]:
        """Half range of each entry, 1 without bounds."""
        pairs = zip(self.low, self.high, strict=True)
        return jnp.asarray([(high - low) / 2 if math.isfinite(low) else 1.0 for low, high in pairs], dtype)

    def center(self, dtype: Any = None) -> Float[Array, " A"]:
        """Centre of each entry, 0 without bounds."""
        pairs = zip(self.low, self.high, strict=True)
        return jnp.asarray([(high + low) / 2 if math.isfinite(low) else 0.0 for low, high in pairs], dtype)

    def normalize(self, action: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        """Actions in half ranges from the centre."""
        return (action - self.center(action.dtype)) / self.scale(action.dtype)

    def denormalize(self, normalized: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        """Inverse of `normalize`, clipped at the bounds."""
        dtype = normalized.dtype
        action = self.center(dtype) + self.scale(dtype) * normalized
        return jnp.clip(action, jnp.asarray(self.low, dtype), jnp.asarray(self.high, dtype))

    def none(self, dtype: Any) -> Float[Array, " A"]:
        return jnp.full(self.size, jnp.nan, dtype)

    def encode(self, action: Float[Array, "*lead A"], dtype: Any) -> Float[Array, "*lead A"]:
        """Actions in half ranges from the centre; zeros before the first action."""
        return jnp.nan_to_num(self.normalize(action.astype(dtype)), nan=0.0)

    def query(self, predictor: Predictor, context: Float[Array, "*lead C"], action: Array) -> Any:
        return predictor.query(jnp.concatenate([context, self.encode(action, context.dtype)], axis=-1))

    def sample(self, key: Array) -> Float[Array, " A"]:
        """Uniform between the bounds; standard normal without bounds."""
        normal = jax.random.normal(key, (self.size,))
        uniform = jax.random.uniform(key, (self.size,), minval=-1, maxval=1)
        return self.denormalize(jnp.where(jnp.isfinite(jnp.asarray(self.low)), uniform, normal))

    def remap(self, action: Float[Array, "*lead A"]) -> Float[Array, "*lead A"]:
        """Reflection at the centre."""
        return 2 * self.center(action.dtype) - action

    def check(self, action: Any) -> None:
        if isinstance(action, Tracer):
            return
        value = np.asarray(action, float)
        if value.shape != (self.size,):
            raise ValueError(f"action must have shape ({self.size},); got {value.shape}.")
        low, high = np.asarray(self.low), np.asarray(self.high)
        # A bound in float32 may lie outside of its float64 value.
        slack = 1e-6 * np.where(np.isfinite(low), high - low, 1)
        outside = ~((value >= low - slack) & (value <= high + slack))
        if outside.any():
            entry = int(outside.argmax())
            raise ValueError(
                f"action must be between {low[entry]:g} and {high[entry]:g} in entry {entry}; "
                f"got {value[entry]:g}."
            )


def as_action_space(actions: int | AbstractActionSpace) -> AbstractActionSpace:
    """Action space given as such, or as a number of discrete actions."""
    return actions if isinstance(actions, AbstractActionSpace) else Discrete(actions)
