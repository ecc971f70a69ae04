"""A belief that is watched while its agent acts."""

import dataclasses
import functools
import hashlib
import logging
from collections.abc import Callable
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
        self._grows = getattr(posterior, "window", 1) is None
        memory = posterior.memory
        self._dtype, self._lead = memory.dtype, () if streams is None else (streams,)
        self._shape = (*self._lead, memory.input_size or "D")
        noise = jax.random.normal(jax.random.key(0), (samples, memory.feature_size), memory.dtype)
        self.alarm: Any = None
        """A `ShiftAlarm`, to be kept in the same file."""
        self._checked = False
        # Modules are taken apart here, once, and not at every step. The heads' weights are arguments of
        # the compiled step, their functions a part of it.
        weights, functions = eqx.partition(self.heads, eqx.is_array)
        self._constants, constants_tree = jax.tree.flatten((posterior, weights, noise))
        self._mind, self._mind_tree = jax.tree.flatten(self._fresh())
        leaves, functions_tree = jax.tree.flatten(functions)
        self._step = _make_step(constants_tree, self._mind_tree, functions_tree, tuple(leaves), streams)

    @property
    def mind(self) -> Mind:
        """All that the streams remember."""
        return jax.tree.unflatten(self._mind_tree, self._mind)

    @mind.setter
    def mind(self, mind: Mind) -> None:
        self._mind = jax.tree.leaves(mind)

    def reset(self) -> None:
        """Forget everything, in all streams."""
        self.mind = self._fresh()

    def step(self, x: Any, reset: Any = False, seen: Any = None) -> Reading:
        """Consume one input of shape `(D,)`, or `(streams, D)`, and read the belief.

        `reset`, a boolean for each stream, or one for all, forgets everything before this input first.
        `seen` is handed to the heads as it is.
        """
        x = np.asarray(x, self._dtype)
        check_shape("x", x, self._shape)
        reset = np.asarray(reset, bool)
        if reset.shape != self._lead:
            if reset.shape:
                raise ValueError(
                    f"reset must be one boolean or have shape {self._lead}; got shape {reset.shape}."
                )
            reset = np.broadcast_to(reset, self._lead)
        if not self._checked:
            one = seen if self.streams is None else jax.tree.map(lambda leaf: leaf[0], seen)
            check_heads(self.posterior, self.heads, one)
            self._checked = True
        if self._grows:
            self._make_room()
        self._mind, reading = self._step(self._constants, self._mind, x, reset, seen)
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
        return sum(leaf.nbytes for leaf in self._mind)

    def _fresh(self) -> Mind:
        mind = Mind(self.posterior.init(), self.posterior.prior(), jnp.zeros((), jnp.int32))
        streams = self.streams
        if streams is None:
            return mind
        return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], streams, axis=0), mind)

    def _make_room(self) -> None:
        """Double a history that is full."""
        window = self.mind.state.window
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


@functools.lru_cache(maxsize=64)
def _make_step(
    constants_tree: Any, mind_tree: Any, functions_tree: Any, functions: tuple, streams: int | None
) -> Callable[..., tuple[list[Array], Reading]]:
    """The compiled step of all monitors of this structure: leaves of modules in, leaves and reading out."""

    @jax.jit
    def step(
        constants: list[Array], mind: list[Array], x: Array, reset: Array, seen: Any
    ) -> tuple[list[Array], Reading]:
        posterior, weights, noise = jax.tree.unflatten(constants_tree, constants)
        heads = eqx.combine(weights, jax.tree.unflatten(functions_tree, functions))

        def one(mind: Mind, x: Array, reset: Array, seen: Any) -> tuple[Mind, Reading]:
            state, belief, _ = posterior._update(mind.state, x, reset)
            previous = select(reset, posterior.prior(), mind.belief)
            step = jnp.where(reset, 0, mind.step) + 1
            return Mind(state, belief, step), read(belief, previous, step, heads, seen, noise)

        many = one if streams is None else jax.vmap(one)
        then, reading = many(jax.tree.unflatten(mind_tree, mind), x, reset, seen)
        return jax.tree.leaves(then), reading

    return step
