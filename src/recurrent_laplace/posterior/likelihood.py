"""Laplace approximation over the features, with the curvature of a likelihood."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import select
from recurrent_laplace.errors import check_choice, check_number, check_shape, check_size
from recurrent_laplace.gaussians import AbstractBelief, DenseGaussian, DiagonalGaussian
from recurrent_laplace.posterior.accumulation import (
    HISTORY_CAPACITY,
    RunningSum,
    Window,
    accumulate,
    map_windows,
)
from recurrent_laplace.posterior.base import AbstractScaledPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost
from recurrent_laplace.posterior.inference import Inference
from recurrent_laplace.posterior.info import Info
from recurrent_laplace.posterior.precisions import beliefs_of
from recurrent_laplace.posterior.predictor import Predictive, Predictor, check_outputs
from recurrent_laplace.posterior.targets import AbstractLikelihood, check_targets


class LikelihoodScales(NamedTuple):
    """Numerical options of a likelihood posterior: floats, or traced arrays while they are fitted."""

    prior_stddev: float | Array
    noise_scale: float | Array
    forgetting: float | Array


class LikelihoodState(eqx.Module):
    """State of a likelihood posterior: the carry, and the running precision or the window of queries."""

    carry: Carry
    precision: RunningSum | None
    window: Window | None


def check_likelihood(
    *,
    covariance: Any = "dense",
    accumulate: Any = "precision",
    window: Any = 1,
    forgetting: Any = 1.0,
    prior_stddev: Any = 1.0,
    noise_scale: Any = 1.0,
) -> None:
    """Refuse invalid options of a `LikelihoodPosterior`; any subset can be checked."""
    check_choice("covariance", covariance, ("dense", "diagonal"))
    check_choice("accumulate", accumulate, ("none", "precision"))
    if window not in (None, "all"):
        check_size("window", window)
    if accumulate == "precision" and window != 1:
        raise ValueError(
            f"window must be 1 with accumulate='precision', so that each query counts once; got {window!r}. "
            "Use accumulate='none' with a longer window."
        )
    check_number("forgetting", forgetting, above=0, most=1)
    check_number("prior_stddev", prior_stddev, above=0)
    check_number("noise_scale", noise_scale, above=0)


class LikelihoodPosterior(AbstractScaledPosterior):
    """Laplace approximation over the features, with the curvature of the likelihood of a predictive head.

    The mean is the network's features. The precision is a sum over the queries that have been answered,

        Lambda_t = prior_stddev^-2 I + sum_i G_i^T S_i^-1 G_i,

    with the Jacobian `G_i` of the outputs of the head at query i with respect to z, and the Fisher
    information `S_i^-1` of its likelihood (Gauss-Newton). For a Gaussian likelihood and a head that is linear
    in z, this is the posterior precision of Bayesian linear regression.

    | `accumulate` | `window` | sum over | linearised at |
    |---|---|---|---|
    | `"precision"` | 1 | all queries, in constant memory | the features at which each query was answered |
    | `"none"` | W | the last W inputs | the newest features |
    | `"none"` | None | all queries | the newest features |

    `update` and `unroll` need the query that each input answers (`query=`, `queries=`; docs/notation.md).
    Gradients stop at curvatures, as in a `LaplacePosterior`.

    **Arguments:**

    - `memory`: the network, an `rl.Memory`.
    - `predictor`: the predictive head with its likelihood, an `rl.Predictor`.
    - `covariance`: `"dense"`, or `"diagonal"` to keep only the diagonal of the precision.
    - `accumulate`, `window`: the row of the table; `"all"` is None.
    - `forgetting`: g in (0, 1] of `Lambda_t = g Lambda_{t-1} + (1 - g) Lambda_0 + G_t^T S_t^-1 G_t`; below 1
      the belief can widen again. No effect with `accumulate="none"`.
    - `prior_stddev`: standard deviation of the belief before any input.
    - `noise_scale`: factor on the standard deviation of the noise of the likelihood, in curvatures and in
      predictions; the curvature of a likelihood without noise is divided by its square.

    ```python
    memory = rl.Memory(rl.GRU(2, 8, key=jax.random.key(0)))
    predictor = rl.Predictor(lambda z, x: z[:1] * x, rl.GaussianLikelihood(jnp.zeros(1)), context_size=1)
    posterior = rl.LikelihoodPosterior(memory, predictor)
    pairs = jnp.ones((5, 2))  # inputs are (x, y): each answers the query x
    beliefs = posterior.unroll(pairs, queries=pairs[:, :1])
    posterior.predict(beliefs[-1], jnp.array([2.0])).stddev()
    ```
    """

    memory: Memory
    predictor: Predictor
    covariance: str = eqx.field(static=True)
    accumulate: str = eqx.field(static=True)
    window: int | None = eqx.field(static=True)
    forgetting: float = eqx.field(static=True)
    prior_stddev: float = eqx.field(static=True)
    noise_scale: float = eqx.field(static=True)

    def __init__(
        self,
        memory: Memory,
        predictor: Predictor,
        *,
        covariance: Literal["dense", "diagonal"] = "dense",
        accumulate: Literal["none", "precision"] = "precision",
        window: int | Literal["all"] | None = 1,
        forgetting: float = 1.0,
        prior_stddev: float = 1.0,
        noise_scale: float = 1.0,
    ):
        check_likelihood(
            covariance=covariance,
            accumulate=accumulate,
            window=window,
            forgetting=forgetting,
            prior_stddev=prior_stddev,
            noise_scale=noise_scale,
        )
        if not isinstance(predictor, Predictor):
            raise ValueError(
                "predictor must be an rl.Predictor, a head with its likelihood; "
                f"got a {type(predictor).__name__}."
            )
        check_outputs(predictor, memory.feature_size, memory.dtype)
        self.memory = memory
        self.predictor = predictor
        self.covariance = covariance
        self.accumulate = accumulate
        self.window = None if window in (None, "all") else int(window)
        self.forgetting = float(forgetting)
        self.prior_stddev = float(prior_stddev)
        self.noise_scale = float(noise_scale)

    @property
    def effective_scales(self) -> tuple[str, ...]:
        scales = ("prior_stddev", "noise_scale")
        return (*scales, "forgetting") if self.accumulate == "precision" else scales

    @property
    def scales(self) -> LikelihoodScales:
        """Options that scale the precision and do not affect the mean or the curvature."""
        return LikelihoodScales(self.prior_stddev, self.noise_scale, self.forgetting)

    @property
    def query_size(self) -> int:
        return self.predictor.query_size

    @property
    def query_actions(self) -> int:
        return self.predictor.actions

    @property
    def covariance_has_gradient(self) -> bool:
        return False

    @property
    def mean_is_features(self) -> bool:
        return True

    @property
    def likelihood(self) -> AbstractLikelihood:
        return self.predictor.likelihood.with_noise(self.noise_scale)

    @property
    def grows(self) -> bool:
        return self.window is None

    def capacity(self, state: LikelihoodState) -> int | None:
        return state.window.size if self.grows and state.window is not None else None

    def with_room(self, state: LikelihoodState) -> LikelihoodState:
        window = state.window
        if not self.grows or window is None or jnp.max(window.count) < window.size:
            return state
        return LikelihoodState(state.carry, state.precision, window.doubled())

    def prior(self) -> DiagonalGaussian | DenseGaussian:
        mean = jnp.zeros(self.memory.feature_size, self.memory.dtype)
        if self._diagonal:
            return DiagonalGaussian(mean, self._isotropic(self.prior_stddev**-2))
        return DenseGaussian(mean, self._isotropic(1 / self.prior_stddev))

    def predict(
        self, belief: AbstractBelief, query: Array, *, samples: int = 0, key: Array | None = None
    ) -> Predictive:
        """Predictive distribution of the target of a query, as `rl.Predictor.predict`, with `noise_scale`."""
        return self.scaled_predictor(self.noise_scale).predict(belief, query, samples=samples, key=key)

    def scaled_predictor(self, noise_scale: float | Array) -> Predictor:
        """The predictor with the noise of its likelihood multiplied by `noise_scale`, which may be traced."""
        likelihood = self.predictor.likelihood.with_noise(noise_scale)
        return eqx.tree_at(lambda predictor: predictor.likelihood, self.predictor, likelihood)

    # Online

    def init(self, capacity: int | None = None) -> LikelihoodState:
        """State before any input.

        With an unlimited window, it has room for 64 inputs, or `capacity` of them. Outside of a compiled
        function `update` doubles the capacity when it is reached.
        """
        capacity = HISTORY_CAPACITY if capacity is None else capacity
        check_size("capacity", capacity)
        window = precision = None
        if self.accumulate == "precision":
            precision = self._prior_precision(self.scales)
        else:
            like = jax.ShapeDtypeStruct((self.query_size + 1,), self.memory.dtype)
            window = Window.start(self.window or capacity, like)
        return LikelihoodState(self.memory.init(), precision, window)

    def compute_step(
        self, state: LikelihoodState, x: Array, reset: Bool[Array, ""], query: Array | None = None
    ) -> tuple[LikelihoodState, Inference]:
        assert query is not None
        state = select(reset, self.init(self.capacity(state)), state)
        carry, projected = self.memory.consume(state.carry, x)
        trace = self.memory.trace(carry, projected)
        marked = self._marked(query)
        window, precision = state.window, state.precision
        if window is None:
            queries, valid = marked[None], jnp.ones(1, bool)
        else:
            window = (window.refuse_if_full() if self.grows else window).push(marked)
            queries, valid = window.projected, window.valid()
        terms = self._information(trace.features, queries, valid)[None]
        precision, precisions = self._precisions(precision, terms, None, self.scales)
        beliefs, added = beliefs_of(trace.features[None], precisions, diagonal=self._diagonal)
        info = Info.of(jnp.concatenate([x, marked]), beliefs[0], added[0])
        return LikelihoodState(carry, precision, window), Inference(beliefs[0], info, trace)

    # Whole sequences

    def compute(
        self,
        inputs: Float[Array, "T D"],
        resets: Bool[Array, " T"] | None,
        reuse: AbstractBelief | None,
        queries: Float[Array, "T Q"] | None = None,
    ) -> Inference:
        assert queries is not None
        trace = self.memory.unroll(inputs, resets)
        if reuse is not None:
            # Precisions have no gradient; only the means do.
            beliefs = eqx.tree_at(lambda belief: belief.mean, reuse, trace.features)
            return Inference(beliefs, self._info(inputs, queries, beliefs), trace)
        terms = self._terms(trace.features, queries, resets)
        beliefs, added = self._scaled(trace.features, terms, resets, self.scales)
        return Inference(beliefs, self._info(inputs, queries, beliefs, added), trace)

    def _info(
        self, inputs: Array, queries: Array, beliefs: AbstractBelief, added: Array | float = 0.0
    ) -> Info:
        return Info.of(jnp.concatenate([inputs, self._marked(queries)], axis=-1), beliefs, added)

    def _terms(self, features: Float[Array, "T F"], queries: Array, resets: Array | None) -> Array:
        """Information of the queries in the window of each step."""
        queries = self._marked(queries)
        if self.window == 1:
            valid = jnp.ones((len(features), 1), bool)
            return jax.vmap(self._information)(features, queries[:, None], valid)

        def of_window(step: Array, indices: Array, valid: Array) -> Array:
            return self._information(features[step], queries[indices], valid)

        return map_windows(of_window, len(features), self.window, resets)

    def statistics(
        self, inputs: Float[Array, "T D"], queries: Float[Array, "T Q"] | None = None
    ) -> tuple[Float[Array, "T F"], Array]:
        """Means and curvatures of a sequence, the latter with a noise scale of 1."""
        assert queries is not None
        features = self.memory.unroll(inputs).features
        return features, self._terms(features, queries, None)

    def scaled(
        self, first: Float[Array, "T F"], second: Array, scales: LikelihoodScales
    ) -> DiagonalGaussian | DenseGaussian:
        return self._scaled(first, second, None, scales)[0]

    def check_targets(self, targets: Float[Array | np.ndarray, "N T K"]) -> None:
        likelihood = self.predictor.likelihood
        check_shape("targets", targets, ("N", "T", likelihood.size))
        check_targets(likelihood, targets)

    def prediction_loss(
        self,
        beliefs: AbstractBelief,
        queries: Float[Array, "N T Q"] | None,
        targets: Float[Array, "N T K"] | None,
        scales: LikelihoodScales,
    ) -> Float[Array, ""]:
        """Mean negative log-likelihood of targets under linearised predictions of the beliefs before them.

        Queries and targets are those that each input answers; NaN where there is none.
        """
        assert queries is not None
        assert targets is not None
        query, target = queries[:, 1:], targets[:, 1:]
        known = jnp.all(jnp.isfinite(query), axis=-1) & jnp.all(jnp.isfinite(target), axis=-1)
        query, target = (jnp.where(known[..., None], array, 0) for array in (query, target))
        log_prob = self.scaled_predictor(scales.noise_scale).predict(beliefs[:, :-1], query).log_prob(target)
        return -jnp.sum(jnp.where(known, log_prob, 0)) / jnp.sum(known)

    def _scaled(
        self, means: Float[Array, "T F"], terms: Array, resets: Array | None, scales: LikelihoodScales
    ) -> tuple[DiagonalGaussian | DenseGaussian, Float[Array, " T"]]:
        _, precisions = self._precisions(self._prior_precision(scales), terms, resets, scales)
        return beliefs_of(means, precisions, diagonal=self._diagonal)

    # Shared by single steps and sequences

    def _marked(self, queries: Float[Array, "*lead Q"]) -> Float[Array, "*lead Q1"]:
        """Queries, zero instead of NaN where there is none, and a last entry of 1 where there is one."""
        asked = ~jnp.all(jnp.isnan(queries), axis=-1, keepdims=True)
        marked = jnp.concatenate([jnp.where(asked, queries, 0), asked], axis=-1)
        return marked.astype(self.memory.dtype)

    def _information(
        self, z: Float[Array, " F"], marked: Float[Array, "W Q1"], valid: Bool[Array, " W"]
    ) -> Array:
        """Sum of `G_i^T S_i^-1 G_i` at `z` over the valid queries that were asked."""
        predictor, z = jax.lax.stop_gradient((self.predictor, z))
        asked = valid & (marked[:, -1] > 0)

        def rows(query: Float[Array, " Q"]) -> Float[Array, "K F"]:
            outputs, pull_back = jax.vjp(lambda z: predictor(z, query), z)
            root = predictor.likelihood.fisher_root(outputs)
            return jax.vmap(pull_back)(root.T)[0]

        jacobians = jax.vmap(rows)(marked[:, :-1])
        jacobians = jnp.where(asked[:, None, None], jacobians, 0).reshape(-1, z.shape[-1])
        return jnp.sum(jacobians**2, axis=0) if self._diagonal else jacobians.T @ jacobians

    def _precisions(
        self, total: RunningSum | None, terms: Array, resets: Array | None, scales: LikelihoodScales
    ) -> tuple[RunningSum | None, Array]:
        """Precision after each of the consecutive steps with these terms, before they are scaled."""
        prior, terms = self._prior_precision(scales), terms / scales.noise_scale**2
        if self.accumulate == "none":
            return None, terms + prior.total
        assert total is not None
        return accumulate(total, prior, terms, resets, scales.forgetting)

    @property
    def _diagonal(self) -> bool:
        return self.covariance == "diagonal"

    def _isotropic(self, value: float | Array) -> Array:
        size, dtype = self.memory.feature_size, self.memory.dtype
        return jnp.full(size, value, dtype) if self._diagonal else value * jnp.eye(size, dtype=dtype)

    def _prior_precision(self, scales: LikelihoodScales) -> RunningSum:
        return RunningSum.start(self._isotropic(scales.prior_stddev**-2))

    def cost(self, steps: int, batch: int = 1) -> Cost:
        check_size("steps", steps)
        f, k = self.memory.feature_size, self.predictor.likelihood.size
        matrices = [leaf for leaf in jax.tree.leaves(self.predictor) if getattr(leaf, "ndim", 0) == 2]
        weights = sum(leaf.size for leaf in matrices)
        units = sum(leaf.shape[0] for leaf in matrices)
        width = (steps + 1) / 2 if self.window is None else min(self.window, steps)
        outer = f if self._diagonal else f * f
        # A pass forward, one back for each output, and the products of the rows.
        multiplications = width * ((1 + k) * weights + k * outer) + (0 if self._diagonal else f**3 // 3)
        longest = steps if self.window is None else min(self.window, steps)
        rows = longest * k * (units + f)
        # The queries of all steps are linearised together if each has a term of its own.
        together = steps if self.window == 1 else 1
        return unroll_cost(
            self.memory,
            steps,
            batch,
            int(multiplications),
            f if self._diagonal else f * f,
            int(together * rows + (0 if self._diagonal else 2 * f * f)),
        )
