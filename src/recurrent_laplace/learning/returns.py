"""Generalised advantages."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def advantages(
    rewards: Float[Array, " T"],
    discounts: Float[Array, " T"],
    values: Float[Array, " T1"],
    trace_decay: float,
) -> Float[Array, " T"]:
    """`A_t = delta_t + discount_t lambda A_{t+1}`, `delta_t = r_t + discount_t V_{t+1} - V_t`.

    `discounts` are zero where an episode ends; `values` has one more entry than there are rewards.
    """
    deltas = rewards + discounts * values[1:] - values[:-1]

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, discount = now
        advantage = delta + discount * trace_decay * later
        return advantage, advantage

    _, result = jax.lax.scan(back, jnp.zeros_like(deltas[0]), (deltas, discounts), reverse=True)
    return result
