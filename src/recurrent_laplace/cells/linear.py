"""Linear recurrent network."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells.base import AbstractGatedCell, init_weights


class Linear(AbstractGatedCell):
    """Linear network `h' = W x + U h + b`, for which the Laplace approximation is exact. The carry is `h`.

    **Arguments:** `input_size` D, `hidden_size` H, `use_bias`, `dtype` (default: JAX's float), and the `key`
    for the initial weights.

    ```python
    cell = rl.Linear(3, 16, key=jax.random.key(0))
    h = cell.step(cell.init(), jnp.ones(3))
    ```
    """

    weight_ih: Float[Array, "H D"]
    weight_hh: Float[Array, "H H"]
    bias: Float[Array, " H"] | None
    input_size: int = eqx.field(static=True)
    hidden_size: int = eqx.field(static=True)

    def __init__(
        self, input_size: int, hidden_size: int, *, use_bias: bool = True, dtype: Any = None, key: Array
    ):
        self.weight_ih, self.weight_hh, self.bias = init_weights(
            1, input_size, hidden_size, use_bias=use_bias, dtype=dtype, key=key
        )
        self.input_size = input_size
        self.hidden_size = hidden_size

    @property
    def has_constant_jacobian(self) -> bool:
        return True

    def advance(self, carry: Float[Array, " H"], projected: Float[Array, " H"]) -> Float[Array, " H"]:
        return projected + self.weight_hh @ carry

    def jacobian_blocks(self) -> Float[Array, "1 H H"]:
        return self.weight_hh[None]

    def jacobian_scales(
        self, carry: Float[Array, " H"], projected: Float[Array, " H"]
    ) -> Float[Array, "1 H"]:
        return jnp.ones_like(projected)[None]
