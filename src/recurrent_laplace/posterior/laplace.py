"""The Laplace approximation over a recurrent state."""

import itertools
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import AbstractGatedCell, Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import Trace, select
from recurrent_laplace.chunks import chunk_size, map_chunks
from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.gaussians import AbstractBelief, DenseGaussian, DiagonalGaussian
from recurrent_laplace.gaussians.factorization import (
    cholesky,
    cholesky_with_added,
    smallest_precision,
    transpose,
    triangular_inverse,
)
from recurrent_laplace.posterior.accumulation import RunningSum, Window
from recurrent_laplace.posterior.base import AbstractPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost
from recurrent_laplace.posterior.curvature import (
    FACTORED_TOGETHER,
    Curvature,
    curvature_of,
    jacobians_together,
)
from recurrent_laplace.posterior.info import Info

HISTORY_SEGMENTS = 4
"""With all history, the sequence is cut so often, and each part sees only the history it can have."""

HISTORY_CAPACITY = 64
"""Inputs that a state with all history has room for at first."""


class LaplaceState(eqx.Module):
    """What the next step needs: the carry, the sums so far, and the window of inputs."""

    carry: Carry
    mean: RunningSum | None
    precision: RunningSum | None
    window: Window | None


class LaplacePosterior(AbstractPosterior):
    """The belief of a recurrent network that was never told to have one.

    Mean: the network's features. Precision: sums of outer products of state Jacobians,
    `C_t = sum_i J_i J_i^T`, over the last `window` inputs re-applied at the newest carry:

    | `accumulate` | precision | mean |
    |---|---|---|
    | `"none"` | `damping_precision I + C_t` | `phi_t` |
    | `"precision"` | `Lambda_{t-1} + C_t` | `phi_t` |
    | `"mean_and_precision"` | `Lambda_{t-1} + C_t` | `phi_t + mu_{t-1}` |

    from `Lambda_0 = prior_stddev^-2 I`, `mu_0 = 0`. Curvatures, and the past, are constants for the
    optimiser: gradients reach the belief through `phi_t` alone. An accumulating posterior with a
    window of W adds each input up to W times: that is the paper's model.

    **Arguments:**

    - `memory`: the network.
    - `covariance`: `"dense"`, or `"diagonal"` to keep the diagonal of the precision only.
    - `accumulate`: a row of the table.
    - `window`: how many inputs the curvature of a step has; None is all history, for
      `accumulate="none"` only.
    - `forgetting` g in (0, 1]: `Lambda_t = g Lambda_{t-1} + (1 - g) Lambda_0 + C_t`, so that a belief
      can widen again. No effect with `accumulate="none"`.
    - `prior_stddev` of the belief before any input.
    - `damping_precision`: no effect when precisions accumulate.
    - `temperature`: every precision, the prior's too, is divided by it. Above 1 the belief is wider.
    - `space`: `"features"`, the authors' form above; or `"state"`, the derivation's own: the precision is
      `sum_i J_i^T J_i` over the hidden state, and the features get what the readout makes of it, the
      covariance `R Lambda_h^-1 R^T`. With it `"diagonal"` keeps the diagonal over the state, then over the
      features. Without a readout the two differ by the side on which `J` is transposed.

    ```python
    posterior = rl.LaplacePosterior(memory, covariance="dense", accumulate="precision", window=1)
    beliefs = posterior.unroll(inputs)
    beliefs.entropy()  # (T,)
    ```
    """

    memory: Memory
    covariance: str = eqx.field(static=True)
    accumulate: str = eqx.field(static=True)
    window: int | None = eqx.field(static=True)
    forgetting: float = eqx.field(static=True)
    prior_stddev: float = eqx.field(static=True)
    damping_precision: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True)
    space: str = eqx.field(static=True)

    def __init__(
        self,
        memory: Memory,
        *,
        covariance: Literal["dense", "diagonal"] | str = "dense",
        accumulate: Literal["none", "precision", "mean_and_precision"] | str = "precision",
        window: int | None = 1,
        forgetting: float = 1.0,
        prior_stddev: float = 1.0,
        damping_precision: float = 1.0,
        temperature: float = 1.0,
        space: Literal["features", "state"] | str = "features",
    ):
        check_choice("covariance", covariance, ("dense", "diagonal"))
        check_choice("accumulate", accumulate, ("none", "precision", "mean_and_precision"))
        if window is not None:
            check_size("window", window)
        elif accumulate != "none":
            raise ValueError(
                f"window must be a whole number of at least 1 with accumulate={accumulate!r}; got None. "
                "All history would be counted again at every step: use accumulate='none' for it."
            )
        check_number("forgetting", forgetting, above=0, most=1)
        check_number("prior_stddev", prior_stddev, above=0)
        check_number("damping_precision", damping_precision, least=0)
        check_number("temperature", temperature, above=0)
        check_choice("space", space, ("features", "state"))
        hidden, features = memory.cell.hidden_size, memory.feature_size
        if space == "state" and covariance == "dense" and features > hidden:
            raise ValueError(
                f"space='state' gives {features} features of {hidden} hidden numbers a singular covariance: "
                "use covariance='diagonal', or a readout of at most as many features."
            )
        self.memory = memory
        self.covariance = covariance
        self.accumulate = accumulate
        self.window = None if window is None else int(window)
        self.forgetting = float(forgetting)
        self.prior_stddev = float(prior_stddev)
        self.damping_precision = float(damping_precision)
        self.temperature = float(temperature)
        self.space = space

    def prior(self) -> DiagonalGaussian | DenseGaussian:
        size, dtype = self.memory.feature_size, self.memory.dtype
        mean = jnp.zeros(size, dtype)
        if self._over_state and self.memory.readout is not None:
            beliefs, _ = self._beliefs(mean[None], self._isotropic(self.prior_stddev**-2)[None])
            return beliefs[0]
        stddev = self.prior_stddev * self.temperature**0.5
        if self._diagonal:
            return DiagonalGaussian(mean, self._isotropic(stddev**-2))
        return DenseGaussian(mean, self._isotropic(1 / stddev))

    # Online

    def init(self, capacity: int = HISTORY_CAPACITY) -> LaplaceState:
        """The state before any input.

        With all history (`window=None`) it grows: `capacity` is the number of inputs it has room for.
        Outside of a compiled function, `update` doubles it when it is full; inside, where shapes are
        fixed, a full history is an error that says so.
        """
        check_size("capacity", capacity)
        window = None
        if self.window != 1:
            if self.memory.cell.input_size is None:
                raise ValueError("input_size must be given to Autodiff to keep a window online; got None.")
            x = jax.ShapeDtypeStruct((self.memory.cell.input_size,), self.memory.dtype)
            window = Window.start(self.window or capacity, jax.eval_shape(self.memory.cell.project, x))
        mean = jnp.zeros(self.memory.feature_size, self.memory.dtype)
        return LaplaceState(
            carry=self.memory.init(),
            mean=RunningSum.start(mean) if self.accumulate == "mean_and_precision" else None,
            precision=None if self.accumulate == "none" else self._prior_precision(),
            window=window,
        )

    def carry(self, state: LaplaceState) -> Carry:
        return state.carry

    def _update(
        self, state: LaplaceState, x: Array, reset: Bool[Array, ""]
    ) -> tuple[LaplaceState, DiagonalGaussian | DenseGaussian, Info]:
        capacity = HISTORY_CAPACITY if state.window is None else state.window.size
        state = select(reset, self.init(capacity), state)
        carry, projected = self.memory.consume(state.carry, x)
        phi = self.memory.read(carry)
        projected = jax.lax.stop_gradient(projected)
        if state.window is None:
            window, inputs, valid = None, projected[None], jnp.ones(1, bool)
        else:
            window = (_refuse_if_full(state.window) if self.window is None else state.window).push(projected)
            inputs, valid = window.projected, window.valid()

        curvature = self._curvature()
        frozen, inputs, valid = jax.tree.map(
            lambda leaf: leaf[None], (jax.lax.stop_gradient(self.memory.top(carry)), inputs, valid)
        )
        total, precisions = self._accumulate(state.precision, curvature(frozen, inputs, valid), None)
        mean, past = phi, state.mean
        if past is not None:
            mean = phi + past.value()
            past = past.add(jax.lax.stop_gradient(phi))
        beliefs, added = self._beliefs(mean[None], precisions)
        return LaplaceState(carry, past, total, window), beliefs[0], Info.of(x, beliefs[0], added[0])

    def _with_room(self, state: LaplaceState) -> LaplaceState:
        window = state.window
        if self.window is not None or window is None or isinstance(window.count, Tracer):
            return state
        if window.count < window.size:
            return state
        return LaplaceState(state.carry, state.mean, state.precision, window.doubled())

    # Whole sequences

    def _unroll(
        self, inputs: Float[Array, "T D"], resets: Bool[Array, " T"] | None
    ) -> tuple[Trace, DiagonalGaussian | DenseGaussian, Info]:
        trace = self.memory.unroll(inputs, resets)
        means = self._means(trace.features, resets)
        total = None if self.accumulate == "none" else self._prior_precision()
        curvatures = self._curvatures(jax.lax.stop_gradient(trace), resets)
        _, precisions = self._accumulate(total, curvatures, resets)
        beliefs, added = self._beliefs(means, precisions)
        return trace, beliefs, Info.of(inputs, beliefs, added)

    def _unroll_again(
        self, inputs: Float[Array, "T D"], known: AbstractBelief
    ) -> tuple[Trace, AbstractBelief, Info]:
        # Precisions are constants; all that has a gradient is the means.
        trace = self.memory.unroll(inputs)
        beliefs = eqx.tree_at(lambda belief: belief.mean, known, self._means(trace.features, None))
        return trace, beliefs, Info.of(inputs, beliefs)

    def _means(self, features: Float[Array, "T F"], resets: Array | None) -> Float[Array, "T F"]:
        if self.accumulate != "mean_and_precision":
            return features

        frozen = jax.lax.stop_gradient(features)
        start = RunningSum.start(jnp.zeros_like(frozen[0]))

        def add(past: RunningSum, now: tuple[Array, Array | None]) -> tuple[RunningSum, Array]:
            phi, reset = now
            past = past if reset is None else select(reset, start, past)
            return past.add(phi), past.value()

        _, past = jax.lax.scan(add, start, (frozen, resets))
        return features + past

    def _curvatures(self, trace: Trace, resets: Array | None) -> Array:
        """The curvature of each step."""
        steps = trace.projected.shape[0]
        curvature = self._curvature()
        if self.window == 1:
            return curvature(trace.carries, trace.projected[:, None], jnp.ones((steps, 1), bool))
        # The first input that counts at each step: none from before the last reset.
        start = jnp.zeros(steps, int)
        if resets is not None:
            start = jax.lax.cummax(jnp.where(resets, jnp.arange(steps), 0))

        def run(first: int, last: int) -> Array:
            width = last if self.window is None else min(self.window, last)

            def of_step(step: Array) -> Array:
                newest = last - 1 if self.window is None else step
                places = newest - width + 1 + jnp.arange(width)
                valid = (places >= start[step]) & (places <= step)
                window = trace.projected[jnp.maximum(places, 0)]
                carry = jax.tree.map(lambda leaf: leaf[step], trace.carries)
                return curvature(*jax.tree.map(lambda leaf: leaf[None], (carry, window, valid)))[0]

            return jax.lax.map(of_step, jnp.arange(first, last))

        if self.window is not None:
            return run(0, steps)
        parts = min(HISTORY_SEGMENTS, steps)
        ends = [steps * i // parts for i in range(parts + 1)]
        return jnp.concatenate([run(first, last) for first, last in itertools.pairwise(ends)])

    def curvatures(self, inputs: Float[Array, "T D"]) -> tuple[Float[Array, "T F"], Array]:
        """Means and curvatures of a sequence: all of `unroll` that the scales of the belief do not touch."""
        trace = self.memory.unroll(inputs)
        return self._means(trace.features, None), self._curvatures(jax.lax.stop_gradient(trace), None)

    def scaled(
        self,
        means: Float[Array, "T F"],
        curvatures: Array,
        *,
        prior_stddev: Array,
        damping_precision: Array,
        temperature: Array,
        forgetting: Array,
    ) -> DiagonalGaussian | DenseGaussian:
        """The beliefs that `unroll` would give with these options, which may be traced numbers."""
        one = self._isotropic(1.0)
        if self.accumulate == "none":
            precisions = curvatures + damping_precision * one
        else:
            start = prior_stddev**-2 * one

            def add(total: RunningSum, curvature: Array) -> tuple[RunningSum, Array]:
                kept = RunningSum(forgetting * total.total, forgetting * total.lost)
                total = kept.add((1 - forgetting) * start).add(curvature)
                return total, total.value()

            _, precisions = jax.lax.scan(add, RunningSum.start(start), curvatures)
        # `_beliefs` divides by this posterior's own temperature.
        return self._beliefs(means, precisions * (self.temperature / temperature))[0]

    # Shared by both ways

    def _curvature(self) -> Curvature:
        return curvature_of(
            self.memory, window=self.window, diagonal=self._diagonal, over_state=self._over_state
        )

    def _accumulate(
        self, total: RunningSum | None, curvatures: Array, resets: Array | None
    ) -> tuple[RunningSum | None, Array]:
        """Curvatures of consecutive steps to the precision after each."""
        if total is None:
            return None, curvatures + self._isotropic(self.damping_precision)
        prior = self._prior_precision()

        def add(step: Array, state: tuple[RunningSum, Array]) -> tuple[RunningSum, Array]:
            total, terms = state
            past = total if resets is None else select(resets[step], prior, total)
            total = past.relax(self.forgetting, prior.total).add(terms[step])
            return total, terms.at[step].set(total.value())

        # In place of the curvatures: as large as all that is kept, and memory that is new takes time.
        return jax.lax.fori_loop(0, curvatures.shape[0], add, (total, curvatures))

    def _beliefs(
        self, means: Float[Array, "T F"], precisions: Array
    ) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
        """Means and precisions to beliefs, and the precision added to have them."""
        if self.temperature != 1:
            precisions = precisions / self.temperature
        if self._over_state and self.memory.readout is not None:
            precisions = self._read_out(precisions, jax.lax.stop_gradient(self.memory.readout.weight))
        if self._diagonal:
            lifted = jnp.maximum(precisions, smallest_precision(precisions.dtype))
            return DiagonalGaussian(means, lifted), jnp.max(lifted - precisions, axis=-1)
        factors, added = map_chunks(cholesky_with_added, precisions, _together(self.memory.feature_size))
        return DenseGaussian(means, factors), added

    def _read_out(self, precisions: Array, readout: Float[Array, "F H"]) -> Array:
        """Precisions of the state to precisions of the features, `(R Lambda^-1 R^T)^-1`."""
        if self._diagonal:
            return 1 / ((1 / precisions) @ (readout**2).T)

        def of_chunk(precisions: Float[Array, "N H H"]) -> Float[Array, "N F F"]:
            root = triangular_inverse(cholesky(precisions)) @ readout.T
            inverse = triangular_inverse(cholesky(transpose(root) @ root))
            return transpose(inverse) @ inverse

        return map_chunks(of_chunk, precisions, _together(self.memory.cell.hidden_size))

    @property
    def _diagonal(self) -> bool:
        return self.covariance == "diagonal"

    @property
    def _over_state(self) -> bool:
        return self.space == "state"

    def _isotropic(self, value: float) -> Array:
        size = self.memory.cell.hidden_size if self._over_state else self.memory.feature_size
        dtype = self.memory.dtype
        return jnp.full(size, value, dtype) if self._diagonal else value * jnp.eye(size, dtype=dtype)

    def _prior_precision(self) -> RunningSum:
        return RunningSum.start(self._isotropic(self.prior_stddev**-2))

    def cost(self, steps: int, batch: int = 1) -> Cost:
        check_size("steps", steps)
        check_size("batch", batch)
        cell = self.memory.cell
        h, f = cell.hidden_size, self.memory.feature_size
        readout = 0 if self.memory.readout is None else 1
        outer = f if self._diagonal else f * f
        width = (steps + 1) / 2 if self.window is None else min(self.window, steps)
        if self._over_state:
            multiplications = width * (readout * f * h * h + (f * h if self._diagonal else f * h * h))
            multiplications += 0 if self._diagonal else h**3 // 2 + readout * f * h * h
            working = steps * (h if self._diagonal else h * h) + 2 * h * h
        elif not isinstance(cell, AbstractGatedCell):
            multiplications = width * (h**3 + readout * f * h * h + outer * h)
            working = 2 * h * h + f * h
        elif self.window == 1:
            blocks = eqx.filter_eval_shape(type(cell).jacobian_blocks, cell).shape[0]
            multiplications = blocks * h * h + readout * f * h * h + outer * h
            most = jacobians_together(h, self.memory.dtype, diagonal=self._diagonal)
            together = chunk_size(steps * batch, most)
            # For a diagonal, XLA makes state Jacobians where the readout is multiplied with them.
            working = together * ((0 if self._diagonal else h * h) + f * h + outer) / batch
        else:
            blocks = eqx.filter_eval_shape(type(cell).jacobian_blocks, cell).shape[0]
            pairs = blocks * (blocks + 1) // 2
            multiplications = pairs * (width + 1) * h * h + readout * (f * h * h + outer * h)
            longest = steps if self.window is None else self.window
            working = longest * 5 * blocks * h + 4 * h * h + 3 * f * h
        if not self._diagonal:
            multiplications += f**3 // 3
            working += 2 * f * f
        return unroll_cost(
            self.memory, steps, batch, int(multiplications), f if self._diagonal else f * f, int(working)
        )


def _together(size: int) -> int:
    """How many matrices are factorised together."""
    return max(FACTORED_TOGETHER // size**2, 1)


def _refuse_if_full(window: Window) -> Window:
    projected = eqx.error_if(
        window.projected,
        window.count >= window.size,
        f"the history is full with {window.size} inputs, and a compiled update cannot grow it: "
        "start with posterior.init(capacity=...) of the longest history.",
    )
    return Window(projected, window.count)
