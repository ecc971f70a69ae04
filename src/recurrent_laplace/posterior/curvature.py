"""Curvature of a memory at a carry: sums of outer products of state Jacobians.

`C = sum_i J_i J_i^T` over the inputs i of a window, `J_i = R dh'/dh` at that carry (paper, section
on the Laplace approximation; docs/notation.md says why `J J^T`). Everything here is a constant for
the optimiser.

For a gated cell `dh'/dh = sum_a diag(d_a) U_a`, and there are two ways:

- direct: form `J` and multiply. About `F H^2 + F^2 H` products an input.
- Gram: `C = R [sum_ab (D_a^T D_b) o (U_a U_b^T)] R^T`, where row i of `D_a` is `d_a` for input i.
  About `(A H)^2 / 2` products an input, and the readout only once: better from two inputs on.

Other cells go the direct way with a Jacobian by forward mode, and so does the derivation's own form
`sum_i J_i^T J_i`, over the hidden state.
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
"""Carries, windows of projected inputs and which of them count, all with a leading axis of steps,
to the curvature of each step: `(N, F, F)`, or its diagonal `(N, F)`; over the state, H instead of F."""


WORKING_SET = 2**21
"""Bytes of Jacobians that are worked on together: enough for large products, few enough for cache."""
DENSE_WORKING_SET = 2**23
"""The same where each is multiplied by itself: many small products are faster the more there are."""
FACTORED_TOGETHER = 2**20
"""Numbers in the matrices that are factorised together: the fewer, the more is lost at the start of each of
the many small operations that it takes."""
FEW_FEATURES = 16
"""Up to this many, a batch of outer products is faster as a sum of elementwise ones."""


def jacobians_together(hidden_size: int, dtype: Any, *, diagonal: bool) -> int:
    """How many Jacobians fit into the working set."""
    room = WORKING_SET if diagonal else DENSE_WORKING_SET
    return max(room // (hidden_size**2 * jnp.dtype(dtype).itemsize), 1)


def curvature_of(
    memory: Memory, *, window: int | None, diagonal: bool, over_state: bool = False
) -> Curvature:
    """The best way to the curvature of this memory.

    Steps are steps, whichever task they belong to: `vmap` over tasks becomes more steps of one call, and
    how many are worked on together is decided here, not by the size of the batch.
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
        has_own_memory, *is_batched = batched
        if any(jax.tree.leaves(has_own_memory)):
            # Seeds: each has weights of its own.
            axes = jax.tree.map(lambda own: 0 if own else None, batched)
            return jax.vmap(lambda memory, *steps: make(memory)(*steps), axes)(memory, *steps), True

        def merged(leaf: Array, own: bool) -> Array:
            leaf = leaf if own else jnp.broadcast_to(leaf, (size, *leaf.shape))
            return leaf.reshape(-1, *leaf.shape[2:])

        out = of_steps(memory, *jax.tree.map(merged, steps, (*is_batched,)))
        return out.reshape(size, -1, *out.shape[1:]), True

    frozen = jax.lax.stop_gradient(memory)
    return lambda *steps: of_steps(frozen, *steps)


def _direct(memory: Memory, cell: AbstractGatedCell, diagonal: bool) -> Curvature:
    # Taken apart here: in the loop below, XLA would copy each block for every chunk.
    blocks = list(jnp.swapaxes(cell.jacobian_blocks(), -1, -2))
    h, f = cell.hidden_size, memory.feature_size

    def of_scales(scales: Float[Array, "N A H"]) -> Array:
        # Transposed throughout, so that the readout is one large product over all steps.
        jacobians = _total(scales[:, a, None, :] * block for a, block in enumerate(blocks))
        if memory.readout is not None:
            jacobians = (jacobians.reshape(-1, h) @ memory.readout.weight.T).reshape(-1, h, f)
        if diagonal:
            return jnp.sum(jacobians**2, axis=1)
        if f <= FEW_FEATURES:
            return jnp.sum(jacobians[..., None] * jacobians[..., None, :], axis=1)
        return jnp.einsum("nkf,nkg->nfg", jacobians, jacobians)

    def curvature(carries: Carry, windows: Array, valid: Array) -> Array:
        # The scales of all steps at once: in the loop below, XLA would compute them anew for every
        # column of the Jacobian.
        scales = jax.vmap(cell.jacobian_scales)(carries, windows[:, 0])
        return map_chunks(of_scales, scales, jacobians_together(h, scales.dtype, diagonal=diagonal))

    return curvature


def _gram(memory: Memory, cell: AbstractGatedCell, diagonal: bool) -> Curvature:
    blocks = cell.jacobian_blocks()
    # Each unordered pair once; the other half is the transpose, taken at the end.
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
            # Never negative in exact arithmetic.
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
        # One input at a time: Jacobians are heavy on memory.
        def add(total: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
            projected, counts = now
            return total + jnp.where(counts, of_input(carry, projected), 0), None

        zeros = jnp.zeros((size,) if diagonal else (size, size), memory.dtype)
        return jax.lax.scan(add, zeros, (window, valid))[0]

    return jax.vmap(of_step)
