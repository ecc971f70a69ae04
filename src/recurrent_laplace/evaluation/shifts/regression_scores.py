"""Shift scores of a regressor along observed functions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.play import RolloutTrace
from recurrent_laplace.models import Regressor
from recurrent_laplace.monitoring.readings import Reading
from recurrent_laplace.oracles import AbstractPredictiveBelief, AbstractRegressionOracle
from recurrent_laplace.oracles.base import surprise_at
from recurrent_laplace.tasks import AbstractRegressionTask
from recurrent_laplace.tasks.shifts import shifted_pairs


@eqx.filter_jit
def observe_functions(
    model: Regressor,
    task: AbstractRegressionTask,
    shift: str,
    *,
    functions: int,
    steps: int,
    at: int,
    key: Array,
) -> RolloutTrace:
    """Show sampled functions, shifted at step `at`, to a regressor; `experience` holds the pairs."""

    def observe(key: Array) -> RolloutTrace:
        return _replay(model, *shifted_pairs(task, shift, key, steps=steps, at=at))

    return jax.vmap(observe)(jax.random.split(key, functions))


@eqx.filter_jit
def functions_replayed_by(model: Regressor, played: RolloutTrace) -> RolloutTrace:
    """Replay observed functions through the memory of another regressor."""
    return jax.vmap(lambda pairs: _replay(model, *pairs))(played.experience)


def _replay(model: Regressor, x: Array, y: Array) -> RolloutTrace:
    inputs = model.embed(x, y)
    trace = model.posterior.memory.unroll(inputs)
    return RolloutTrace((x, y), inputs, model.input_embedder(x), trace.hidden)


def prediction_errors(reading: Reading, played: RolloutTrace) -> Float[np.ndarray, "E T"]:
    """Errors of the predictions by the previous beliefs."""
    _, y = played.experience
    prediction = np.asarray(reading.value, float) - np.asarray(reading.value_moved, float)
    return np.asarray(y, float)[..., 0] - prediction


@eqx.filter_jit
def exact_value_surprise(oracle: AbstractRegressionOracle, played: RolloutTrace) -> Float[Array, "E T"]:
    """Surprise of each value under the previous exact belief: an upper bound for detectors."""

    def surprise_along(x: Array, y: Array) -> Array:
        def step(belief: AbstractPredictiveBelief, pair: tuple[Array, Array]) -> tuple[Any, Array]:
            at, value = pair
            surprise = surprise_at(jnp.exp(belief.predict(at).log_prob(value)))
            return oracle.observe(belief, at, value), surprise

        return jax.lax.scan(step, oracle.prior(x.dtype), (x, y))[1]

    return jax.vmap(surprise_along)(*played.experience)
