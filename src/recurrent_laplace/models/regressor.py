"""A network that predicts from its belief."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.models.config import AgentConfig, PosteriorConfig
from recurrent_laplace.models.mlp import Embedder, Head
from recurrent_laplace.models.posterior import make_memory, make_posterior
from recurrent_laplace.posterior import AbstractPosterior

LEAST_STDDEV = 1e-3


class Prediction(eqx.Module):
    """A Gaussian for each output."""

    mean: Float[Array, "*lead Y"]
    variance: Float[Array, "*lead Y"]

    def log_prob(self, y: Float[Array, "*lead Y"]) -> Float[Array, "*lead"]:
        """Log-density of outputs."""
        square = (y - self.mean) ** 2 / self.variance
        return -0.5 * jnp.sum(square + jnp.log(2 * math.pi * self.variance), axis=-1)


class Regressor(eqx.Module):
    """Embedders of inputs and outputs, a memory, a posterior over its features, and a head.

    The likelihood is Gaussian, with a learned mean and a learned variance that depends on nothing.

    ```python
    model = rl.Regressor.init(rl.AgentConfig(), rl.PosteriorConfig(), key=jax.random.key(0))
    beliefs = model.posterior.unroll(model.embed(x, y))
    prediction = model.predict(beliefs.sample(key, (30,)), x_next)
    ```
    """

    input_embedder: Embedder
    output_embedder: Embedder
    posterior: AbstractPosterior
    prediction_head: Head
    raw_stddev: Float[Array, " Y"]

    @classmethod
    def init(
        cls,
        config: AgentConfig,
        posterior: PosteriorConfig,
        *,
        input_size: int = 1,
        output_size: int = 1,
        key: Array,
    ) -> "Regressor":
        """A freshly initialised network."""
        keys = iter(jax.random.split(key, 5))
        input_embedder, output_embedder = (
            Embedder.init(size, config.embedding_sizes, layer_norm=config.layer_norm, key=next(keys))
            for size in (input_size, output_size)
        )
        embedding_size = config.embedding_sizes[-1]
        memory = make_memory(config, 2 * embedding_size, key=next(keys))
        return cls(
            input_embedder,
            output_embedder,
            make_posterior(posterior, memory, key=next(keys)),
            Head.init(
                config.features + embedding_size,
                config.head_sizes,
                output_size,
                layer_norm=config.layer_norm,
                key=next(keys),
            ),
            jnp.zeros(output_size),
        )

    def embed(self, x: Float[Array, "*lead X"], y: Float[Array, "*lead Y"]) -> Float[Array, "*lead D"]:
        """The memory's input, from an observed pair."""
        return jnp.concatenate([self.input_embedder(x), self.output_embedder(y)], axis=-1)

    def predict(self, z: Float[Array, "S *lead F"], x: Float[Array, "*lead X"]) -> Prediction:
        """The prediction at `x`: means and variances averaged over draws from the belief."""
        mean = jnp.mean(self.prediction_head(z, self.input_embedder(x)), axis=0)
        return Prediction(mean, jnp.broadcast_to(self.variance(), mean.shape))

    def variance(self) -> Float[Array, " Y"]:
        """The variance of each output around its mean, whatever the draw."""
        return (jax.nn.softplus(self.raw_stddev) + LEAST_STDDEV) ** 2
