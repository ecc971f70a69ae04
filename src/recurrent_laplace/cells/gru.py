"""Gated recurrent unit."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractGatedCell, init_weights


class GRU(AbstractGatedCell):
    """Gated recurrent unit, with gates in rows r, z, n as in PyTorch and Equinox. The carry is `h`.

        n = tanh(W_n x + b + r * (U_n h + bias_n)),    h' = (1 - z) * n + z * h

    The reset gate multiplies `bias_n` too, as in PyTorch.

    **Arguments:** `input_size` D, `hidden_size` H, `use_bias`, `dtype` (default: JAX's float), and the `key`
    for the initial weights.

    ```python
    cell = rl.GRU(3, 16, key=jax.random.key(0))
    h = cell.step(cell.init(), jnp.ones(3))
    ```
    """

    weight_ih: Float[Array, "3*H D"]
    weight_hh: Float[Array, "3*H H"]
    bias: Float[Array, " 3*H"] | None
    bias_n: Float[Array, " H"] | None
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self, input_size: int, hidden_size: int, *, use_bias: bool = True, dtype: Any = None, key: Array
    ):
        key, key_n = jax.random.split(key)
        self.weight_ih, self.weight_hh, self.bias = init_weights(
            3, input_size, hidden_size, use_bias=use_bias, dtype=dtype, key=key
        )
        limit = hidden_size**-0.5
        self.bias_n = None
        if use_bias:
            self.bias_n = jax.random.uniform(key_n, (hidden_size,), self.weight_hh.dtype, -limit, limit)
        self.input_size = input_size
        self.hidden_size = hidden_size

    def advance(self, carry: Float[Array, " H"], projected: Float[Array, " 3*H"]) -> Float[Array, " H"]:
        _, z, n, _ = self._gates(carry, projected)
        return (1 - z) * n + z * carry

    def jacobian_blocks(self) -> Float[Array, "4 H H"]:
        # The skip connection `z * h` adds an identity block.
        size = self.hidden_size
        gates = self.weight_hh.reshape(3, size, size)
        return jnp.concatenate([gates, jnp.eye(size, dtype=gates.dtype)[None]])

    def jacobian_scales(
        self, carry: Float[Array, " H"], projected: Float[Array, " 3*H"]
    ) -> Float[Array, "4 H"]:
        r, z, n, candidate = self._gates(carry, projected)
        through_n = (1 - z) * (1 - n**2)
        return jnp.stack([through_n * candidate * r * (1 - r), (carry - n) * z * (1 - z), through_n * r, z])

    def _gates(self, carry: Array, projected: Array) -> tuple[Array, Array, Array, Array]:
        in_r, in_z, in_n = jnp.split(projected, 3)
        rec_r, rec_z, candidate = jnp.split(self.weight_hh @ carry, 3)
        if self.bias_n is not None:
            candidate = candidate + self.bias_n
        r = jax.nn.sigmoid(in_r + rec_r)
        z = jax.nn.sigmoid(in_z + rec_z)
        return r, z, jnp.tanh(in_n + r * candidate), candidate
