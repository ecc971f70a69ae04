"""Random Fourier series."""

import dataclasses
import math
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.tasks.base import AbstractRegressionTask, Step, split_like

STRIPS = ((-1.0, -0.8), (-0.2, 0.2), (0.8, 1.0))
"""Where the inputs are when they do not fill the interval."""


class FourierSeries(eqx.Module):
    """`y = A_0 / 2 + sum_k A_k cos(2 pi k (x - shift) / period - phase_k)`."""

    amplitudes: Float[Array, " n1"]
    phases: Float[Array, " n"]
    shift: Float[Array, ""]
    period: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
        k = jnp.arange(1, self.phases.shape[0] + 1)
        angles = 2 * jnp.pi * k * (x[..., None] - self.shift) / self.period - self.phases
        return self.amplitudes[0] / 2 + jnp.sum(self.amplitudes[1:] * jnp.cos(angles), axis=-1)


class RegressionState(eqx.Module):
    """Which pair comes next, and the key that it is drawn with."""

    key: Array
    count: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(AbstractRegressionTask):
    """Predict a random Fourier series on [-1, 1] from its values.

    ```python
    task = rl.Regression(noise_stddev=0.1)
    series = task.sample(jax.random.key(0))
    x, y = task.pairs(series, jax.random.key(1), steps=50)  # (50, 1), (50, 1)
    ```
    """

    name: ClassVar[str] = "regression"

    terms: int = 4
    """Number of cosines."""
    period: float = 2.0
    """Period of the slowest cosine."""
    noise_stddev: float = 0.0
    """Standard deviation of the noise on the observed values."""
    inputs: Literal["interval", "strips"] = "interval"
    """Where functions are observed: on the whole interval, or on three strips of it."""

    def check(self) -> None:
        check_size("terms", self.terms)
        check_number("period", self.period, above=0)
        check_number("noise_stddev", self.noise_stddev, least=0)
        check_choice("inputs", self.inputs, ("interval", "strips"))

    @property
    def observation_size(self) -> int:
        return 2

    def sample(self, key: Array, *, test: bool = False) -> FourierSeries:
        del test
        amplitudes, phases, shift = jax.random.split(key, 3)
        return FourierSeries(
            jax.random.uniform(amplitudes, (self.terms + 1,), minval=-1, maxval=1),
            jax.random.uniform(phases, (self.terms,), maxval=math.pi),
            jax.random.uniform(shift, maxval=math.pi),
            self.period,
        )

    def pairs(
        self, problem: FourierSeries, key: Array, steps: int
    ) -> tuple[Float[Array, "T 1"], Float[Array, "T 1"]]:
        x, y = jax.vmap(lambda k: self._pair(problem, k))(split_like(key, steps))
        return x[:, None], y[:, None]

    def queries(
        self, problem: FourierSeries, key: Array, count: int
    ) -> tuple[Float[Array, "N 1"], Float[Array, "N 1"]]:
        whole = dataclasses.replace(self, inputs="interval")
        return whole.pairs(problem, key, count)

    def reset(self, problem: FourierSeries, key: Array) -> tuple[RegressionState, Float[Array, " 2"]]:
        state = RegressionState(key, jnp.zeros((), int))
        return state, self._observe(problem, state, jnp.zeros(()))

    def step(
        self, problem: FourierSeries, state: RegressionState, action: Array, key: Array
    ) -> tuple[RegressionState, Step]:
        del key  # Pairs are drawn with the key of `reset`, so that `pairs` can give them all at once.
        x, y = self._pair(problem, jax.random.fold_in(state.key, state.count))
        state = RegressionState(state.key, state.count + 1)
        prediction = jnp.reshape(action, ())
        no = jnp.zeros((), bool)
        return state, Step(
            observation=self._observe(problem, state, y),
            reward=-((y - prediction) ** 2),
            terminated=no,
            truncated=no,
            regret=(problem(x) - prediction) ** 2,
        )

    def _observe(self, problem: FourierSeries, state: RegressionState, y: Array) -> Array:
        x, _ = self._pair(problem, jax.random.fold_in(state.key, state.count))
        return jnp.stack([x, y])

    def _pair(self, problem: FourierSeries, key: Array) -> tuple[Array, Array]:
        where, noise = jax.random.split(key)
        x = jax.random.uniform(where, minval=-1, maxval=1)
        if self.inputs == "strips":
            x = _into_strips((x + 1) / 2)
        return x, problem(x) + self.noise_stddev * jax.random.normal(noise)


def _into_strips(uniform: Array) -> Array:
    """A number in [0, 1] to a point of the strips, evenly over their length."""
    starts = jnp.array([low for low, _ in STRIPS])
    widths = jnp.array([high - low for low, high in STRIPS])
    along = uniform * jnp.sum(widths)
    ends = jnp.cumsum(widths)
    strip = jnp.sum(along >= ends[:-1])
    return starts[strip] + along - (ends[strip] - widths[strip])
