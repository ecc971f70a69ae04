"""A cell from outside of the package: the minimal gated unit, with its state Jacobian in closed form.

One gate replaces the two of the GRU:

    f = sigmoid(W_f x + U_f h + b_f),    v = U_n h,    n = tanh(W_n x + f * v + b_n)
    h' = (1 - f) * h + f * n

The gate multiplies the product `U_n h`, as in PyTorch's GRU. If it multiplied `h` instead, the Jacobian would
contain a product of two weight matrices, and would not be a sum of row-scaled blocks.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import recurrent_laplace as rl
from recurrent_laplace.cells.base import init_weights


class MinimalGatedUnit(rl.AbstractGatedCell):
    """Gates in rows f, n. The carry is `h`."""

    weight_ih: Float[Array, "2*H D"]
    weight_hh: Float[Array, "2*H H"]
    bias: Float[Array, " 2*H"] | None
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, hidden_size: int, *, key: Array):
        self.weight_ih, self.weight_hh, self.bias = init_weights(
            2, input_size, hidden_size, use_bias=True, dtype=None, key=key
        )
        self.input_size = input_size
        self.hidden_size = hidden_size

    def advance(self, carry: Float[Array, " H"], projected: Float[Array, " 2*H"]) -> Float[Array, " H"]:
        f, n, _ = self._gates(carry, projected)
        return (1 - f) * carry + f * n

    def jacobian_blocks(self) -> Float[Array, "3 H H"]:
        size = self.hidden_size
        return jnp.concatenate([self.weight_hh.reshape(2, size, size), jnp.eye(size)[None]])

    def jacobian_scales(self, carry: Float[Array, " H"], projected: Float[Array, " 2*H"]) -> Array:
        f, n, v = self._gates(carry, projected)
        through_n = f * (1 - n**2)
        return jnp.stack([f * (1 - f) * (n - carry + through_n * v), through_n * f, 1 - f])

    def _gates(self, carry: Array, projected: Array) -> tuple[Array, Array, Array]:
        in_f, in_n = jnp.split(projected, 2)
        rec_f, v = jnp.split(self.weight_hh @ carry, 2)
        f = jax.nn.sigmoid(in_f + rec_f)
        return f, jnp.tanh(in_n + f * v), v


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)  # rounding of float32 could hide a wrong term
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    cell = MinimalGatedUnit(3, 16, key=k1)
    h, inputs = jax.random.normal(k2, (16,)), jax.random.normal(k3, (30, 3))
    error = jnp.abs(cell.jacobian(h, inputs[0]) - jax.jacfwd(cell.step)(h, inputs[0])).max()
    print(f"Jacobian and jacfwd differ by {error:.1e}")

    # The same belief from the same step without a closed form.
    slow = rl.Autodiff(lambda h, x: cell.step(h, x), cell.init(), input_size=3)
    memory = rl.Memory(cell, features=4, key=k4)
    beliefs = rl.LaplacePosterior(memory, window=5).unroll(inputs)
    same = rl.LaplacePosterior(rl.Memory(slow, readout=memory.readout), window=5).unroll(inputs)
    print(f"precisions differ by {jnp.abs(beliefs.precision() - same.precision()).max():.1e}")
    print("entropy, nats:", beliefs.entropy()[::10].round(2))
    assert error < 1e-10
    assert jnp.allclose(beliefs.precision(), same.precision(), rtol=1e-10)
