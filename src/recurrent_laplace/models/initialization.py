"""Initial weights of a network in the scheme of Flax."""

import functools
import math
from typing import Any, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells import AbstractGatedCell, Affine
from recurrent_laplace.posterior import VariationalPosterior

Initialization = Literal["pytorch", "flax"]
"""Scheme of initial weights.

- "pytorch": recurrent cells and readouts uniform in ±1/sqrt(H), biases too;
- "flax": LeCun-normal weights, orthogonal recurrent weights, zero biases.
"""

Module = TypeVar("Module")

_lecun_normal = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)


def flax_initialized(model: Module, *, key: Array) -> Module:
    """Replace the weights of every layer and cell of a model by fresh ones in the scheme of Flax.

    Weights are LeCun normal, recurrent weights orthogonal for each gate, biases zero.
    """
    nodes, structure = jax.tree.flatten(
        model, is_leaf=lambda node: _initialize.dispatch(type(node)) is not _keep
    )
    keys = jax.random.split(key, len(nodes))
    return jax.tree.unflatten(
        structure, [_initialize(node, key) for node, key in zip(nodes, keys, strict=True)]
    )


def _keep(module: Any, key: Array) -> Any:
    return module


_initialize = functools.singledispatch(_keep)


@_initialize.register
def _(module: Affine, key: Array) -> Affine:
    bias = None if module.bias is None else jnp.zeros_like(module.bias)
    return Affine(_lecun_normal(key, module.weight.shape, module.weight.dtype), bias)


@_initialize.register
def _(module: AbstractGatedCell, key: Array) -> AbstractGatedCell:
    zeroed = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_inexact_array(leaf) else leaf, module)
    key_ih, key_hh = jax.random.split(key)
    size, dtype = module.hidden_size, module.weight_hh.dtype
    # Gates are stacked in rows: the fan-in is the number of columns, and each gate has a matrix of its own.
    gates = jax.random.split(key_hh, module.weight_hh.shape[0] // size)
    recurrent = jax.vmap(lambda key: random_orthogonal(key, size, dtype))(gates)
    weights = (_lecun_normal(key_ih, module.weight_ih.shape, dtype), recurrent.reshape(-1, size))
    return eqx.tree_at(lambda cell: (cell.weight_ih, cell.weight_hh), zeroed, weights)


@_initialize.register
def _(module: VariationalPosterior, key: Array) -> VariationalPosterior:
    heads = lambda posterior: (posterior.memory, posterior.log_eigenvalue_head, posterior.rotation_head)  # noqa: E731
    fresh = flax_initialized(heads(module), key=key)
    module = eqx.tree_at(heads, module, fresh, is_leaf=lambda node: node is None)
    # The head predicts the belief's log-eigenvalues, which start around those of the prior.
    start = 2 * math.log(module.prior_stddev)
    return eqx.tree_at(lambda p: p.log_eigenvalue_head.bias, module, replace_fn=lambda bias: bias + start)


def random_orthogonal(key: Array, size: int, dtype: Any = None) -> Float[Array, "N N"]:
    """Sample a matrix from the uniform (Haar) distribution over orthogonal matrices.

    A product of random Householder reflections (Stewart, 1980), which needs no QR factorisation by LAPACK.
    """
    noise = jnp.triu(jax.random.normal(key, (size, size), dtype or jnp.result_type(float)))

    def reflect(row: Array, matrix: Array) -> Array:
        x = noise[row]
        sign = jnp.where(x[row] < 0, -1, 1).astype(x.dtype)
        v = x.at[row].add(sign * jnp.sqrt(x @ x))
        # Columns before `row` see zeros of v; the sign makes the distribution uniform.
        reflected = matrix - jnp.outer(matrix @ v, v) * (2 / (v @ v))
        return jnp.where(jnp.arange(size) < row, matrix, -sign * reflected)

    return jax.lax.fori_loop(0, size, reflect, jnp.eye(size, dtype=noise.dtype))
