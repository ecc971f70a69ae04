"""Curvature of a memory at a carry: sums of outer products of state Jacobians.

`C = sum_i J_i J_i^T` over the inputs i of a window, with `J_i = R dh'/dh` at that carry (paper, section on
the Laplace approximation; docs/notation.md explains why `J J^T`). Gradients stop at every curvature.

For a gated cell `dh'/dh = sum_a diag(d_a) U_a`, and there are two algorithms:

- direct: form `J` and multiply. About `F H^2 + F^2 H` products per input.
- Gram: `C = R [sum_ab (D_a^T D_b) o (U_a U_b^T)] R^T`, where row i of `D_a` is `d_a` for input i.
  About `(A H)^2 / 2` products per input, and the readout once per step: faster for two inputs or more.

Other cells use their own state Jacobian, one input at a time. So does the curvature `sum_i J_i^T J_i` over
the hidden state, the form of the paper's derivation.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from recurrent_laplace.cells import AbstractGatedCell, Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.chunks import map_chunks

Curvature = Callable[[Carry, Float[Array, "N W G"], Bool[Array, "N W"]], Array]
"""Function from carries, windows of projected inputs and their masks, all with a leading axis of N steps, to
the curvature of each step: `(N, F, F)`, or its diagonal `(N, F)`; with H instead of F over the hidden
state."""

WORKING_SET = 2**21
"""Bytes of Jacobians per chunk of a diagonal curvature: enough for large products, few enough for cache."""
DENSE_WORKING_SET = 2**23
"""Bytes of Jacobians per chunk of a dense curvature, whose many small products gain from larger chunks."""
FEW_FEATURES = 16
"""Largest number of features for which outer products are faster as a sum of elementwise products."""


def jacobians_together(hidden_size: int, dtype: Any, *, diagonal: bool) -> int:
    """Number of Jacobians per chunk."""
    available = WORKING_SET if diagonal else DENSE_WORKING_SET
    return max(available // (hidden_size**2 * jnp.dtype(dtype).itemsize), 1)


def curvature_of(
    memory: Memory, *, window: int | None, diagonal: bool, over_state: bool = False
) -> Curvature:
    """Curvature function of a memory, by the fastest algorithm for it.

    `vmap` over tasks merges the batch axis into the axis of steps, so that the size of a chunk does not
    depend on the size of the batch.
    """

    def make(memory: Memory) -> Curvature:
        if over_state or not isinstance(memory.cell, AbstractGatedCell):
            return _one_by_one(memory, diagonal, over_state)
        if window == 1:
            return _direct(memory, memory.cell, diagonal)
        return _gram(memory, memory.cell, diagonal)

    @jax.custom_batching.custom_vmap
    def of_steps(memory: Memory, *steps: PyTree[Array]) -> Array:
        return make(memory)(*steps)

    @of_steps.def_vmap
    def of_batch(size: int, batched: Any, memory: Memory, *steps: PyTree[Array]) -> tuple[Array, bool]:
        memory_batched, *steps_batched = batched
        if any(jax.tree.leaves(memory_batched)):
            # Seeds: weights are batched too.
            axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched)
            return jax.vmap(lambda memory, *steps: make(memory)(*steps), axes)(memory, *steps), True

        def merge(leaf: Array, is_batched: bool) -> Array:
            leaf = leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return leaf.reshape(-1, *leaf.shape[2:])

        out = of_steps(memory, *jax.tree.map(merge, steps, (*steps_batched,)))
        return out.reshape(size, -1, *out.shape[1:]), True

    frozen = jax.lax.stop_gradient(memory)
    return lambda *steps: of_steps(frozen, *steps)


def _direct(memory: Memory, cell: AbstractGatedCell, diagonal: bool) -> Curvature:
    # Unstacked here: in the loop below, XLA would copy each block for every chunk.
    blocks = list(jnp.swapaxes(cell.jacobian_blocks(), -1, -2))
    h, f = cell.hidden_size, memory.feature_size

    def of_scales(scales: Float[Array, "N A H"]) -> Array:
        # Jacobians are transposed, so that the readout is one large product over all steps.
        jacobians = _total(scales[:, a, None, :] * block for a, block in enumerate(blocks))
        if memory.readout is not None:
            jacobians = (jacobians.reshape(-1, h) @ memory.readout.weight.T).reshape(-1, h, f)
        if diagonal:
            return jnp.sum(jacobians**2, axis=1)
        if f <= FEW_FEATURES:
            return jnp.sum(jacobians[..., None] * jacobians[..., None, :], axis=1)
        return jnp.einsum("nkf,nkg->nfg", jacobians, jacobians)

    def curvature(carries: Carry, windows: Array, valid: Array) -> Array:
        # Outside of the loop below, where XLA would recompute the scales for every column of the Jacobian.
        scales = jax.vmap(cell.jacobian_scales)(carries, windows[:, 0])
        return map_chunks(of_scales, scales, jacobians_together(h, scales.dtype, diagonal=diagonal))

    return curvature


def _gram(memory: Memory, cell: AbstractGatedCell, diagonal: bool) -> Curvature:
    blocks = cell.jacobian_blocks()
    # Each unordered pair once; the transpose at the end adds the other order.
    pairs = [(a, b) for a in range(len(blocks)) for b in range(a, len(blocks))]
    tables = [blocks[a] @ blocks[b].T * (0.5 if a == b else 1.0) for a, b in pairs]
    readout = None if memory.readout is None else memory.readout.weight

    def curvature(carries: Carry, windows: Array, valid: Array) -> Array:
        scales = jax.vmap(jax.vmap(cell.jacobian_scales, in_axes=(None, 0)))(carries, windows)
        scales = jnp.where(valid[..., None, None], scales, 0)
        half = _total(
            jnp.einsum("nwh,nwk->nhk", scales[:, :, a], scales[:, :, b]) * table
            for (a, b), table in zip(pairs, tables, strict=True)
        )
        if readout is None:
            return 2 * jnp.diagonal(half, axis1=1, axis2=2) if diagonal else half + jnp.swapaxes(half, 1, 2)
        half = half @ readout.T
        if diagonal:
            # Rounding can make it negative.
            return jnp.maximum(2 * jnp.einsum("nhf,fh->nf", half, readout), 0)
        half = jnp.swapaxes(half, 1, 2) @ readout.T
        return half + jnp.swapaxes(half, 1, 2)

    return curvature


def _total(terms: Iterable[Array]) -> Array:
    return functools.reduce(jnp.add, terms)


def _one_by_one(memory: Memory, diagonal: bool, over_state: bool) -> Curvature:
    size = memory.cell.hidden_size if over_state else memory.feature_size

    def of_input(carry: Carry, projected: Array) -> Array:
        jacobian = memory.project_jacobian(memory.cell.state_jacobian(carry, projected))
        jacobian = jacobian.T if over_state else jacobian
        return jnp.sum(jacobian**2, axis=-1) if diagonal else jacobian @ jacobian.T

    def of_step(carry: Carry, window: Array, valid: Array) -> Array:
        # One input at a time, to hold a single Jacobian in memory.
        def add(total: Array, xs: tuple[Array, Array]) -> tuple[Array, None]:
            projected, is_valid = xs
            return total + jnp.where(is_valid, of_input(carry, projected), 0), None

        zeros = jnp.zeros((size,) if diagonal else (size, size), memory.dtype)
        return jax.lax.scan(add, zeros, (window, valid))[0]

    return jax.vmap(of_step)
