"""Elman network."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractGatedCell, init_weights
from recurrent_laplace.errors import check_choice


class Elman(AbstractGatedCell):
    """Elman network `h' = tanh(W x + U h + b)`, or `relu`, as PyTorch's `nn.RNN`. The carry is `h`.

    **Arguments:** `input_size` D, `hidden_size` H, `activation` (`"tanh"` or `"relu"`), `use_bias`, `dtype`
    (default: JAX's float), and the `key` for the initial weights.

    ```python
    cell = rl.Elman(3, 16, activation="relu", key=jax.random.key(0))
    h = cell.step(cell.init(), jnp.ones(3))
    ```
    """

    weight_ih: Float[Array, "H D"]
    weight_hh: Float[Array, "H H"]
    bias: Float[Array, " H"] | None
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        activation: Literal["tanh", "relu"] = "tanh",
        use_bias: bool = True,
        dtype: Any = None,
        key: Array,
    ):
        check_choice("activation", activation, ("tanh", "relu"))
        self.activation = activation
        self.weight_ih, self.weight_hh, self.bias = init_weights(
            1, input_size, hidden_size, use_bias=use_bias, dtype=dtype, key=key
        )
        self.input_size = input_size
        self.hidden_size = hidden_size

    def advance(self, carry: Float[Array, " H"], projected: Float[Array, " H"]) -> Float[Array, " H"]:
        total = projected + self.weight_hh @ carry
        return jnp.tanh(total) if self.activation == "tanh" else jax.nn.relu(total)

    def jacobian_blocks(self) -> Float[Array, "1 H H"]:
        return self.weight_hh[None]

    def jacobian_scales(
        self, carry: Float[Array, " H"], projected: Float[Array, " H"]
    ) -> Float[Array, "1 H"]:
        h = self.advance(carry, projected)
        slope = 1 - h**2 if self.activation == "tanh" else (h > 0).astype(h.dtype)
        return slope[None]
