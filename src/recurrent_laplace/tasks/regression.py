"""Regression of random Fourier series."""

import dataclasses
import math
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.tasks.base import AbstractRegressionTask, Step, split_like
from recurrent_laplace.tasks.registry import register_task
from recurrent_laplace.tasks.shifts import REGRESSION_SHIFTS, Shift
from recurrent_laplace.tasks.support import register_support

STRIPS = ((-1.0, -0.8), (-0.2, 0.2), (0.8, 1.0))
"""Intervals that inputs of kind `"strips"` are sampled from."""


class FourierSeries(eqx.Module):
    """Fourier series `y = A_0 / 2 + sum_k A_k cos(2 pi k (x - shift) / period - phase_k)`."""

    amplitudes: Float[Array, " n1"]
    phases: Float[Array, " n"]
    shift: Float[Array, ""]
    period: float = eqx.field(static=True)

    def __call__(self, x: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
        k = jnp.arange(1, self.phases.shape[0] + 1)
        angles = 2 * jnp.pi * k * (x[..., None] - self.shift) / self.period - self.phases
        return self.amplitudes[0] / 2 + jnp.sum(self.amplitudes[1:] * jnp.cos(angles), axis=-1)


class RegressionState(eqx.Module):
    """Index of the next pair, and the key that it is sampled with."""

    key: Array
    count: Array


@register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class Regression(AbstractRegressionTask):
    """Regression of random Fourier series on [-1, 1] from noisy values.

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
    """Inputs at which functions are observed: the whole interval, or three strips of it."""

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
        key_amplitudes, key_phases, key_shift = jax.random.split(key, 3)
        return FourierSeries(
            jax.random.uniform(key_amplitudes, (self.terms + 1,), minval=-1, maxval=1),
            jax.random.uniform(key_phases, (self.terms,), maxval=math.pi),
            jax.random.uniform(key_shift, maxval=math.pi),
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
        return state, Step(
            observation=self._observe(problem, state, y),
            reward=-((y - prediction) ** 2),
            terminated=jnp.array(False),
            truncated=jnp.array(False),
            regret=(problem(x) - prediction) ** 2,
        )

    def _observe(self, problem: FourierSeries, state: RegressionState, y: Array) -> Array:
        x, _ = self._pair(problem, jax.random.fold_in(state.key, state.count))
        return jnp.stack([x, y])

    def _pair(self, problem: FourierSeries, key: Array) -> tuple[Array, Array]:
        key_x, key_noise = jax.random.split(key)
        x = jax.random.uniform(key_x, minval=-1, maxval=1)
        if self.inputs == "strips":
            x = _into_strips((x + 1) / 2)
        return x, problem(x) + self.noise_stddev * jax.random.normal(key_noise)


def _into_strips(uniform: Array) -> Array:
    """Map [0, 1] to the strips, uniformly over their total length."""
    starts = jnp.array([low for low, _ in STRIPS])
    widths = jnp.array([high - low for low, high in STRIPS])
    length = uniform * jnp.sum(widths)
    ends = jnp.cumsum(widths)
    strip = jnp.sum(length >= ends[:-1])
    return starts[strip] + length - (ends[strip] - widths[strip])


def double_amplitudes(task: Regression, series: FourierSeries, key: Array) -> FourierSeries:
    """Double the amplitudes."""
    del task, key
    return eqx.tree_at(lambda s: s.amplitudes, series, 2 * series.amplitudes)


def fastest_cosine(task: Regression, series: FourierSeries, key: Array) -> FourierSeries:
    """Keep the fastest cosine alone, with amplitude 1."""
    del task, key
    alone = jnp.zeros_like(series.amplitudes).at[-1].set(jnp.sign(series.amplitudes[-1]))
    return eqx.tree_at(lambda s: s.amplitudes, series, alone)


register_support(
    Regression,
    shifts={
        **REGRESSION_SHIFTS,
        "moved": Shift(values=lambda task, x, y, key: task.sample(key)(x)),
        "support": Shift(problem=double_amplitudes, from_the_start=True),
        "prior": Shift(problem=fastest_cosine, from_the_start=True),
        "function_class": Shift(values=lambda task, x, y, key: jnp.sign(y), from_the_start=True),
    },
)
