"""Gaussian with a diagonal covariance."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractGaussian


class DiagonalGaussian(AbstractGaussian):
    """Gaussian `N(mean, diag(1 / precisions))`; `precision()` and `covariance()` return diagonals.

    **Arguments:** `mean` and `precisions`, both of shape `(*leading, F)`.

    ```python
    belief = rl.DiagonalGaussian(jnp.zeros(3), jnp.full(3, 4.0))
    belief.variance()  # 0.25, 0.25, 0.25
    ```
    """

    is_diagonal: ClassVar[bool] = True

    mean: Float[Array, "*lead F"]
    precisions: Float[Array, "*lead F"]

    def variance(self) -> Float[Array, "*lead F"]:
        return 1 / self.precisions

    def covariance(self) -> Float[Array, "*lead F"]:
        return 1 / self.precisions

    def precision(self) -> Float[Array, "*lead F"]:
        return self.precisions

    def whiten(self, deviation: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return deviation * jnp.sqrt(self.precisions)

    def color(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return noise / jnp.sqrt(self.precisions)

    def covariance_root(self) -> Float[Array, "*lead F F"]:
        eye = jnp.eye(self.mean.shape[-1], dtype=self.mean.dtype)
        return eye / jnp.sqrt(self.precisions)[..., None]

    def precision_diagonal(self) -> Float[Array, "*lead F"]:
        return self.precisions

    def eigenvalues(self) -> Float[Array, "*lead F"]:
        return self.variance()

    def log_det_precision(self) -> Float[Array, "*lead"]:
        return jnp.sum(jnp.log(self.precisions), axis=-1)
