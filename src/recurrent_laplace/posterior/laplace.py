"""Laplace approximation over the features of a recurrent network."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import AbstractGatedCell, Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import Trace, select
from recurrent_laplace.chunks import chunk_size, map_chunks
from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.gaussians import AbstractBelief, DenseGaussian, DiagonalGaussian
from recurrent_laplace.gaussians.linalg import (
    cholesky,
    transpose,
    triangular_inverse,
)
from recurrent_laplace.posterior.accumulation import (
    HISTORY_CAPACITY,
    RunningSum,
    Window,
    accumulate,
    map_windows,
)
from recurrent_laplace.posterior.base import AbstractScaledPosterior, warn_deprecated
from recurrent_laplace.posterior.cost import Cost, unroll_cost
from recurrent_laplace.posterior.curvature import Curvature, curvature_of, jacobians_together
from recurrent_laplace.posterior.inference import Inference
from recurrent_laplace.posterior.info import Info
from recurrent_laplace.posterior.precisions import beliefs_of, matrices_together


class Scales(NamedTuple):
    """Numerical options of a Laplace posterior: floats, or traced arrays while they are fitted."""

    prior_stddev: float | Array
    damping_precision: float | Array
    temperature: float | Array
    forgetting: float | Array


class LaplaceState(eqx.Module):
    """State of a Laplace posterior: the carry, the running sums, and the window of inputs."""

    carry: Carry
    mean: RunningSum | None
    precision: RunningSum | None
    window: Window | None


def check_laplace(
    *,
    covariance: Any = "dense",
    accumulate: Any = "none",
    window: Any = 1,
    forgetting: Any = 1.0,
    prior_stddev: Any = 1.0,
    damping_precision: Any = 1.0,
    temperature: Any = 1.0,
    space: Any = "features",
) -> None:
    """Refuse invalid options of a `LaplacePosterior`; any subset can be checked."""
    check_choice("covariance", covariance, ("dense", "diagonal"))
    check_choice("accumulate", accumulate, ("none", "precision", "mean_and_precision"))
    if window not in (None, "all"):
        check_size("window", window)
    elif accumulate != "none":
        raise ValueError(
            f"window must be a whole number of at least 1 with accumulate={accumulate!r}; got {window!r}. "
            "An unlimited window would count every input again at each step: use accumulate='none' with it."
        )
    check_number("forgetting", forgetting, above=0, most=1)
    check_number("prior_stddev", prior_stddev, above=0)
    check_number("damping_precision", damping_precision, least=0)
    check_number("temperature", temperature, above=0)
    check_choice("space", space, ("features", "state"))


def effective_scales(accumulate: str) -> tuple[str, ...]:
    """Names of the scales that affect a posterior with that accumulation."""
    if accumulate == "none":
        return ("damping_precision", "temperature")
    return ("prior_stddev", "temperature", "forgetting")


class LaplacePosterior(AbstractScaledPosterior):
    """Laplace approximation over the features of a recurrent network.

    The mean is the network's features. The precision is a sum of outer products of state Jacobians,
    `C_t = sum_i J_i J_i^T`, over the last `window` inputs re-applied at the newest carry:

    | `accumulate` | precision | mean |
    |---|---|---|
    | `"none"` | `damping_precision I + C_t` | `phi_t` |
    | `"precision"` | `Lambda_{t-1} + C_t` | `phi_t` |
    | `"mean_and_precision"` | `Lambda_{t-1} + C_t` | `phi_t + mu_{t-1}` |

    with `Lambda_0 = prior_stddev^-2 I` and `mu_0 = 0`. Gradients stop at curvatures and at earlier beliefs,
    so they reach the belief through `phi_t` only. An accumulating posterior with a window of W adds each
    input up to W times, as in the paper.

    **Arguments:**

    - `memory`: the network, an `rl.Memory`.
    - `covariance`: `"dense"`, or `"diagonal"` to keep only the diagonal of the precision.
    - `accumulate`: the row of the table.
    - `window`: number of inputs in the curvature of a step; None or `"all"` for all inputs so far, with
      `accumulate="none"` only.
    - `forgetting`: g in (0, 1] of `Lambda_t = g Lambda_{t-1} + (1 - g) Lambda_0 + C_t`; below 1 the belief
      can widen again. No effect with `accumulate="none"`.
    - `prior_stddev`: standard deviation of the belief before any input.
    - `damping_precision`: precision added to the curvature. No effect when precisions accumulate.
    - `temperature`: divisor of every precision, including the prior's. Above 1 the belief is wider.
    - `space`: `"features"` for the curvature above, as in the authors' code. `"state"` for that of the
      derivation, `sum_i J_i^T J_i` over the hidden state, which gives the features the covariance
      `R Lambda_h^-1 R^T`; `"diagonal"` then keeps the diagonal over the state, and over the features.

    ```python
    memory = rl.Memory(rl.LSTM(3, 16, key=jax.random.key(0)), features=4, key=jax.random.key(1))
    posterior = rl.LaplacePosterior(memory, covariance="dense", accumulate="precision", window=1)
    posterior.unroll(jnp.ones((5, 3))).entropy()  # (5,)
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
        covariance: Literal["dense", "diagonal"] = "dense",
        accumulate: Literal["none", "precision", "mean_and_precision"] = "precision",
        window: int | Literal["all"] | None = 1,
        forgetting: float = 1.0,
        prior_stddev: float = 1.0,
        damping_precision: float = 1.0,
        temperature: float = 1.0,
        space: Literal["features", "state"] = "features",
    ):
        check_laplace(
            covariance=covariance,
            accumulate=accumulate,
            window=window,
            forgetting=forgetting,
            prior_stddev=prior_stddev,
            damping_precision=damping_precision,
            temperature=temperature,
            space=space,
        )
        hidden, features = memory.cell.hidden_size, memory.feature_size
        if space == "state" and covariance == "dense" and features > hidden:
            raise ValueError(
                f"space='state' gives {features} features of {hidden} hidden units a singular covariance: "
                f"use covariance='diagonal', or a readout of at most {hidden} features."
            )
        self.memory = memory
        self.covariance = covariance
        self.accumulate = accumulate
        self.window = None if window in (None, "all") else int(window)
        self.forgetting = float(forgetting)
        self.prior_stddev = float(prior_stddev)
        self.damping_precision = float(damping_precision)
        self.temperature = float(temperature)
        self.space = space

    @property
    def effective_scales(self) -> tuple[str, ...]:
        return effective_scales(self.accumulate)

    @property
    def scales(self) -> Scales:
        """Options that scale the precision and do not affect the mean or the curvature."""
        return Scales(self.prior_stddev, self.damping_precision, self.temperature, self.forgetting)

    def prior(self) -> DiagonalGaussian | DenseGaussian:
        size, dtype = self.memory.feature_size, self.memory.dtype
        mean = jnp.zeros(size, dtype)
        if self._over_state and self.memory.readout is not None:
            precision = self._isotropic(self.prior_stddev**-2)
            beliefs, _ = self._beliefs(mean[None], precision[None], self.temperature)
            return beliefs[0]
        stddev = self.prior_stddev * self.temperature**0.5
        if self._diagonal:
            return DiagonalGaussian(mean, self._isotropic(stddev**-2))
        return DenseGaussian(mean, self._isotropic(1 / stddev))

    # Online

    @property
    def covariance_has_gradient(self) -> bool:
        return False

    @property
    def is_clock(self) -> bool:
        return self.memory.cell.has_constant_jacobian

    @property
    def mean_is_features(self) -> bool:
        return self.accumulate != "mean_and_precision"

    @property
    def grows(self) -> bool:
        return self.window is None

    def capacity(self, state: LaplaceState) -> int | None:
        return state.window.size if self.grows and state.window is not None else None

    def with_room(self, state: LaplaceState) -> LaplaceState:
        window = state.window
        if not self.grows or window is None or jnp.max(window.count) < window.size:
            return state
        return LaplaceState(state.carry, state.mean, state.precision, window.doubled())

    def init(self, capacity: int | None = None) -> LaplaceState:
        """State before any input.

        With `window=None` the state stores all inputs and has room for `capacity` of them. Outside of a
        compiled function `update` doubles the capacity when it is reached; inside, where shapes are fixed,
        `update` raises an error.
        """
        capacity = HISTORY_CAPACITY if capacity is None else capacity
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
            precision=self._prior_precision(self.scales),
            window=window,
        )

    def carry(self, state: LaplaceState) -> Carry:
        """Deprecated: use the trace of `infer_step`."""
        warn_deprecated("carry", "infer_step(state, x, reset)[1].trace")
        return state.carry

    def compute_step(
        self, state: LaplaceState, x: Array, reset: Bool[Array, ""]
    ) -> tuple[LaplaceState, Inference]:
        state = select(reset, self.init(self.capacity(state)), state)
        carry, projected = self.memory.consume(state.carry, x)
        trace = self.memory.trace(carry, projected)
        phi, projected = trace.features, jax.lax.stop_gradient(projected)
        if state.window is None:
            window, inputs, valid = None, projected[None], jnp.ones(1, bool)
        else:
            window = (state.window.refuse_if_full() if self.grows else state.window).push(projected)
            inputs, valid = window.projected, window.valid()

        curvature = self._curvature()
        frozen, inputs, valid = jax.tree.map(
            lambda leaf: leaf[None], (jax.lax.stop_gradient(trace.carries), inputs, valid)
        )
        curvatures = curvature(frozen, inputs, valid)
        total, precisions = self._accumulate(state.precision, curvatures, None, self.scales)
        mean, mean_sum = phi, state.mean
        if mean_sum is not None:
            mean = phi + mean_sum.value()
            mean_sum = mean_sum.add(jax.lax.stop_gradient(phi))
        beliefs, added = self._beliefs(mean[None], precisions, self.temperature)
        inference = Inference(beliefs[0], Info.of(x, beliefs[0], added[0]), trace)
        return LaplaceState(carry, mean_sum, total, window), inference

    # Whole sequences

    def compute(
        self, inputs: Float[Array, "T D"], resets: Bool[Array, " T"] | None, reuse: AbstractBelief | None
    ) -> Inference:
        trace = self.memory.unroll(inputs, resets)
        means = self._means(trace.features, resets)
        if reuse is not None:
            # Precisions have no gradient; only the means do.
            beliefs = eqx.tree_at(lambda belief: belief.mean, reuse, means)
            return Inference(beliefs, Info.of(inputs, beliefs), trace)
        curvatures = self._curvatures(jax.lax.stop_gradient(trace), resets)
        beliefs, added = self._scaled(means, curvatures, resets, self.scales)
        return Inference(beliefs, Info.of(inputs, beliefs, added), trace)

    def _means(self, features: Float[Array, "T F"], resets: Array | None) -> Float[Array, "T F"]:
        if self.accumulate != "mean_and_precision":
            return features

        frozen = jax.lax.stop_gradient(features)
        start = RunningSum.start(jnp.zeros_like(frozen[0]))

        def add(past: RunningSum, xs: tuple[Array, Array | None]) -> tuple[RunningSum, Array]:
            phi, reset = xs
            past = past if reset is None else select(reset, start, past)
            return past.add(phi), past.value()

        _, past = jax.lax.scan(add, start, (frozen, resets))
        return features + past

    def _curvatures(self, trace: Trace, resets: Array | None) -> Array:
        """Curvature of each step."""
        steps = trace.projected.shape[0]
        curvature = self._curvature()
        if self.window == 1:
            return curvature(trace.carries, trace.projected[:, None], jnp.ones((steps, 1), bool))

        def of_window(step: Array, indices: Array, valid: Array) -> Array:
            carry = jax.tree.map(lambda leaf: leaf[step], trace.carries)
            one = (carry, trace.projected[indices], valid)
            return curvature(*jax.tree.map(lambda leaf: leaf[None], one))[0]

        return map_windows(of_window, steps, self.window, resets)

    def statistics(
        self, inputs: Float[Array, "T D"], queries: Float[Array, "T Q"] | None = None
    ) -> tuple[Float[Array, "T F"], Array]:
        """Means and curvatures of a sequence."""
        del queries
        trace = self.memory.unroll(inputs)
        return self._means(trace.features, None), self._curvatures(jax.lax.stop_gradient(trace), None)

    def scaled(
        self, first: Float[Array, "T F"], second: Array, scales: Scales
    ) -> DiagonalGaussian | DenseGaussian:
        return self._scaled(first, second, None, scales)[0]

    def _scaled(
        self, means: Float[Array, "T F"], curvatures: Array, resets: Array | None, scales: Scales
    ) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
        _, precisions = self._accumulate(self._prior_precision(scales), curvatures, resets, scales)
        return self._beliefs(means, precisions, scales.temperature)

    # Shared by single steps and sequences

    def _curvature(self) -> Curvature:
        return curvature_of(
            self.memory, window=self.window, diagonal=self._diagonal, over_state=self._over_state
        )

    def _accumulate(
        self, total: RunningSum | None, curvatures: Array, resets: Array | None, scales: Scales
    ) -> tuple[RunningSum | None, Array]:
        """Precision after each of the consecutive steps with these curvatures."""
        prior = self._prior_precision(scales)
        if total is None or prior is None:
            return None, curvatures + self._isotropic(scales.damping_precision)
        return accumulate(total, prior, curvatures, resets, scales.forgetting)

    def _beliefs(
        self, means: Float[Array, "T F"], precisions: Array, temperature: float | Array
    ) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
        """Beliefs of these means and precisions, and the precision added to make them positive definite."""
        precisions = precisions / temperature
        if self._over_state and self.memory.readout is not None:
            precisions = self._read_out(precisions, jax.lax.stop_gradient(self.memory.readout.weight))
        return beliefs_of(means, precisions, diagonal=self._diagonal)

    def _read_out(self, precisions: Array, readout: Float[Array, "F H"]) -> Array:
        """Precisions `(R Lambda^-1 R^T)^-1` of the features, from precisions of the state."""
        if self._diagonal:
            return 1 / ((1 / precisions) @ (readout**2).T)

        def of_chunk(precisions: Float[Array, "N H H"]) -> Float[Array, "N F F"]:
            root = triangular_inverse(cholesky(precisions)) @ readout.T
            inverse = triangular_inverse(cholesky(transpose(root) @ root))
            return transpose(inverse) @ inverse

        return map_chunks(of_chunk, precisions, matrices_together(self.memory.cell.hidden_size))

    @property
    def _diagonal(self) -> bool:
        return self.covariance == "diagonal"

    @property
    def _over_state(self) -> bool:
        return self.space == "state"

    def _isotropic(self, value: float | Array) -> Array:
        size = self.memory.cell.hidden_size if self._over_state else self.memory.feature_size
        dtype = self.memory.dtype
        return jnp.full(size, value, dtype) if self._diagonal else value * jnp.eye(size, dtype=dtype)

    def _prior_precision(self, scales: Scales) -> RunningSum | None:
        """Sum of precisions before any input, or None if precisions do not accumulate."""
        if self.accumulate == "none":
            return None
        return RunningSum.start(self._isotropic(scales.prior_stddev**-2))

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
            # For a diagonal, XLA fuses the state Jacobians into the product with the readout.
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
