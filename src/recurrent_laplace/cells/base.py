"""What a recurrent cell is: a carry, a step, and the derivative of one step by the hidden state."""

import abc
import copy
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_shape, check_size

Carry = Any


def init_weights(
    gates: int, input_size: int, hidden_size: int, *, use_bias: bool, dtype: Any, key: Array
) -> tuple[Array, Array, Array | None]:
    """`weight_ih`, `weight_hh` and `bias` of a cell whose gates are stacked in rows.

    Uniform in +-1/sqrt(hidden_size), the initialisation of PyTorch and Equinox.
    """
    check_size("input_size", input_size)
    check_size("hidden_size", hidden_size)
    limit = hidden_size**-0.5
    rows = gates * hidden_size

    def uniform(key: Array, *shape: int) -> Array:
        return jax.random.uniform(key, shape, dtype or jnp.result_type(float), -limit, limit)

    ih, hh, b = jax.random.split(key, 3)
    return (
        uniform(ih, rows, input_size),
        uniform(hh, rows, hidden_size),
        uniform(b, rows) if use_bias else None,
    )


class AbstractCell(eqx.Module):
    """A recurrent cell `(carry, x) -> carry` whose step splits in two.

    `project` turns inputs into what the recurrence needs of them and has no recurrence, so a whole
    sequence is projected at once; `advance` does the rest, one step at a time. A new cell
    implements the abstract methods below, for one example; batches come from `jax.vmap`.
    """

    input_size: eqx.AbstractVar[int | None]
    hidden_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self) -> Carry:
        """The carry before any input."""

    @abc.abstractmethod
    def project(self, inputs: Float[Array, "*lead D"]) -> Float[Array, "*lead G"]:
        """The part of a step that depends on the input alone."""

    @abc.abstractmethod
    def advance(self, carry: Carry, projected: Float[Array, " G"]) -> Carry:
        """One step from a projected input."""

    @abc.abstractmethod
    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        """The part of the carry that is read out, and that Jacobians are taken by."""

    @abc.abstractmethod
    def state_jacobian(self, carry: Carry, projected: Float[Array, " G"]) -> Float[Array, "H H"]:
        """`d hidden(advance(carry, projected)) / d hidden(carry)`, all else in the carry held fixed."""

    def step(self, carry: Carry, x: Array) -> Carry:
        """One step from an input of shape `(D,)`."""
        check_shape("x", x, (self.input_size or "D",))
        return self.advance(carry, self.project(x))

    def jacobian(self, carry: Carry, x: Array) -> Float[Array, "H H"]:
        """The state Jacobian of one step on input `x`, taken at `carry`."""
        check_shape("x", x, (self.input_size or "D",))
        return self.state_jacobian(carry, self.project(x))


class AbstractGatedCell(AbstractCell):
    """A cell with its gates stacked in the rows of `weight_ih`, `weight_hh` and `bias`.

    Its state Jacobian is `sum_a diag(scales[a]) @ blocks[a]`: blocks made of weights, scales made of
    activations. The fast curvature stands on this form (docs/architecture.md).
    """

    weight_ih: eqx.AbstractVar[Array]
    weight_hh: eqx.AbstractVar[Array]
    bias: eqx.AbstractVar[Array | None]

    @abc.abstractmethod
    def jacobian_blocks(self) -> Float[Array, "A H H"]:
        """The matrices of the sum: the same for all inputs and carries."""

    @abc.abstractmethod
    def jacobian_scales(self, carry: Carry, projected: Float[Array, " G"]) -> Float[Array, "A H"]:
        """The row scales of the sum, at `carry`."""

    @classmethod
    def from_weights(
        cls, weight_ih: Any, weight_hh: Any, bias: Any = None, *, options: Any = None, **more: Any
    ) -> Self:
        """A cell with weights that exist already; sizes come from their shapes.

        `more` are the arrays that this cell has beside the three, `options` what is no array.

        ```python
        cell = rl.LSTM.from_weights(weight_ih, weight_hh, bias)
        ```
        """
        arrays = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias": bias, **more}
        arrays = {name: jnp.asarray(array) for name, array in arrays.items() if array is not None}
        check_shape("weight_ih", arrays["weight_ih"], ("rows", "D"))
        check_shape("weight_hh", arrays["weight_hh"], ("rows", "H"))
        sizes = arrays["weight_ih"].shape[1], arrays["weight_hh"].shape[1]
        dtype = arrays["weight_hh"].dtype
        make: Any = cls
        shapes = eqx.filter_eval_shape(
            lambda key: make(*sizes, use_bias=bias is not None, dtype=dtype, key=key, **(options or {})),
            jax.random.key(0),
        )
        names = [name for name, leaf in vars(shapes).items() if isinstance(leaf, jax.ShapeDtypeStruct)]
        if set(names) != set(arrays):
            raise ValueError(
                f"weights must be {', '.join(names)} for this {cls.__name__}; got {', '.join(arrays)}."
            )
        for name in names:
            check_shape(name, arrays[name], getattr(shapes, name).shape)
        return eqx.tree_at(
            lambda cell: [getattr(cell, name) for name in names],
            shapes,
            [arrays[name].astype(dtype) for name in names],
        )

    def with_input_weights(self, weight_ih: Float[Array, "rows D"]) -> Self:
        """The same recurrence on other inputs."""
        check_shape("weight_ih", weight_ih, (self.weight_ih.shape[0], "D"))
        cell = copy.copy(self)
        object.__setattr__(cell, "weight_ih", weight_ih)  # a Module is frozen, and this one is nobody's yet
        object.__setattr__(cell, "input_size", weight_ih.shape[1])
        return cell

    def init(self) -> Carry:
        return jnp.zeros(self.hidden_size, self.weight_hh.dtype)

    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        return carry

    def project(self, inputs: Float[Array, "*lead D"]) -> Float[Array, "*lead G"]:
        projected = inputs @ self.weight_ih.T
        return projected if self.bias is None else projected + self.bias

    def state_jacobian(self, carry: Carry, projected: Float[Array, " G"]) -> Float[Array, "H H"]:
        scales = self.jacobian_scales(carry, projected)
        return jnp.einsum("ah,ahk->hk", scales, self.jacobian_blocks())
