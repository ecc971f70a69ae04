"""Point mass."""

from typing import NoReturn

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractBelief


def _refuse(quantity: str) -> NoReturn:
    raise ValueError(
        f"a point belief has no {quantity}, since it has no density. "
        "Use a LaplacePosterior or a VariationalPosterior."
    )


class PointBelief(AbstractBelief):
    """Point mass at `mean`: the belief of a plain RNN.

    Its variance is zero; precision, entropy, density and KL divergence raise errors.

    **Arguments:** `mean` of shape `(*leading, F)`.

    ```python
    belief = rl.PointBelief(jnp.ones(3))
    belief.sample(jax.random.key(0), (2,))  # the mean, twice
    ```
    """

    mean: Float[Array, "*lead F"]

    def variance(self) -> Float[Array, "*lead F"]:
        return jnp.zeros_like(self.mean)

    def covariance(self) -> Float[Array, "*lead F"]:
        return jnp.zeros_like(self.mean)

    def precision(self) -> NoReturn:
        _refuse("precision")

    def entropy(self) -> NoReturn:
        _refuse("entropy")

    def log_prob(self, z: Float[Array, "*shape F"]) -> NoReturn:
        _refuse("log-density")

    def kl(self, other: AbstractBelief) -> NoReturn:
        _refuse("KL divergence")

    def mahalanobis(self, other: AbstractBelief) -> NoReturn:
        _refuse("KL divergence")

    def perturb(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return jnp.broadcast_to(self.mean, jnp.broadcast_shapes(noise.shape, self.mean.shape))
