"""Gaussian beliefs of given precisions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.chunks import map_chunks
from recurrent_laplace.gaussians import DenseGaussian, DiagonalGaussian
from recurrent_laplace.gaussians.linalg import cholesky_with_added, smallest_precision

FACTORED_TOGETHER = 2**20
"""Matrix entries per chunk of a factorisation; small chunks lose time to launching operations."""


def beliefs_of(
    means: Float[Array, "T F"], precisions: Array, *, diagonal: bool
) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
    """Beliefs of these means and precisions, and the precision added to make them positive definite."""
    if diagonal:
        lifted = jnp.maximum(precisions, smallest_precision(precisions.dtype))
        return DiagonalGaussian(means, lifted), jnp.max(lifted - precisions, axis=-1)
    factors, added = map_chunks(cholesky_with_added, precisions, matrices_together(means.shape[-1]))
    return DenseGaussian(means, factors), added


def matrices_together(size: int) -> int:
    """Number of matrices per chunk of a factorisation."""
    return max(FACTORED_TOGETHER // size**2, 1)
