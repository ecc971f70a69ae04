"""Linear-quadratic-Gaussian control with a hidden constant disturbance."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number
from recurrent_laplace.models import Box
from recurrent_laplace.tasks.base import AbstractControlTask, Step
from recurrent_laplace.tasks.registry import register_task
from recurrent_laplace.tasks.shifts import CONTROL_SHIFTS, Shift
from recurrent_laplace.tasks.support import register_support

START_STDDEV = 1.0
"""Standard deviation of the first state."""


class LQGProblem(eqx.Module):
    """The first state, and the disturbance that is added at every step."""

    start: Float[Array, ""]
    disturbance: Float[Array, ""]


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class LQG(AbstractControlTask):
    """Linear system with a hidden constant disturbance, to be held at zero under observation noise.

    The state follows `x' = persistence x + action + disturbance + process noise`; the observation is the
    state plus noise, and the reward the negative square of the next observation. Actions are unbounded.

    The reward tells no more than the observation does, so the posterior over state and disturbance is
    Gaussian, that of a Kalman filter. The best action cancels the expected next state. Regret is relative to
    an agent that knows the state and the disturbance.

    ```python
    task = rl.LQG(observation_stddev=0.2)
    problem = task.sample(jax.random.key(0))
    state, observation = task.reset(problem, jax.random.key(1))
    state, step = task.step(problem, state, jnp.array([0.5]), jax.random.key(2))
    ```
    """

    name: ClassVar[str] = "lqg"

    persistence: float = 0.5
    """Fraction of the state that the next one keeps."""
    disturbance_stddev: float = 1.0
    """Standard deviation of the disturbance, which is constant within a task."""
    process_stddev: float = 0.1
    """Standard deviation of the noise of the state."""
    observation_stddev: float = 0.5
    """Standard deviation of the noise of an observation."""

    def check(self) -> None:
        check_number("persistence", self.persistence, least=0, most=1)
        check_number("disturbance_stddev", self.disturbance_stddev, above=0)
        check_number("process_stddev", self.process_stddev, above=0)
        check_number("observation_stddev", self.observation_stddev, above=0)

    @property
    def action_space(self) -> Box:
        return Box(low=(-float("inf"),), high=(float("inf"),))

    @property
    def observation_size(self) -> int:
        return 1

    def sample(self, key: Array, *, test: bool = False) -> LQGProblem:
        del test
        start, disturbance = jax.random.normal(key, (2,))
        return LQGProblem(START_STDDEV * start, self.disturbance_stddev * disturbance)

    def reset(self, problem: LQGProblem, key: Array) -> tuple[Float[Array, ""], Float[Array, " 1"]]:
        return problem.start, self._observe(problem.start, key)

    def step(
        self, problem: LQGProblem, state: Float[Array, ""], action: Float[Array, " 1"], key: Array
    ) -> tuple[Float[Array, ""], Step]:
        self.action_space.check(action)
        key_process, key_observation = jax.random.split(key)
        expected = self.persistence * state + action[0].astype(state.dtype) + problem.disturbance
        state = expected + self.process_stddev * jax.random.normal(key_process, dtype=state.dtype)
        observation = self._observe(state, key_observation)
        no = jnp.zeros((), bool)
        return state, Step(observation, -(observation[0] ** 2), no, no, expected**2)

    def _observe(self, state: Float[Array, ""], key: Array) -> Float[Array, " 1"]:
        return (state + self.observation_stddev * jax.random.normal(key, dtype=state.dtype))[None]


def scale_disturbance(factor: float) -> Shift:
    """Shift of the problem that multiplies the disturbance."""

    def scaled(task: LQG, problem: LQGProblem, key: Array) -> LQGProblem:
        del task, key
        return LQGProblem(problem.start, factor * problem.disturbance)

    return Shift(problem=scaled, from_the_start=True)


register_support(
    LQG,
    parameters=lambda task, problem: problem.disturbance[None],
    shifts={
        **CONTROL_SHIFTS,
        # Another disturbance of the same size, which acts in the other direction.
        "moved": dataclasses.replace(scale_disturbance(-1.0), from_the_start=False),
        "prior": scale_disturbance(2.0),
    },
)
