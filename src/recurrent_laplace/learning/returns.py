"""Generalised advantage estimation."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def advantages(
    rewards: Float[Array, " T"],
    discounts: Float[Array, " T"],
    values: Float[Array, " T1"],
    trace_decay: float,
) -> Float[Array, " T"]:
    """Generalised advantages: `A_t = delta_t + discount_t lambda A_{t+1}`.

    The temporal-difference errors are `delta_t = r_t + discount_t V_{t+1} - V_t`. `discounts` are zero where
    an episode ends; `values` has one entry more than `rewards`.
    """
    deltas = rewards + discounts * values[1:] - values[:-1]

    def step(next_advantage: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, discount = inputs
        advantage = delta + discount * trace_decay * next_advantage
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, discounts), reverse=True)[1]
