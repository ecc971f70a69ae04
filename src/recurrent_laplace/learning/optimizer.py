"""AdamW behind two kinds of clipping, and what changes in the course of training."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from recurrent_laplace.learning.config import LearningConfig


def make_optimizer(config: LearningConfig) -> optax.GradientTransformation:
    """Elements clipped, then the norm, then AdamW with step size 1: `learning_rate_at` is its factor.

    In this order both clips can act: elements of a vector of norm 1 are never as large as 5.
    """
    return optax.chain(
        optax.clip(config.gradient_element),
        optax.clip_by_global_norm(config.gradient_norm),
        optax.adamw(1.0, weight_decay=config.weight_decay),
    )


def learning_rate_at(
    config: LearningConfig, update: Int[Array, ""], updates: Int[Array, ""] | int
) -> Float[Array, ""] | float:
    """The step size in an update, counted from 0; the final one is that of the update after the last."""
    if config.final_learning_rate is None:
        return config.learning_rate
    share = jnp.minimum(update / jnp.maximum(updates, 1), 1.0)
    return config.learning_rate + share * (config.final_learning_rate - config.learning_rate)


def entropy_weight_at(
    config: LearningConfig, update: Int[Array, ""], updates: Int[Array, ""] | int
) -> Float[Array, ""] | float:
    """The weight of the policy's entropy in an update, counted from 0; the last has the final one."""
    if config.final_entropy_weight is None:
        return config.entropy_weight
    share = jnp.minimum(update / jnp.maximum(updates - 1, 1), 1.0)
    return config.entropy_weight + share * (config.final_entropy_weight - config.entropy_weight)
