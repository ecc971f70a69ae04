"""Entropy, variance and quantiles of the Beta distribution."""

import jax
import jax.numpy as jnp
from jax.scipy.special import betainc, betaln, digamma
from jaxtyping import Array, Float

BISECTIONS = 30
"""Bisections of [0, 1], for quantiles to 1e-9 or to rounding."""


def beta_entropy(a: Float[Array, "*lead"], b: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
    """Differential entropy of Beta(a, b), in nats."""
    return betaln(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + (a + b - 2) * digamma(a + b)


def beta_variance(a: Float[Array, "*lead"], b: Float[Array, "*lead"]) -> Float[Array, "*lead"]:
    """Variance of Beta(a, b)."""
    return a * b / ((a + b) ** 2 * (a + b + 1))


def beta_quantile(
    a: Float[Array, "*lead"], b: Float[Array, "*lead"], level: Float[Array, ""] | float
) -> Float[Array, "*lead"]:
    """Quantile of Beta(a, b) at `level`, by bisection."""

    def halve(_, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = (low + high) / 2
        below = betainc(a, b, middle) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, BISECTIONS, halve, (jnp.zeros_like(a), jnp.ones_like(a)))
    return (low + high) / 2
