"""Export of one posterior step as a `jax.export` program that needs only JAX."""

import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.files import replacing
from recurrent_laplace.monitoring.readings import Heads, read
from recurrent_laplace.posterior import AbstractPosterior

OUTPUTS = ("entropy", "kl", "mahalanobis", "mean", "stddev")
"""Readings that the program returns after the state."""


def export(
    path: str | os.PathLike, posterior: AbstractPosterior, *, platforms: Sequence[str] | None = None
) -> None:
    """Write one step of a posterior, including its weights, as a serialised `jax.export` program.

    The program is `step(*state, x, reset) -> (*state, entropy, kl, mahalanobis, mean, stddev)`. The state
    is a list of arrays with the shapes in `step.in_avals`; its values are ignored when `reset` is true.

    **Arguments:**

    - `path`: file to write.
    - `posterior`: posterior with a fixed window.
    - `platforms`: platforms to compile for, such as `["cpu", "cuda"]`; by default the current one.

    ```python
    rl.export("step.jaxexport", rl.LaplacePosterior(rl.Memory(rl.GRU(3, 4, key=jax.random.key(0)))))

    # Elsewhere, without this package:
    with open("step.jaxexport", "rb") as file:
        step = jax.export.deserialize(bytearray(file.read()))
    state = [jnp.zeros(a.shape, a.dtype) for a in step.in_avals[:-2]]
    *state, entropy, kl, mahalanobis, mean, stddev = step.call(*state, jnp.ones(3), True)
    ```
    """
    if posterior.grows:
        raise ValueError("posterior must have a fixed window to be exported: all history grows.")
    if posterior.query_size is not None:
        raise ValueError(f"posterior must need no queries to be exported; got a {type(posterior).__name__}.")
    if posterior.memory.input_size is None:
        raise ValueError("input_size must be given to Autodiff before it can be exported; got None.")
    initial, treedef = jax.tree.flatten((posterior.init(), posterior.prior(), jnp.zeros((), jnp.int32)))
    noise = jnp.zeros((1, posterior.memory.feature_size), posterior.memory.dtype)

    def step(*arguments: jax.Array) -> tuple[jax.Array, ...]:
        *leaves, x, reset = arguments
        leaves = [jnp.where(reset, first, leaf) for first, leaf in zip(initial, leaves, strict=True)]
        state, previous, count = jax.tree.unflatten(treedef, leaves)
        state, belief = posterior.update(state, x)
        reading = read(belief, previous, count + 1, Heads(), None, noise)
        outputs = [getattr(reading, name) for name in OUTPUTS]
        return (*jax.tree.leaves((state, belief, count + 1)), *outputs)

    x = jax.ShapeDtypeStruct((posterior.memory.input_size,), posterior.memory.dtype)
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in initial]
    exported = jax.export.export(jax.jit(step), platforms=platforms)(
        *shapes, x, jax.ShapeDtypeStruct((), jnp.bool_)
    )
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(bytes(exported.serialize()))
