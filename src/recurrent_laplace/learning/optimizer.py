"""AdamW behind two kinds of clipping."""

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from recurrent_laplace.learning.config import LearningConfig


def make_optimizer(config: LearningConfig, steps_per_update: int) -> optax.GradientTransformation:
    """Elements clipped, then the norm, then AdamW, whose schedule counts gradient steps.

    In this order both clips can act: elements of a vector of norm 1 are never as large as 5.
    """
    gradient_steps = config.updates * steps_per_update
    rate = config.learning_rate
    if config.final_learning_rate is not None:
        rate = optax.linear_schedule(rate, config.final_learning_rate, max(gradient_steps, 1))
    return optax.chain(
        optax.clip(config.gradient_element),
        optax.clip_by_global_norm(config.gradient_norm),
        optax.adamw(rate, weight_decay=config.weight_decay),
    )


def entropy_weight_at(config: LearningConfig, update: Array) -> Float[Array, ""] | float:
    """The weight of the policy's entropy in an update, counted from 0."""
    if config.final_entropy_weight is None:
        return config.entropy_weight
    share = jnp.minimum(update / max(config.updates - 1, 1), 1.0)
    return config.entropy_weight + share * (config.final_entropy_weight - config.entropy_weight)
