"""Recurrent regressor whose predictions depend on its belief."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_number
from recurrent_laplace.models.config import AgentConfig
from recurrent_laplace.models.initialization import flax_initialized
from recurrent_laplace.models.layers import EmbeddedHead, Embedder, Head
from recurrent_laplace.models.posterior import make_memory
from recurrent_laplace.models.posterior_config import AbstractPosteriorConfig
from recurrent_laplace.posterior import AbstractPosterior, GaussianLikelihood, Predictor

LEAST_STDDEV = 1e-3
"""Default lower bound of the predictive standard deviation."""


class Prediction(eqx.Module):
    """Independent Gaussian prediction of each output.

    **Arguments:** `mean` and `variance`, both of shape `(*leading, Y)`.

    ```python
    rl.Prediction(jnp.zeros(1), jnp.ones(1)).log_prob(jnp.array([0.5]))
    ```
    """

    mean: Float[Array, "*lead Y"]
    variance: Float[Array, "*lead Y"]

    def log_prob(self, y: Float[Array, "... Y"]) -> Float[Array, "..."]:
        """Joint log-density of the outputs."""
        square = (y - self.mean) ** 2 / self.variance
        return -0.5 * jnp.sum(square + jnp.log(2 * math.pi * self.variance), axis=-1)


class Regressor(eqx.Module):
    """Regressor with embedders of inputs and outputs, a memory, a posterior over its features, and a head.

    The likelihood is Gaussian, with a learned mean and a learned constant variance. `Regressor.init` makes
    one from a configuration.

    **Arguments:**

    - `input_embedder`, `output_embedder`: embedders of an observed pair, whose outputs together are the input
      of the memory.
    - `posterior`: posterior over the features of the memory, which it contains.
    - `prediction_head`: head of the predicted mean.
    - `raw_stddev`: predictive standard deviation of each output before the softplus, `(Y,)`.
    - `least_stddev`: lower bound of the predictive standard deviation, added to the softplus.

    ```python
    model = rl.Regressor.init(rl.AgentConfig(), rl.LaplaceConfig(), key=jax.random.key(0))
    x, y = jnp.ones((5, 1)), jnp.zeros((5, 1))
    beliefs = model.posterior.unroll(model.embed(x, y))
    prediction = model.predict(beliefs.sample(jax.random.key(1), (30,)), x + 1)
    ```
    """

    input_embedder: Embedder
    output_embedder: Embedder
    posterior: AbstractPosterior
    prediction_head: Head
    raw_stddev: Float[Array, " Y"]
    least_stddev: float = eqx.field(static=True, default=LEAST_STDDEV)

    def __check_init__(self):
        check_number("least_stddev", self.least_stddev, above=0)

    @classmethod
    def init(
        cls,
        config: AgentConfig,
        posterior: AbstractPosteriorConfig,
        *,
        input_size: int = 1,
        output_size: int = 1,
        least_stddev: float = LEAST_STDDEV,
        key: Array,
    ) -> "Regressor":
        """Initialise a regressor.

        **Arguments:**

        - `config`: sizes of the network.
        - `posterior`: configuration of the posterior on its memory.
        - `input_size`, `output_size`: lengths of an input and of an output.
        - `least_stddev`: lower bound of the predictive standard deviation.
        - `key`: random key for the initial weights.
        """
        keys = iter(jax.random.split(key, 5))
        input_embedder, output_embedder = (
            Embedder.init(size, config.embedding_sizes, layer_norm=config.layer_norm, key=next(keys))
            for size in (input_size, output_size)
        )
        embedding_size = config.embedding_sizes[-1]
        memory = make_memory(config, 2 * embedding_size, key=next(keys))
        model = cls(
            input_embedder,
            output_embedder,
            posterior.build(memory, key=next(keys)),
            Head.init(
                config.features + embedding_size,
                config.head_sizes,
                output_size,
                layer_norm=config.layer_norm,
                key=next(keys),
            ),
            jnp.zeros(output_size),
            least_stddev,
        )
        if config.initialization == "pytorch":
            return model
        return flax_initialized(model, key=jax.random.fold_in(key, 0))

    def embed(self, x: Float[Array, "*lead X"], y: Float[Array, "*lead Y"]) -> Float[Array, "*lead D"]:
        """Input of the memory, from an observed pair."""
        return jnp.concatenate([self.input_embedder(x), self.output_embedder(y)], axis=-1)

    def predict(self, z: Float[Array, "S ... F"], x: Float[Array, "... X"]) -> Prediction:
        """Prediction at `x`, with the mean averaged over samples `z` of the belief; other axes broadcast."""
        mean = jnp.mean(self.prediction_head(z, self.input_embedder(x)), axis=0)
        return Prediction(mean, jnp.broadcast_to(self.variance(), mean.shape))

    @property
    def predictor(self) -> Predictor:
        """Predictive head with its Gaussian likelihood; a query is an input `x`, of shape `(X,)`."""
        head = EmbeddedHead(self.input_embedder, self.prediction_head)
        likelihood = GaussianLikelihood(0.5 * jnp.log(self.variance()))
        return Predictor(head, likelihood, context_size=self.input_embedder.input_size)

    def variance(self) -> Float[Array, " Y"]:
        """Variance of each output around its mean."""
        return (jax.nn.softplus(self.raw_stddev) + self.least_stddev) ** 2
