"""Gaussian parametrised by the Cholesky factor of its precision."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractGaussian
from recurrent_laplace.gaussians.linalg import (
    cholesky,
    solve_lower_transposed,
    transpose,
    triangular_inverse,
)


class DenseGaussian(AbstractGaussian):
    """Gaussian `N(mean, (L L^T)^-1)` with `L = precision_cholesky`.

    **Arguments:** `mean` of shape `(*leading, F)`; `precision_cholesky`, lower triangular, of shape
    `(*leading, F, F)`.

    ```python
    belief = rl.DenseGaussian.from_precision(jnp.zeros(3), jnp.eye(3) + 1)
    belief.entropy()
    ```
    """

    mean: Float[Array, "*lead F"]
    precision_cholesky: Float[Array, "*lead F F"]

    @classmethod
    def from_precision(
        cls, mean: Float[Array, "*lead F"], precision: Float[Array, "*lead F F"]
    ) -> "DenseGaussian":
        """Build from the `mean` and a symmetric positive-definite `precision`, `(*leading, F, F)`."""
        return cls(mean, cholesky(precision))

    def variance(self) -> Float[Array, "*lead F"]:
        return jnp.sum(triangular_inverse(self.precision_cholesky) ** 2, axis=-2)

    def covariance(self) -> Float[Array, "*lead F F"]:
        inverse = triangular_inverse(self.precision_cholesky)
        return transpose(inverse) @ inverse

    def precision(self) -> Float[Array, "*lead F F"]:
        return self.precision_cholesky @ transpose(self.precision_cholesky)

    def whiten(self, deviation: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return jnp.einsum("...ij,...i->...j", self.precision_cholesky, deviation)

    def color(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return solve_lower_transposed(self.precision_cholesky, noise)

    def covariance_root(self) -> Float[Array, "*lead F F"]:
        return transpose(triangular_inverse(self.precision_cholesky))

    def precision_diagonal(self) -> Float[Array, "*lead F"]:
        return jnp.sum(self.precision_cholesky**2, axis=-1)

    def log_det_precision(self) -> Float[Array, "*lead"]:
        diagonal = jnp.diagonal(self.precision_cholesky, axis1=-2, axis2=-1)
        return 2 * jnp.sum(jnp.log(diagonal), axis=-1)
