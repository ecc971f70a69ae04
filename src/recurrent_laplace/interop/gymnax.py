"""Gymnax environments as tasks."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice
from recurrent_laplace.interop._optional import optional
from recurrent_laplace.models import Box, Discrete
from recurrent_laplace.tasks import AbstractControlTask, Step

with optional("gymnax", extra="gymnax"):
    from gymnax.environments import spaces
    from gymnax.environments.environment import Environment


class GymnaxProblem(eqx.Module):
    """Parameters of an environment, and the key of its resets."""

    params: Any
    key: Array


@dataclasses.dataclass(frozen=True)
class GymnaxTask(AbstractControlTask):
    """Task of repeated episodes in an environment of gymnax 1.x.

    A problem consists of what a reset samples (the arms of a bandit, the goal of a maze), and of the
    parameters, if they are sampled. With `start="same"` both stay for the whole task, as the goal does in
    `Gridworld`; with `start="fresh"` each episode begins with a new reset, as in gymnax. Observations are
    flattened, or one-hot where they are discrete. There is no regret, since the best return is not known.

    ```python
    environment, params = gymnax.make("CartPole-v1")
    task = rl.interop.gymnax.GymnaxTask(environment, params)
    train = rl.make_train(rl.Config(task=task))
    ```
    """

    name: ClassVar[str] = "gymnax"

    environment: Environment
    """Environment, the first result of `gymnax.make`."""
    params: Any | Callable[[Array], Any] = None
    """Parameters of the environment, or a function that samples them from a key; its defaults if unset."""
    start: Literal["same", "fresh"] = "same"
    """Start of the episodes of a problem: the same reset for all, or a fresh one for each."""

    def check(self) -> None:
        check_choice("start", self.start, ("same", "fresh"))
        if not isinstance(self.environment, Environment):
            raise ValueError(
                "environment must be the first of what gymnax.make returns; "
                f"got a {type(self.environment).__name__}."
            )
        sees, does = self._spaces
        if not isinstance(does, spaces.Box | spaces.Discrete) or len(does.shape) > 1:
            raise ValueError(
                f"environment must have discrete actions or vectors; {self.environment.name} has {does}."
            )
        if not isinstance(sees, spaces.Box | spaces.Discrete):
            raise ValueError(
                f"environment must show arrays or numbers; {self.environment.name} shows {sees}."
            )

    @property
    def action_space(self) -> Discrete | Box:
        does = self._spaces[1]
        if isinstance(does, spaces.Discrete):
            return Discrete(does.n)
        low, high = (np.broadcast_to(bound, does.shape).reshape(-1) for bound in (does.low, does.high))
        return Box(tuple(low.tolist()), tuple(high.tolist()))

    @property
    def observation_size(self) -> int:
        sees, _ = self._spaces
        if isinstance(sees, spaces.Discrete):
            return sees.n
        key = jax.random.key(0)
        observation, _ = jax.eval_shape(lambda: self.environment.reset(key, self._draw_params(key)))
        return observation.size

    def sample(self, key: Array, *, test: bool = False) -> GymnaxProblem:
        del test
        key_params, key_start = jax.random.split(key)
        return GymnaxProblem(self._draw_params(key_params), key_start)

    def reset(self, problem: GymnaxProblem, key: Array) -> tuple[Any, Float[Array, " O"]]:
        start = problem.key if self.start == "same" else key
        observation, state = self.environment.reset(start, problem.params)
        return jax.tree.map(jnp.asarray, state), self._flat(observation)

    def step(self, problem: GymnaxProblem, state: Any, action: Array, key: Array) -> tuple[Any, Step]:
        does = self._spaces[1]
        observation, new, reward, terminated, truncated, _ = self.environment.step(
            key, state, jnp.reshape(action, does.shape).astype(does.dtype), problem.params
        )
        # gymnax may say both of one step; here the time limit counts only if nothing else ended it.
        terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
        over, truncated = terminated | truncated, truncated & ~terminated
        if self.start == "same":
            first = self.environment.reset(problem.key, problem.params)
            observation, new = jax.tree.map(lambda a, b: jnp.where(over, a, b), first, (observation, new))
        # Types as they were, for scans.
        new = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new, state)
        observation = self._flat(observation)
        reward = jnp.asarray(reward, observation.dtype)
        return new, Step(observation, reward, terminated, truncated)

    @property
    def _spaces(self) -> tuple[Any, Any]:
        """Spaces of observations and actions, whose sizes do not depend on sampled parameters."""
        with jax.ensure_compile_time_eval():
            params = self._draw_params(jax.random.key(0))
            return self.environment.observation_space(params), self.environment.action_space(params)

    def _draw_params(self, key: Array) -> Any:
        if callable(self.params):
            return self.params(key)
        return self.environment.default_params if self.params is None else self.params

    def _flat(self, observation: Array) -> Float[Array, " O"]:
        if isinstance(self._spaces[0], spaces.Discrete):
            return jax.nn.one_hot(observation, self.observation_size)
        return jnp.ravel(observation).astype(float)
