"""Scores of a regressor along functions that it is shown."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.deploy.readings import Reading
from recurrent_laplace.deploy.scores import Watched
from recurrent_laplace.evaluation.oracles.base import surprise_at
from recurrent_laplace.evaluation.oracles.regression import SeriesBelief, SeriesOracle
from recurrent_laplace.models import Regressor
from recurrent_laplace.tasks import Regression
from recurrent_laplace.tasks.shifts import shifted_pairs


@eqx.filter_jit
def watch_functions(
    model: Regressor, task: Regression, shift: str, *, functions: int, steps: int, at: int, key: Array
) -> Watched:
    """A regressor shown the values of functions, some of which change; `experience` is the pairs."""

    def one(key: Array) -> Watched:
        return _watch(model, *shifted_pairs(task, shift, key, steps=steps, at=at))

    return jax.vmap(one)(jax.random.split(key, functions))


@eqx.filter_jit
def functions_watched_by(model: Regressor, played: Watched) -> Watched:
    """The same values, as the memory of another network follows them."""
    return jax.vmap(lambda pairs: _watch(model, *pairs))(played.experience)


def _watch(model: Regressor, x: Array, y: Array) -> Watched:
    inputs = model.embed(x, y)
    trace = model.posterior.memory.unroll(inputs)
    hidden = jax.vmap(model.posterior.memory.cell.hidden)(trace.carries)
    return Watched((x, y), inputs, model.input_embedder(x), hidden)


def prediction_errors(reading: Reading, played: Watched) -> Float[np.ndarray, "E T"]:
    """How far each value was from its prediction by the belief before it."""
    _, y = played.experience
    before = np.asarray(reading.value, float) - np.asarray(reading.value_moved, float)
    return np.asarray(y, float)[..., 0] - before


@eqx.filter_jit
def exact_value_surprise(task: Regression, played: Watched) -> Float[Array, "E T"]:
    """How unlikely each value was to Bayesian linear regression in the right span: the ceiling."""
    oracle = SeriesOracle(task)

    def one(x: Array, y: Array) -> Array:
        def step(belief: SeriesBelief, pair: tuple[Array, Array]) -> tuple[SeriesBelief, Array]:
            at, value = pair
            surprise = surprise_at(jnp.exp(belief.predict(at).log_prob(value)))
            return oracle.observe(belief, at[0], value[0]), surprise

        return jax.lax.scan(step, oracle.prior(x.dtype), (x, y))[1]

    return jax.vmap(one)(*played.experience)
