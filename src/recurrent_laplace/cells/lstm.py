"""Long short-term memory."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractGatedCell, init_weights

LSTMCarry = tuple[Float[Array, " H"], Float[Array, " H"]]


class LSTM(AbstractGatedCell):
    """Long short-term memory, with gates in rows i, f, g, o as in PyTorch and Equinox. The carry is `(h, c)`.

        c' = f * c + i * g,    h' = o * tanh(c')

    **Arguments:** `input_size` D, `hidden_size` H, `use_bias`, `dtype` (default: JAX's float), and the `key`
    for the initial weights.

    ```python
    cell = rl.LSTM(3, 16, key=jax.random.key(0))
    h, c = cell.step(cell.init(), jnp.ones(3))
    ```
    """

    weight_ih: Float[Array, "4*H D"]
    weight_hh: Float[Array, "4*H H"]
    bias: Float[Array, " 4*H"] | None
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self, input_size: int, hidden_size: int, *, use_bias: bool = True, dtype: Any = None, key: Array
    ):
        self.weight_ih, self.weight_hh, self.bias = init_weights(
            4, input_size, hidden_size, use_bias=use_bias, dtype=dtype, key=key
        )
        self.input_size = input_size
        self.hidden_size = hidden_size

    def init(self) -> LSTMCarry:
        zeros = jnp.zeros(self.hidden_size, self.weight_hh.dtype)
        return zeros, zeros

    def hidden(self, carry: LSTMCarry) -> Float[Array, " H"]:
        return carry[0]

    def advance(self, carry: LSTMCarry, projected: Float[Array, " 4*H"]) -> LSTMCarry:
        i, f, g, o = self._gates(carry, projected)
        c = f * carry[1] + i * g
        return o * jnp.tanh(c), c

    def jacobian_blocks(self) -> Float[Array, "4 H H"]:
        return self.weight_hh.reshape(4, self.hidden_size, self.hidden_size)

    def jacobian_scales(self, carry: LSTMCarry, projected: Float[Array, " 4*H"]) -> Float[Array, "4 H"]:
        i, f, g, o = self._gates(carry, projected)
        squashed = jnp.tanh(f * carry[1] + i * g)
        through_c = o * (1 - squashed**2)
        return jnp.stack(
            [
                through_c * g * i * (1 - i),
                through_c * carry[1] * f * (1 - f),
                through_c * i * (1 - g**2),
                squashed * o * (1 - o),
            ]
        )

    def _gates(self, carry: LSTMCarry, projected: Array) -> tuple[Array, Array, Array, Array]:
        i, f, g, o = jnp.split(projected + self.weight_hh @ carry[0], 4)
        return jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o)
