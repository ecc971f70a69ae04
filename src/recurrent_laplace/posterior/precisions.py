"""Gaussian beliefs of given precisions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import DenseGaussian, DiagonalGaussian
from recurrent_laplace.gaussians.linalg import ENTRIES_PER_CHUNK, cholesky_with_added, smallest_precision


def beliefs_of(
    means: Float[Array, "T F"], precisions: Array, *, diagonal: bool
) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
    """Beliefs of these means and precisions, and the precision added to make them positive definite."""
    if diagonal:
        lifted = jnp.maximum(precisions, smallest_precision(precisions.dtype))
        return DiagonalGaussian(means, lifted), jnp.max(lifted - precisions, axis=-1)
    factors, added = cholesky_with_added(precisions)
    return DenseGaussian(means, factors), added


def matrices_together(size: int) -> int:
    """Number of matrices per chunk of a factorisation."""
    return max(ENTRIES_PER_CHUNK // size**2, 1)
