"""Gaussian parametrised by the eigendecomposition of its covariance."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractGaussian
from recurrent_laplace.gaussians.linalg import accretive_inverse, transpose


def skew_symmetric(entries: Float[Array, "*lead N"], size: int) -> Float[Array, "*lead F F"]:
    """Skew-symmetric `A = L - L^T`, with `entries` the strictly lower triangle of `L`, row by row."""
    rows, columns = np.tril_indices(size, -1)
    lower = jnp.zeros((*entries.shape[:-1], size, size), entries.dtype).at[..., rows, columns].set(entries)
    return lower - transpose(lower)


def cayley_map(skew: Float[Array, "*lead F F"]) -> Float[Array, "*lead F F"]:
    """Orthogonal matrix `U = (I - A)(I + A)^-1` of a skew-symmetric `A`."""
    eye = jnp.eye(skew.shape[-1], dtype=skew.dtype)
    # (I - A)(I + A)^-1 = (2 I - (I + A))(I + A)^-1.
    return 2 * accretive_inverse(eye + skew) - eye


@jax.custom_vjp
def known_cayley_map(
    skew: Float[Array, "*lead F F"], basis: Float[Array, "*lead F F"]
) -> Float[Array, "*lead F F"]:
    """Cayley map of `skew` whose value `basis` is known, so that only its gradient is computed."""
    return basis


def _known_forward(skew: Array, basis: Array) -> tuple[Array, Array]:
    return basis, basis


def _known_backward(basis: Array, gradient: Array) -> tuple[Array, Array]:
    # U = 2 V - I with V = (I + A)^-1, so dU = -2 V dA V, and V is (U + I) / 2.
    inverse = transpose(basis + jnp.eye(basis.shape[-1], dtype=basis.dtype)) / 2
    return -2 * inverse @ (gradient @ inverse), jnp.zeros_like(basis)


known_cayley_map.defvjp(_known_forward, _known_backward)


def cayley_basis(rotation: Float[Array, "*lead N"], size: int) -> Float[Array, "*lead F F"]:
    """Orthogonal matrix from unconstrained parameters, by the Cayley map (paper, appendix on the VRNN).

    **Arguments:** `rotation`, the `F (F - 1) / 2` entries of a strictly lower triangle, row by row; `size` F.

    ```python
    basis = rl.cayley_basis(jnp.array([0.1, 0.2, 0.3]), 3)
    basis @ basis.T  # the identity
    ```
    """
    return cayley_map(skew_symmetric(rotation, size))


class SpectralGaussian(AbstractGaussian):
    """Gaussian `N(mean, U exp(S) U^T)`, the parametrisation of the VRNN.

    **Arguments:** `mean` and `log_eigenvalues` S of shape `(*leading, F)`; `basis` U, orthogonal, of shape
    `(*leading, F, F)`.

    ```python
    belief = rl.SpectralGaussian(jnp.zeros(3), jnp.zeros(3), rl.cayley_basis(jnp.ones(3), 3))
    belief.covariance()
    ```
    """

    mean: Float[Array, "*lead F"]
    log_eigenvalues: Float[Array, "*lead F"]
    basis: Float[Array, "*lead F F"]

    def variance(self) -> Float[Array, "*lead F"]:
        return jnp.einsum("...fe,...e->...f", self.basis**2, jnp.exp(self.log_eigenvalues))

    def covariance(self) -> Float[Array, "*lead F F"]:
        root = self.covariance_root()
        return root @ transpose(root)

    def precision(self) -> Float[Array, "*lead F F"]:
        root = self.basis * jnp.exp(-self.log_eigenvalues / 2)[..., None, :]
        return root @ transpose(root)

    def whiten(self, deviation: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        rotated = jnp.einsum("...fe,...f->...e", self.basis, deviation)
        return rotated * jnp.exp(-self.log_eigenvalues / 2)

    def color(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return jnp.einsum("...fe,...e->...f", self.basis, noise * jnp.exp(self.log_eigenvalues / 2))

    def covariance_root(self) -> Float[Array, "*lead F F"]:
        return self.basis * jnp.exp(self.log_eigenvalues / 2)[..., None, :]

    def precision_diagonal(self) -> Float[Array, "*lead F"]:
        return jnp.einsum("...fe,...e->...f", self.basis**2, jnp.exp(-self.log_eigenvalues))

    def eigenvalues(self) -> Float[Array, "*lead F"]:
        return jnp.exp(self.log_eigenvalues)

    def log_det_precision(self) -> Float[Array, "*lead"]:
        return -jnp.sum(self.log_eigenvalues, axis=-1)
