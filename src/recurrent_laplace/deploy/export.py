"""One step of a posterior as a program of its own, which runs where only JAX is installed."""

import os
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np

from recurrent_laplace.deploy.readings import Heads, read
from recurrent_laplace.files import replacing
from recurrent_laplace.posterior import AbstractPosterior

OUTPUTS = ("entropy", "kl", "mahalanobis", "mean", "stddev")


def export(
    path: str | os.PathLike, posterior: AbstractPosterior, *, platforms: Sequence[str] | None = None
) -> None:
    """Write one step of a posterior, weights and all, as a serialised `jax.export` program.

    The program is `step(*state, x, reset) -> (*state, entropy, kl, mahalanobis, mean, stddev)`: the state
    is flat arrays whose shapes the program names itself, and any state will do when `reset` is true.

    ```python
    rl.export("step.jaxexport", posterior)

    # elsewhere, without this package:
    with open("step.jaxexport", "rb") as file:
        step = jax.export.deserialize(bytearray(file.read()))
    state = [jnp.zeros(a.shape, a.dtype) for a in step.in_avals[:-2]]
    *state, entropy, kl, mahalanobis, mean, stddev = step.call(*state, x, True)
    ```

    **Arguments:** `path`; `posterior`, of a fixed window; `platforms`, such as `["cpu", "cuda"]` (default:
    the one in use).
    """
    if getattr(posterior, "window", 1) is None:
        raise ValueError("posterior must have a fixed window to be exported: all history grows.")
    if posterior.memory.input_size is None:
        raise ValueError("input_size must be given to Autodiff before it can be exported; got None.")
    start, treedef = jax.tree.flatten((posterior.init(), posterior.prior(), jnp.zeros((), jnp.int32)))
    noise = jnp.zeros((1, posterior.memory.feature_size), posterior.memory.dtype)

    def step(*arguments: jax.Array) -> tuple[jax.Array, ...]:
        *leaves, x, reset = arguments
        leaves = [jnp.where(reset, fresh, leaf) for fresh, leaf in zip(start, leaves, strict=True)]
        state, previous, count = jax.tree.unflatten(treedef, leaves)
        state, belief, _ = posterior._update(state, x, jnp.asarray(False))
        reading = read(belief, previous, count + 1, Heads(), None, noise)
        rest = [getattr(reading, name) for name in OUTPUTS]
        return (*jax.tree.leaves((state, belief, count + 1)), *rest)

    x = jax.ShapeDtypeStruct((posterior.memory.input_size,), posterior.memory.dtype)
    shapes = [jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in start]
    exported = jax.export.export(jax.jit(step), platforms=platforms)(
        *shapes, x, jax.ShapeDtypeStruct((), jnp.bool_)
    )
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(bytes(exported.serialize()))
