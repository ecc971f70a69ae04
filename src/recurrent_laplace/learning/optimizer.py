"""AdamW with gradient clipping, and its learning-rate schedule."""

import optax
from jaxtyping import Array, Float

from recurrent_laplace.learning.objectives.base import Schedule
from recurrent_laplace.learning.options import LearningConfig


def make_optimizer(config: LearningConfig) -> optax.GradientTransformation:
    """Clipping by element, then by global norm, then AdamW with step size 1, which `learning_rate` scales.

    In the other order the element clip would never act: elements of a vector of norm 1 are below 5.
    """
    return optax.chain(
        optax.clip(config.gradient_element),
        optax.clip_by_global_norm(config.gradient_norm),
        optax.adamw(1.0, weight_decay=config.weight_decay),
    )


def learning_rate(config: LearningConfig, schedule: Schedule) -> Float[Array, ""] | float:
    """Learning rate of an update; the final rate would be that of the update after the last."""
    return schedule.interpolate(config.learning_rate, config.final_learning_rate, reached_by_last=False)
