"""A belief without width."""

from typing import NoReturn

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractBelief


def _refuse(what: str) -> NoReturn:
    raise ValueError(
        f"a point belief has no {what}: it is all its mass at one place. "
        "Use a LaplacePosterior or a VariationalPosterior to have one."
    )


class PointBelief(AbstractBelief):
    """All mass at `mean`: the plain RNN. Its variance is zero; entropy, density and KL are errors."""

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
