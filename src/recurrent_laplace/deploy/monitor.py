"""A belief that is watched while its agent acts."""

import dataclasses
import functools
import hashlib
import logging
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recurrent_laplace.cells.memory import select
from recurrent_laplace.deploy.readings import Heads, Policy, Reading, Value, check_heads, read
from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.posterior import AbstractPosterior, PointPosterior
from recurrent_laplace.posterior.accumulation import Window

log = logging.getLogger("recurrent_laplace")


class Mind(eqx.Module):
    """All that a stream remembers between two steps."""

    state: Any
    belief: AbstractBelief
    step: Array


class Monitor:
    """Watches a posterior online: one compiled call for each step, memory that does not grow.

    With `window=None` (all history) it does grow, by the projected input of each step; every doubling is
    logged with its size, `nbytes` tells it at any time, and `reset` gives it back.

    **Arguments:**

    - `posterior`: over the memory of a trained agent.
    - `policy`, `value`: the agent's heads, for the predictive readings: `policy(z, seen)` returns logits
      `(K,)` or a pair of mean and log-stddev, `value(z, seen)` a number. Equinox modules or functions.
    - `streams`: how many agents are watched at once, each with its own resets; None: one, without
      an axis for it.
    - `samples`: draws from the belief for the policy's disagreement. They come from the same noise at
      every step, so that readings move only when the belief does.

    ```python
    monitor = rl.Monitor(posterior)
    reading = monitor.step(x)
    reading.entropy, reading.kl, reading.stddev
    ```
    """

    def __init__(
        self,
        posterior: AbstractPosterior,
        *,
        policy: Policy | None = None,
        value: Value | None = None,
        streams: int | None = None,
        samples: int = 8,
    ):
        if isinstance(posterior, PointPosterior):
            raise ValueError("posterior must have a spread to be watched; got a PointPosterior.")
        if streams is not None:
            check_size("streams", streams)
        check_size("samples", samples)
        self.posterior = posterior
        self.heads = Heads(policy, value)
        self.streams = streams
        self.samples = samples
        size, dtype = posterior.memory.feature_size, posterior.memory.dtype
        self._noise = jax.random.normal(jax.random.key(0), (samples, size), dtype)
        self.alarm: Any = None
        """A `ShiftAlarm`, to be kept in the same file."""
        self._checked = False
        # The heads' weights are arguments of the compiled step, their functions a part of it.
        self._weights, functions = eqx.partition(self.heads, eqx.is_array)
        leaves, treedef = jax.tree.flatten(functions)
        self._functions = tuple(leaves), treedef
        self.mind = self._fresh()

    def reset(self) -> None:
        """Forget everything, in all streams."""
        self.mind = self._fresh()

    def step(self, x: Any, reset: Any = False, seen: Any = None) -> Reading:
        """Consume one input of shape `(D,)`, or `(streams, D)`, and read the belief.

        `reset`, a boolean for each stream, or one for all, forgets everything before this input first.
        `seen` is handed to the heads as it is.
        """
        x = jnp.asarray(x, self.posterior.memory.dtype)
        lead = () if self.streams is None else (self.streams,)
        check_shape("x", x, (*lead, self.posterior.memory.input_size or "D"))
        if np.shape(reset) not in ((), lead):
            raise ValueError(f"reset must be one boolean or have shape {lead}; got shape {np.shape(reset)}.")
        if not self._checked:
            one = seen if self.streams is None else jax.tree.map(lambda leaf: leaf[0], seen)
            check_heads(self.posterior, self.heads, one)
            self._checked = True
        self._make_room()
        reset = np.broadcast_to(np.asarray(reset, bool), lead)
        self.mind, reading = _step(
            self._functions,
            self.streams is not None,
            self.posterior,
            self._weights,
            self._noise,
            self.mind,
            x,
            reset,
            seen,
        )
        return dataclasses.replace(jax.device_get(reading), source=self.source)

    @functools.cached_property
    def source(self) -> str:
        """Identity of the posterior: a hash of its options and weights."""
        leaves, treedef = jax.tree.flatten(self.posterior)
        digest = hashlib.sha256(str(treedef).encode())
        for leaf in leaves:
            digest.update(np.ascontiguousarray(leaf).tobytes())
        return digest.hexdigest()[:16]

    @property
    def nbytes(self) -> int:
        """Bytes that the running state takes, the weights not counted."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.mind))

    def _fresh(self) -> Mind:
        mind = Mind(self.posterior.init(), self.posterior.prior(), jnp.zeros((), jnp.int32))
        streams = self.streams
        if streams is None:
            return mind
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], streams, axis=0), mind)

    def _make_room(self) -> None:
        """Double a history that is full; only one of all history ever is."""
        window = getattr(self.mind.state, "window", None)
        if window is None or getattr(self.posterior, "window", 1) is not None:
            return
        capacity = window.projected.shape[-2]
        if int(jnp.max(window.count)) < capacity:
            return
        double = Window.doubled if self.streams is None else jax.vmap(Window.doubled)
        self.mind = eqx.tree_at(lambda mind: mind.state.window, self.mind, double(window))
        log.warning(
            "the history is full with %d inputs: room for %d now takes %.3g MB",
            capacity,
            2 * capacity,
            self.nbytes / 1e6,
        )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _step(
    functions: tuple[tuple, Any],
    many: bool,
    posterior: AbstractPosterior,
    weights: Heads,
    noise: Array,
    mind: Mind,
    x: Array,
    reset: Array,
    seen: Any,
) -> tuple[Mind, Reading]:
    leaves, treedef = functions
    heads = eqx.combine(weights, jax.tree.unflatten(treedef, leaves))

    def one(mind: Mind, x: Array, reset: Array, seen: Any) -> tuple[Mind, Reading]:
        state, belief, _ = posterior._update(mind.state, x, reset)
        previous = select(reset, posterior.prior(), mind.belief)
        step = jnp.where(reset, 0, mind.step) + 1
        return Mind(state, belief, step), read(belief, previous, step, heads, seen, noise)

    return (jax.vmap(one) if many else one)(mind, x, reset, seen)
