"""The regression bound."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.learning.beliefs import BeliefTerms, draw
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.sharding import SHARED, on_shares
from recurrent_laplace.models import Regressor
from recurrent_laplace.posterior import AbstractPosterior, PointPosterior
from recurrent_laplace.tasks import AbstractRegressionTask


class Pairs(eqx.Module):
    """Inputs and outputs of a batch of tasks."""

    x: Float[Array, "B T X"]
    y: Float[Array, "B T Y"]

    @staticmethod
    def of_each(first: Any, second: Any) -> "Pairs":
        """Something for each part: `first` where tasks are the first axis, `second` where the second."""
        del second
        return Pairs(first, first)


def draw_pairs(
    task: AbstractRegressionTask, *, batch: int, steps: int, mesh: Mesh | None = None, key: Array
) -> Pairs:
    """Fresh problems, and the first `steps` pairs of each; each device of `mesh` has its share of them."""
    key_problem, key_pairs = jax.random.split(key)
    sample = on_shares(jax.vmap(task.sample), mesh, given=(SHARED,))
    problems = sample(jax.random.split(key_problem, batch))
    pairs = jax.vmap(lambda problem, k: task.pairs(problem, k, steps))
    pairs = on_shares(pairs, mesh, given=(SHARED, SHARED))
    return Pairs(*pairs(problems, jax.random.split(key_pairs, batch)))


def regression_loss(
    model: Regressor,
    pairs: Pairs,
    config: LearningConfig,
    *,
    key: Array,
    noise: Float[Array, "S B T F"] | None = None,
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Array]]:
    """The negative bound per step: `-E_{z ~ q_t} log p(y_{t+1} | x_{t+1}, z) + beta KL(q_t || q_{t-1})`.

    The belief before any pair predicts the first. Also returns the numbers to log, and whether all
    beliefs were finite.
    """
    posterior = model.posterior
    inputs = model.embed(pairs.x[:, :-1], pairs.y[:, :-1])
    _, beliefs, info = jax.vmap(posterior.unroll_trace)(inputs)
    terms = BeliefTerms.of(posterior, beliefs, info)
    batch = pairs.x.shape[0]
    first = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (batch, 1, *leaf.shape)), first_belief(posterior)
    )
    known = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, beliefs)
    prediction = model.predict(draw(known, config.training_samples, key=key, noise=noise), pairs.x)
    cross_entropy = -jnp.mean(prediction.log_prob(pairs.y))
    loss = cross_entropy + terms.penalty(config.beta)
    metrics = {
        "cross_entropy": cross_entropy,
        "squared_error": jnp.mean((prediction.mean - pairs.y) ** 2),
        "predictive_stddev": jnp.mean(jnp.sqrt(prediction.variance)),
        **terms.metrics(),
    }
    return loss, (metrics, terms.finite)


def first_belief(posterior: AbstractPosterior) -> AbstractBelief:
    """What is believed before any pair: q_0, or the features of the first carry where that is a point."""
    if isinstance(posterior, PointPosterior):
        return posterior.read(posterior.memory.hidden(posterior.memory.init()))
    return posterior.prior()
