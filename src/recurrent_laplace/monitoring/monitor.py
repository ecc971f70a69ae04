"""Online monitor of a posterior, one compiled call per step."""

import dataclasses
import functools
import hashlib
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from recurrent_laplace.cells.memory import select
from recurrent_laplace.deprecations import renamed_argument
from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.monitoring.forecast import Forecast, split_by_target
from recurrent_laplace.monitoring.readings import (
    Heads,
    Policy,
    Reading,
    Value,
    all_finite,
    check_heads,
    finite_or_none,
    read,
    surprise,
)
from recurrent_laplace.posterior import AbstractLikelihood, AbstractPosterior

MOST_SAMPLES = 2**14
"""Upper limit of `samples`."""

CLOCK = (
    "The recurrence is linear: its Jacobian is the same for every input, so that the entropy of this belief "
    "depends on the number of inputs alone. Use the likelihood posterior of rl.fit_predictor."
)
"""Warning about a posterior whose width is a clock."""

log = logging.getLogger("recurrent_laplace")


class StreamState(eqx.Module):
    """State of a stream between two steps: the posterior's state, the last belief, the step count."""

    state: Any
    belief: AbstractBelief
    step: Array


class Monitor:
    """Online monitor of a posterior: one compiled call per step, constant memory.

    A step with a non-finite input, query or belief returns a reading with `finite=False` and leaves the
    belief unchanged. `step` and `reset` are thread-safe: each step is atomic.

    The posterior of `rl.fit_predictor` has forecasts in the units of the observations (`predict`) and a
    surprise; the width of others has no scale of its own.

    With `window=None` (all history) the memory grows by the projected input of each step. Every doubling
    is logged with its size, `nbytes` is the current size, and `reset` frees the history.

    **Arguments:**

    - `posterior`: posterior over the memory of a trained agent.
    - `policy`, `value`: the agent's heads, for the predictive readings: `policy(z, context)` returns logits
      `(K,)` or a pair of mean and log-stddev, `value(z, context)` a scalar. Equinox modules or functions.
    - `streams`: number of agents monitored at once, each with its own resets. With None there is a single
      stream and no stream axis.
    - `samples`: samples from the belief for `policy_disagreement`. All steps share one noise array, so
      that readings change only when the belief does.

    ```python
    memory = rl.Memory(rl.LSTM(3, 8, key=jax.random.key(0)))
    monitor = rl.Monitor(rl.LaplacePosterior(memory, covariance="diagonal"))
    reading = monitor.step(jnp.ones(3))
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
        if not posterior.has_density:
            raise ValueError(
                f"posterior must have a spread to be monitored; got a {type(posterior).__name__}."
            )
        if streams is not None:
            check_size("streams", streams)
        check_size("samples", samples)
        if samples > MOST_SAMPLES:
            raise ValueError(f"samples must be at most {MOST_SAMPLES}; got {samples}.")
        if posterior.is_clock:
            log.warning(CLOCK)
        self.posterior = posterior
        self.heads = Heads(policy, value)
        self.streams = streams
        self.samples = samples
        memory = posterior.memory
        self._dtype, self._lead = memory.dtype, () if streams is None else (streams,)
        self._shape = (*self._lead, memory.input_size or "D")
        noise = jax.random.normal(jax.random.key(0), (samples, memory.feature_size), memory.dtype)
        self._lock = threading.RLock()
        self.alarm: Any = None
        """A `ShiftAlarm` to be saved with the monitor."""
        self._checked = False
        # Flattening modules at every step would be slow. The heads' weights are arguments of the compiled
        # step; their functions are part of it.
        weights, functions = eqx.partition(self.heads, eqx.is_array)
        self._constants, constants_tree = jax.tree.flatten((posterior, weights, noise))
        self._state, self._state_tree = jax.tree.flatten(initial_state(posterior, streams))
        leaves, functions_tree = jax.tree.flatten(functions)
        self._step = _make_step(constants_tree, self._state_tree, functions_tree, tuple(leaves), streams)

    @property
    def state(self) -> StreamState:
        """State of all streams."""
        return jax.tree.unflatten(self._state_tree, self._state)

    @state.setter
    def state(self, state: StreamState) -> None:
        with self._lock:
            self._state = jax.tree.leaves(state)

    @property
    def mind(self) -> StreamState:
        """Deprecated name of `state`."""
        warnings.warn("Monitor.mind is deprecated: use Monitor.state.", DeprecationWarning, stacklevel=2)
        return self.state

    def reset(self) -> None:
        """Reset all streams to the prior."""
        self.state = initial_state(self.posterior, self.streams)

    @renamed_argument("seen", "context")
    def step(
        self, x: Any, reset: Any = False, context: Any = None, *, query: Any = None, target: Any = None
    ) -> Reading:
        """Update the belief with one input and read it.

        **Arguments:**

        - `x`: the memory's input, of shape `(D,)` or `(streams, D)`.
        - `reset`: whether to return to the prior before this input, one boolean or one per stream.
        - `context`: the heads' second argument.
        - `query`: the query that this input answers, `(Q,)` or `(streams, Q)`, for a posterior that needs it;
          NaN for none. It may be left out at the first input of all streams, which answers none.
        - `target`: the target of that query, `(K,)` or `(streams, K)`, for `reading.surprise`; NaN for none.
          With an infinite or impossible target the surprise, and so the reading, is not finite.
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
        if query is None and self.posterior.query_size and np.all(reset | (self.state.step == 0)):
            query = np.full((*self._lead, self.posterior.query_size), np.nan)
        if query is not None:
            query = np.asarray(query, self._dtype)
        if target is not None:
            target = np.asarray(target, self._dtype)
            check_shape("target", target, (*self._lead, self._likelihood().size))
        if not self._checked:
            first = context if self.streams is None else jax.tree.map(lambda leaf: leaf[0], context)
            check_heads(self.posterior, self.heads, first)
            self._checked = True
        with self._lock:
            if self.posterior.grows:
                self._make_room()
            self._state, reading = self._step(self._constants, self._state, x, reset, context, query, target)
        return dataclasses.replace(jax.device_get(reading), source=self.source)

    def predict(self, query: Any) -> Forecast:
        """Predict the target of a query, in its own units, with the belief after the last step.

        **Arguments:** `query`: for example this observation and an action, `(Q,)` or `(streams, Q)`.
        """
        likelihood, posterior = self._likelihood(), self.posterior
        query = np.asarray(query, self._dtype)
        check_shape("query", query, (*self._lead, posterior.query_size or "Q"))
        if not np.isfinite(query).all():
            raise ValueError(f"query must be finite; got {query}.")
        mean, stddev = jax.device_get(_predict(posterior, self.state.belief, query))
        mean, stddev = (split_by_target(likelihood, array) for array in (mean, stddev))
        return Forecast(mean, stddev)

    def _likelihood(self) -> AbstractLikelihood:
        likelihood = self.posterior.likelihood
        if likelihood is None:
            raise ValueError(
                "posterior must be an rl.LikelihoodPosterior to predict, as that of rl.fit_predictor; "
                f"got a {type(self.posterior).__name__}."
            )
        return likelihood

    def __getstate__(self) -> dict[str, Any]:
        """Attributes without the lock, which cannot be copied."""
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    @functools.cached_property
    def source(self) -> str:
        """Hash of the posterior's options and weights."""
        return source_of(self.posterior)

    @property
    def nbytes(self) -> int:
        """Size of the running state in bytes, without the weights."""
        return sum(leaf.nbytes for leaf in self._state)

    def _make_room(self) -> None:
        """Double the capacity of a growing state that is full."""
        stream = self.state
        state = self.posterior.with_room(stream.state)
        old, new = self.posterior.capacity(stream.state), self.posterior.capacity(state)
        if new == old:
            return
        self.state = StreamState(state, stream.belief, stream.step)
        log.warning(
            "the history is full with %d inputs: room for %d now takes %.3g MB", old, new, self.nbytes / 1e6
        )


