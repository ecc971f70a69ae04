"""Conjugate posterior: a product of one Gaussian factor per input."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import Affine, Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import Trace, select
from recurrent_laplace.errors import check_number, check_shape
from recurrent_laplace.gaussians import AbstractBelief, DiagonalGaussian
from recurrent_laplace.posterior.accumulation import RunningSum
from recurrent_laplace.posterior.base import AbstractScaledPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost
from recurrent_laplace.posterior.inference import Inference
from recurrent_laplace.posterior.info import Info

INITIAL_LOGIT = -3.0
"""Offset of the precision head: untrained factors have precisions of about `softplus(-3) = 0.05`."""


class ConjugateScales(NamedTuple):
    """Numerical options of a conjugate posterior: floats, or traced arrays while they are fitted."""

    prior_stddev: float | Array
    temperature: float | Array
    forgetting: float | Array


class ConjugateState(eqx.Module):
    """State of a conjugate posterior: the carry, and the running sums of the factors' natural parameters."""

    carry: Carry
    precision: RunningSum
    weighted: RunningSum


def check_conjugate(*, prior_stddev: Any = 1.0, forgetting: Any = 1.0, temperature: Any = 1.0) -> None:
    """Refuse invalid options of a `ConjugatePosterior`; any subset can be checked."""
    check_number("prior_stddev", prior_stddev, above=0)
    check_number("forgetting", forgetting, above=0, most=1)
    check_number("temperature", temperature, above=0)


