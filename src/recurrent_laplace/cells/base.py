"""Interfaces of recurrent cells, and the initialisation of their weights."""

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
    """Initialise `weight_ih`, `weight_hh` and `bias` of a cell whose gates are stacked in rows.

    Entries are uniform in +-1/sqrt(hidden_size), as in PyTorch and Equinox.
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
    """Interface of a recurrent cell `(carry, x) -> carry`.

    A step has two parts: `project` maps inputs without recurrence, for a whole sequence at once; `advance`
    does the recurrent rest, one step at a time. A subclass implements the abstract methods for a single
    example; batches come from `jax.vmap`. The attributes `input_size` (D; None if any length is accepted)
    and `hidden_size` (H) must be static.

    ```python
    class LeakyIntegrator(rl.AbstractCell):
        input_size = property(lambda self: 3)
        hidden_size = property(lambda self: 3)

        def init(self):
            return jnp.zeros(3)

        def project(self, inputs):
            return inputs

        def advance(self, carry, projected):
            return 0.9 * carry + projected

        def hidden(self, carry):
            return carry

        def state_jacobian(self, carry, projected):
            return 0.9 * jnp.eye(3)

    posterior = rl.LaplacePosterior(rl.Memory(LeakyIntegrator()))
    ```
    """

    input_size: eqx.AbstractVar[int | None]
    hidden_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self) -> Carry:
        """Carry before any input."""

    @abc.abstractmethod
    def project(self, inputs: Float[Array, "*lead D"]) -> Float[Array, "*lead G"]:
        """Compute the part of a step that depends on the input only."""

    @abc.abstractmethod
    def advance(self, carry: Carry, projected: Float[Array, " G"]) -> Carry:
        """Advance the carry by one projected input."""

    @abc.abstractmethod
    def hidden(self, carry: Carry) -> Float[Array, " H"]:
        """Hidden state of a carry: the part that is read out and that Jacobians are with respect to."""

    @abc.abstractmethod
    def state_jacobian(self, carry: Carry, projected: Float[Array, " G"]) -> Float[Array, "H H"]:
        """Jacobian `d hidden(advance(carry, projected)) / d hidden(carry)`, the rest of the carry fixed."""

    @property
    def has_constant_jacobian(self) -> bool:
        """Whether the state Jacobian is the same for every input and carry."""
        return False

    def step(self, carry: Carry, x: Array) -> Carry:
        """Advance the carry by one input of shape `(D,)`."""
        check_shape("x", x, (self.input_size or "D",))
        return self.advance(carry, self.project(x))

    def jacobian(self, carry: Carry, x: Array) -> Float[Array, "H H"]:
        """State Jacobian of one step on the input `x`, evaluated at `carry`."""
        check_shape("x", x, (self.input_size or "D",))
        return self.state_jacobian(carry, self.project(x))


class AbstractGatedCell(AbstractCell):
    """Interface of a cell with its gates stacked in the rows of `weight_ih`, `weight_hh` and `bias`.

    Its state Jacobian is `sum_a diag(scales[a]) @ blocks[a]`, with blocks of weights and scales of
    activations. The fast curvature relies on this form (docs/architecture.md). A subclass implements
    `advance`, `jacobian_blocks` and `jacobian_scales`; `examples/add_a_cell.py` is a complete one.

    ```python
    cell = rl.LSTM(3, 8, key=jax.random.key(0))
    scales = cell.jacobian_scales(cell.init(), cell.project(jnp.ones(3)))  # (4, 8)
    jacobian = jnp.einsum("ah,ahk->hk", scales, cell.jacobian_blocks())  # (8, 8)
    ```
    """

    weight_ih: eqx.AbstractVar[Array]
    weight_hh: eqx.AbstractVar[Array]
    bias: eqx.AbstractVar[Array | None]

    @abc.abstractmethod
    def jacobian_blocks(self) -> Float[Array, "A H H"]:
        """Matrices of the sum, which do not depend on the input or the carry."""

    @abc.abstractmethod
    def jacobian_scales(self, carry: Carry, projected: Float[Array, " G"]) -> Float[Array, "A H"]:
        """Row scales of the sum, evaluated at `carry`."""

    @classmethod
    def from_weights(
        cls, weight_ih: Any, weight_hh: Any, bias: Any = None, *, options: Any = None, **more: Any
    ) -> Self:
        """Cell with existing weights, whose shapes determine its sizes.

        **Arguments:**

        - `weight_ih`, `weight_hh`, `bias`: weights of the gates, stacked in rows; `bias` may be None.
        - `options`: keyword arguments of this kind of cell, in a dictionary (`activation` of an Elman cell).
        - `more`: further arrays of this kind of cell (`bias_n` of a GRU).

        ```python
        cell = rl.LSTM.from_weights(jnp.zeros((32, 3)), jnp.zeros((32, 8)), jnp.zeros(32))
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
        """Copy of the cell with other input weights and the same recurrence."""
        check_shape("weight_ih", weight_ih, (self.weight_ih.shape[0], "D"))
        cell = copy.copy(self)
        object.__setattr__(cell, "weight_ih", weight_ih)  # frozen, but this copy is not shared yet
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