@eqx.filter_jit
def _predict(posterior: AbstractPosterior, belief: AbstractBelief, query: Array) -> tuple[Array, Array]:
    predictive = posterior.predict(belief, query)
    return predictive.mean(), predictive.stddev()


def source_of(posterior: AbstractPosterior) -> str:
    """Hash of the options and weights of a posterior."""
    leaves, treedef = jax.tree.flatten(posterior)
    digest = hashlib.sha256(str(treedef).encode())
    for leaf in leaves:
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def initial_state(
    posterior: AbstractPosterior, streams: int | None, capacity: int | None = None
) -> StreamState:
    """State of the streams before any input."""
    state = StreamState(posterior.init(capacity), posterior.prior(), jnp.zeros((), jnp.int32))
    if streams is None:
        return state
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], streams, axis=0), state)


@functools.lru_cache(maxsize=64)
def _make_step(
    constants_tree: Any, state_tree: Any, functions_tree: Any, functions: tuple, streams: int | None
) -> Callable[..., tuple[list[Array], Reading]]:
    """Compile the step shared by all monitors of one structure; states go in and out as leaves."""

    @jax.jit
    def step(
        constants: list[Array],
        state: list[Array],
        x: Array,
        reset: Array,
        context: Any,
        query: Array | None,
        target: Array | None,
    ) -> tuple[list[Array], Reading]:
        posterior, weights, noise = jax.tree.unflatten(constants_tree, constants)
        heads = eqx.combine(weights, jax.tree.unflatten(functions_tree, functions))

        def advance(
            stream: StreamState,
            x: Array,
            reset: Array,
            context: Any,
            query: Array | None,
            target: Array | None,
        ) -> tuple[StreamState, Reading]:
            state, belief = posterior.update(stream.state, x, reset, query=query)
            previous = select(reset, posterior.prior(), stream.belief)
            step = jnp.where(reset, 0, stream.step) + 1
            reading = read(belief, previous, step, heads, context, noise)
            if target is not None:
                assert query is not None
                surprised = surprise(posterior, previous, query, target)
                known = reading.finite & jnp.isfinite(surprised)
                reading = dataclasses.replace(reading, surprise=surprised, finite=known)
            finite = all_finite((x, state, belief))
            if query is not None:
                finite &= finite_or_none(query)
            reading = dataclasses.replace(reading, finite=reading.finite & finite)
            # The recurrence would propagate a NaN forever, so the state before it is kept.
            past = select(reset, posterior.init(posterior.capacity(stream.state)), stream.state)
            state = select(finite, state, past)
            return StreamState(state, select(finite, belief, previous), step), reading

        advance_all = advance if streams is None else jax.vmap(advance)
        before = jax.tree.unflatten(state_tree, state)
        next_state, reading = advance_all(before, x, reset, context, query, target)
        return jax.tree.leaves(next_state), reading

    return step