class ConjugatePosterior(AbstractScaledPosterior):
    """Product of Gaussian factors, one per input, with learned means and precisions.

    Input t is a measurement `phi_t` of the features with precision `s_t >= 0`, both read from the hidden
    state. The product of all factors and the prior is the exact posterior of independent measurements:

        s_t = softplus(W h_t + b - 3),
        Lambda_t = Lambda_{t-1} + s_t,    eta_t = eta_{t-1} + s_t phi_t,    mean = eta_t / Lambda_t,

    from `Lambda_0 = prior_stddev^-2` and `eta_0 = 0`. Covariances are diagonal. No Jacobian is needed, and
    gradients reach means and precisions of all factors.

    **Arguments:**

    - `memory`: the network, an `rl.Memory`; its features are the measurements.
    - `prior_stddev`: standard deviation of the belief before any input.
    - `forgetting`: g in (0, 1]; before each input, `Lambda_{t-1} - Lambda_0` and `eta_{t-1}` are multiplied
      by g. Below 1 the belief can widen again.
    - `temperature`: divisor of every precision, including the prior's; the mean is kept. Above 1 the belief
      is wider.
    - `precision_head`: an existing `rl.Affine` for `W` and `b`, from H to F, instead of `key`.
    - `key`: random key for the initial weights of the precision head.

    ```python
    memory = rl.Memory(rl.GRU(3, 8, key=jax.random.key(0)))
    posterior = rl.ConjugatePosterior(memory, key=jax.random.key(1))
    posterior.unroll(jnp.ones((5, 3))).entropy()  # (5,), decreasing
    ```
    """

    memory: Memory
    precision_head: Affine
    prior_stddev: float = eqx.field(static=True)
    forgetting: float = eqx.field(static=True)
    temperature: float = eqx.field(static=True)

    def __init__(
        self,
        memory: Memory,
        *,
        prior_stddev: float = 1.0,
        forgetting: float = 1.0,
        temperature: float = 1.0,
        precision_head: Affine | None = None,
        key: Array | None = None,
    ):
        check_conjugate(prior_stddev=prior_stddev, forgetting=forgetting, temperature=temperature)
        sizes = (memory.cell.hidden_size, memory.feature_size)
        if precision_head is None:
            if key is None:
                raise ValueError("key must be a JAX random key without a precision_head; got None.")
            precision_head = Affine.init(*sizes, dtype=memory.dtype, key=key)
        check_shape("precision_head.weight", precision_head.weight, sizes[::-1])
        self.memory = memory
        self.precision_head = precision_head
        self.prior_stddev = float(prior_stddev)
        self.forgetting = float(forgetting)
        self.temperature = float(temperature)

    @property
    def effective_scales(self) -> tuple[str, ...]:
        return ConjugateScales._fields

    @property
    def scales(self) -> ConjugateScales:
        """Options that scale the precisions of the prior and of the factors."""
        return ConjugateScales(self.prior_stddev, self.temperature, self.forgetting)

    def prior(self) -> DiagonalGaussian:
        zeros = jnp.zeros(self.memory.feature_size, self.memory.dtype)
        return self._belief(zeros, zeros, self.scales)

    def init(self, capacity: int | None = None) -> ConjugateState:
        zeros = RunningSum.start(jnp.zeros(self.memory.feature_size, self.memory.dtype))
        return ConjugateState(self.memory.init(), zeros, zeros)

    def compute_step(
        self, state: ConjugateState, x: Array, reset: Bool[Array, ""]
    ) -> tuple[ConjugateState, Inference]:
        state = select(reset, self.init(), state)
        carry, projected = self.memory.consume(state.carry, x)
        trace = self.memory.trace(carry, projected)
        precision, weighted = (
            past.relax(self.forgetting, jnp.zeros_like(new)).add(new)
            for past, new in zip((state.precision, state.weighted), self._factors(trace), strict=True)
        )
        belief = self._belief(precision.value(), weighted.value(), self.scales)
        return ConjugateState(carry, precision, weighted), Inference(belief, Info.of(x, belief), trace)

    def compute(
        self, inputs: Float[Array, "T D"], resets: Bool[Array, " T"] | None, reuse: AbstractBelief | None
    ) -> Inference:
        # Gradients reach every factor, so that known beliefs would save nothing.
        del reuse
        trace = self.memory.unroll(inputs, resets)
        totals = self._totals(self._factors(trace), resets, self.forgetting)
        beliefs = self._belief(*totals, self.scales)
        return Inference(beliefs, Info.of(inputs, beliefs), trace)

    def statistics(
        self, inputs: Float[Array, "T D"], queries: Float[Array, "T Q"] | None = None
    ) -> tuple[Array, Array]:
        """Natural parameters of the factors of a sequence."""
        del queries
        return self._factors(self.memory.unroll(inputs))

    def scaled(self, first: Array, second: Array, scales: ConjugateScales) -> DiagonalGaussian:
        return self._belief(*self._totals((first, second), None, scales.forgetting), scales)

    def _factors(self, trace: Trace) -> tuple[Float[Array, "*lead F"], Float[Array, "*lead F"]]:
        """Natural parameters of the factors: precisions, and precisions times measurements."""
        precisions = jax.nn.softplus(self.precision_head(trace.hidden) + INITIAL_LOGIT)
        return precisions, precisions * trace.features

    def _totals(
        self,
        factors: tuple[Array, Array],
        resets: Bool[Array, " T"] | None,
        forgetting: float | Float[Array, ""],
    ) -> tuple[Array, Array]:
        """Sums of the factors up to each step, since the last reset and with forgetting."""
        if resets is None and isinstance(forgetting, float) and forgetting == 1:
            return jax.tree.map(lambda leaf: jnp.cumsum(leaf, axis=0), factors)
        steps = len(factors[0])
        kept = jnp.full(steps, forgetting, factors[0].dtype)
        kept = (kept if resets is None else jnp.where(resets, 0, kept))[:, None]

        def combine(early: tuple[Array, ...], late: tuple[Array, ...]) -> tuple[Array, ...]:
            kept, *sums = late
            # Selected, not multiplied by zero, so that a NaN ends at a reset.
            past = [jnp.where(kept == 0, 0, kept * total) for total in early[1:]]
            return kept * early[0], *(a + b for a, b in zip(past, sums, strict=True))

        _, precisions, weighted = jax.lax.associative_scan(combine, (kept, *factors))
        return precisions, weighted

    def _belief(
        self, precision: Float[Array, "*lead F"], weighted: Float[Array, "*lead F"], scales: ConjugateScales
    ) -> DiagonalGaussian:
        precision = precision + scales.prior_stddev**-2
        return DiagonalGaussian(weighted / precision, precision / scales.temperature)

    def cost(self, steps: int, batch: int = 1) -> Cost:
        h, f = self.memory.cell.hidden_size, self.memory.feature_size
        return unroll_cost(self.memory, steps, batch, h * f + 2 * f, 6 * f)
