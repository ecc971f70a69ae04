"""Gaussians held by the eigenvalues and eigenvectors of their covariance."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.gaussians.base import AbstractGaussian
from recurrent_laplace.gaussians.factorization import accretive_inverse, transpose


def skew_symmetric(entries: Float[Array, "*lead N"], size: int) -> Float[Array, "*lead F F"]:
    """`A = L - L^T`, with the `F (F - 1) / 2` entries of the strictly lower triangular `L` row by row."""
    rows, columns = np.tril_indices(size, -1)
    lower = jnp.zeros((*entries.shape[:-1], size, size), entries.dtype).at[..., rows, columns].set(entries)
    return lower - transpose(lower)


def cayley_map(skew: Float[Array, "*lead F F"]) -> Float[Array, "*lead F F"]:
    """Orthogonal `U = (I - A)(I + A)^-1` of skew-symmetric `A`."""
    eye = jnp.eye(skew.shape[-1], dtype=skew.dtype)
    # (I - A)(I + A)^-1 = (2 I - (I + A))(I + A)^-1.
    return 2 * accretive_inverse(eye + skew) - eye


@jax.custom_vjp
def known_cayley_map(
    skew: Float[Array, "*lead F F"], basis: Float[Array, "*lead F F"]
) -> Float[Array, "*lead F F"]:
    """`cayley_map(skew)` where its value is known to be `basis`: only its gradient is computed."""
    return basis


def _known_forward(skew: Array, basis: Array) -> tuple[Array, Array]:
    return basis, basis


def _known_backward(basis: Array, gradient: Array) -> tuple[Array, Array]:
    # U = 2 V - I with V = (I + A)^-1, so dU = -2 V dA V, and V is (U + I) / 2.
    inverse = transpose(basis + jnp.eye(basis.shape[-1], dtype=basis.dtype)) / 2
    return -2 * inverse @ (gradient @ inverse), jnp.zeros_like(basis)


known_cayley_map.defvjp(_known_forward, _known_backward)


def cayley_basis(rotation: Float[Array, "*lead N"], size: int) -> Float[Array, "*lead F F"]:
    """The Cayley map of `skew_symmetric(rotation, size)`. (Paper, appendix on the VRNN.)"""
    return cayley_map(skew_symmetric(rotation, size))


class SpectralGaussian(AbstractGaussian):
    """`N(mean, U exp(S) U^T)` with `S = log_eigenvalues` and orthogonal `U = basis`: the VRNN's form.

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
        turned = jnp.einsum("...fe,...f->...e", self.basis, deviation)
        return turned * jnp.exp(-self.log_eigenvalues / 2)

    def color(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return jnp.einsum("...fe,...e->...f", self.basis, noise * jnp.exp(self.log_eigenvalues / 2))

    def covariance_root(self) -> Float[Array, "*lead F F"]:
        return self.basis * jnp.exp(self.log_eigenvalues / 2)[..., None, :]

    def precision_diagonal(self) -> Float[Array, "*lead F"]:
        return jnp.einsum("...fe,...e->...f", self.basis**2, jnp.exp(-self.log_eigenvalues))

    def log_det_precision(self) -> Float[Array, "*lead"]:
        return -jnp.sum(self.log_eigenvalues, axis=-1)
