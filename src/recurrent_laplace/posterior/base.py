"""Interface of posteriors: from the inputs of a memory to beliefs over its features."""

import abc
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from recurrent_laplace.cells import Memory
from recurrent_laplace.cells.base import Carry
from recurrent_laplace.cells.memory import Trace, select
from recurrent_laplace.errors import check_shape
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.posterior.cost import Cost
from recurrent_laplace.posterior.inference import Inference
from recurrent_laplace.posterior.info import Info
from recurrent_laplace.posterior.predictor import Predictive
from recurrent_laplace.posterior.targets import AbstractLikelihood

State = Any


class AbstractPosterior(eqx.Module):
    """Interface of a posterior over the features of a memory, given the inputs so far.

    Callers use `update` for one input and `unroll` for a sequence, which agree. `infer_step` and `infer`
    return diagnostics and the memory's trace too (an `Inference`). All four check shapes and are compiled. A
    subclass has a field `memory`, implements `prior`, `init`, `compute_step`, `compute` and `cost`, and
    overrides the capabilities, such as `has_density` and `grows`, where their defaults do not hold;
    `examples/add_a_posterior.py` is a complete one.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(3, 8, key=jax.random.key(0))))
    state, belief = posterior.update(posterior.init(), jnp.ones(3))
    beliefs = posterior.unroll(jnp.ones((5, 3)))
    posterior.consecutive_kl(beliefs)  # (5,)
    ```
    """

    memory: eqx.AbstractVar[Memory]

    # Capabilities

    @property
    def has_density(self) -> bool:
        """Whether beliefs have a density, and so an entropy and divergences; point beliefs do not."""
        return True

    @property
    def covariance_has_gradient(self) -> bool:
        """Whether the covariances of beliefs have gradients; if not, only the means have."""
        return True

    @property
    def grows(self) -> bool:
        """Whether a state stores every input, so that `capacity` and `with_room` apply."""
        return False

    @property
    def query_size(self) -> int | None:
        """Length Q of the queries that `update` and `unroll` need, or None if they take none.

        If not None, `compute_step` and `compute` have the queries as their last argument.
        """
        return None

    @property
    def query_actions(self) -> int:
        """Number of discrete actions, one-hot at the end of a query; 0 for none."""
        return 0

    @property
    def is_clock(self) -> bool:
        """Whether covariances depend on the number of inputs alone."""
        return False

    @property
    def mean_is_features(self) -> bool:
        """Whether the means of beliefs are the memory's features, as those of a plain RNN."""
        return False

    @property
    def likelihood(self) -> AbstractLikelihood | None:
        """Likelihood of the targets of `predict`, or None if the posterior predicts none."""
        return None

    def capacity(self, state: State) -> int | None:
        """Number of inputs that `state` has room for, or None if states do not grow.

        `state` may have leading axes, here and in `with_room`.
        """
        return None

    def with_room(self, state: State) -> State:
        """Grow `state` if it is full. Never traced, since shapes may change."""
        return state

    # To be implemented by subclasses

    @abc.abstractmethod
    def prior(self) -> AbstractBelief:
        """Belief q_0 before any input."""

    @abc.abstractmethod
    def init(self, capacity: int | None = None) -> State:
        """State before any input, with room for `capacity` inputs if states grow."""

    @abc.abstractmethod
    def compute_step(self, state: State, x: Array, reset: Bool[Array, ""]) -> tuple[State, Inference]:
        """Implement `infer_step`: traced, with checked arguments."""

    @abc.abstractmethod
    def compute(
        self, inputs: Float[Array, "T D"], resets: Bool[Array, " T"] | None, reuse: AbstractBelief | None
    ) -> Inference:
        """Implement `infer`: traced, with checked arguments. It may ignore `reuse`, which only saves time."""

    @abc.abstractmethod
    def cost(self, steps: int, batch: int = 1) -> Cost:
        """Estimated cost of `unroll` for `batch` sequences of `steps` inputs."""

    # To be called

    def update(
        self, state: State, x: Array, reset: Bool[Array, ""] | bool = False, *, query: Array | None = None
    ) -> tuple[State, AbstractBelief]:
        """Consume one input of shape `(D,)`; `reset` returns to the initial state first.

        `query`, of shape `(Q,)`, is the query that this input answers, if the posterior needs it
        (`query_size`): where an output was observed, or the previous observation and action. NaN stands for
        none, as at the first input of an episode.
        """
        state, inference = self.infer_step(state, x, reset, query=query)
        return state, inference.belief

    def unroll(
        self, inputs: Array, resets: Array | None = None, *, queries: Array | None = None
    ) -> AbstractBelief:
        """Consume inputs of shape `(T, D)` and return the belief after each, with a leading time axis.

        `resets` are booleans of shape `(T,)`; a reset applies before the input of its step. `queries`, of
        shape `(T, Q)`, are those of `update`.
        """
        return self.infer(inputs, resets, queries=queries).belief

    def infer_step(
        self, state: State, x: Array, reset: Bool[Array, ""] | bool = False, *, query: Array | None = None
    ) -> tuple[State, Inference]:
        """Consume one input like `update`, and return diagnostics and the memory's trace with the belief."""
        check_shape("x", x, (self.memory.input_size or "D",))
        self._check_queries("query", query, ())
        if self.grows and not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
            state = self.with_room(state)
        return _compiled_step(self, state, x, reset, query)

    def infer(
        self,
        inputs: Array,
        resets: Array | None = None,
        reuse: AbstractBelief | None = None,
        *,
        queries: Array | None = None,
    ) -> Inference:
        """Consume inputs like `unroll`, and return diagnostics and the memory's trace with the beliefs.

        `reuse`: beliefs already computed for the same inputs and weights, for example in a rollout. Their
        costly parts are not computed again; values and gradients are the same.
        """
        check_shape("inputs", inputs, ("T", self.memory.input_size or "D"))
        if inputs.shape[0] == 0:
            raise ValueError("inputs must hold at least one step; got none.")
        if resets is not None:
            check_shape("resets", resets, (inputs.shape[0],))
        if reuse is not None:
            check_shape("reuse.mean", reuse.mean, (inputs.shape[0], self.memory.feature_size))
        self._check_queries("queries", queries, inputs.shape[:1])
        return _compiled(self, inputs, resets, jax.lax.stop_gradient(reuse), queries)

    def _check_queries(self, name: str, queries: Array | None, lead: tuple[int, ...]) -> None:
        """Raise if queries are missing, not needed, or of another shape."""
        kind = type(self).__name__
        if self.query_size is None:
            if queries is not None:
                raise ValueError(f"{name} must be left out, since a {kind} takes none; got an array.")
        elif queries is None:
            raise ValueError(
                f"{name} must be given to a {kind}: what each input answers, with {self.query_size} entries; "
                "NaN where it answers nothing, as at the first of an episode."
            )
        else:
            check_shape(name, queries, (*lead, self.query_size))

    def predict(
        self, belief: AbstractBelief, query: Array, *, samples: int = 0, key: Array | None = None
    ) -> Predictive:
        """Predictive distribution of the target of a query; raises if the posterior predicts none."""
        raise ValueError(f"a {type(self).__name__} predicts no targets: use an rl.LikelihoodPosterior.")

    def consecutive_kl(self, beliefs: AbstractBelief, resets: Array | None = None) -> Float[Array, " T"]:
        """KL divergences between consecutive beliefs, `KL(q_t || stop(q_{t-1}))` for t = 1 .. T.

        The prior takes the place of q_{t-1} at t = 1 and at resets.
        """
        return beliefs.kl(self.previous_beliefs(beliefs, resets))

    def previous_beliefs(self, beliefs: AbstractBelief, resets: Array | None = None) -> AbstractBelief:
        """Beliefs q_0 .. q_{T-1} before those of `beliefs`, without gradients.

        The prior q_0 comes first, and at resets.
        """
        check_shape("beliefs.mean", beliefs.mean, ("T", self.memory.feature_size))
        first = jax.tree.map(lambda leaf: leaf[None], self.prior())
        previous = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:-1]]), first, beliefs)
        if resets is not None:
            check_shape("resets", resets, (len(beliefs),))
            previous = jax.vmap(select)(
                resets, jax.tree.map(lambda a: jnp.repeat(a, len(beliefs), 0), first), previous
            )
        return jax.lax.stop_gradient(previous)

    # Deprecated names

    def update_info(
        self, state: State, x: Array, reset: Bool[Array, ""] | bool = False
    ) -> tuple[State, AbstractBelief, Info]:
        """Deprecated: use `infer_step`."""
        warn_deprecated("update_info", "infer_step(state, x, reset)")
        state, inference = self.infer_step(state, x, reset)
        return state, inference.belief, inference.info

    def unroll_info(self, inputs: Array, resets: Array | None = None) -> tuple[AbstractBelief, Info]:
        """Deprecated: use `infer`."""
        warn_deprecated("unroll_info", "infer(inputs, resets)")
        inference = self.infer(inputs, resets)
        return inference.belief, inference.info

    def unroll_trace(self, inputs: Array, resets: Array | None = None) -> tuple[Trace, AbstractBelief, Info]:
        """Deprecated: use `infer`."""
        warn_deprecated("unroll_trace", "infer(inputs, resets)")
        inference = self.infer(inputs, resets)
        return inference.trace, inference.belief, inference.info

    def unroll_again(self, inputs: Array, known: AbstractBelief) -> tuple[Trace, AbstractBelief, Info]:
        """Deprecated: use `infer` with `reuse`."""
        warn_deprecated("unroll_again", "infer(inputs, reuse=known)")
        inference = self.infer(inputs, reuse=known)
        return inference.trace, inference.belief, inference.info


def warn_deprecated(old: str, new: str) -> None:
    """Warn the caller of a deprecated method."""
    # Equinox wraps every method in a frame of its own.
    warnings.warn(f"posterior.{old} is deprecated: use posterior.{new}.", DeprecationWarning, stacklevel=4)


# Compiled once per shape, so that calls outside of a user's own `jit` are fast too.


@jax.jit
def _compiled_step(
    posterior: AbstractPosterior, state: State, x: Array, reset: Array | bool, query: Array | None
) -> tuple[State, Inference]:
    return posterior.compute_step(state, x, jnp.asarray(reset), *_if_given(query))


@jax.jit
def _compiled(
    posterior: AbstractPosterior,
    inputs: Array,
    resets: Array | None,
    reuse: AbstractBelief | None,
    queries: Array | None,
) -> Inference:
    return posterior.compute(inputs, resets, reuse, *_if_given(queries))


def _if_given(queries: Array | None) -> tuple[Array, ...]:
    return () if queries is None else (queries,)


class AbstractReadPosterior(AbstractPosterior):
    """Interface of a posterior that depends on the current hidden state only; its state is the carry."""

    @abc.abstractmethod
    def read(self, h: Float[Array, "*lead H"]) -> AbstractBelief:
        """Belief at hidden states `h`."""

    def read_again(self, h: Float[Array, "*lead H"], reuse: AbstractBelief) -> AbstractBelief:
        """Compute `read` when the values of the beliefs are known and only gradients are needed."""
        return self.read(h)

    def init(self, capacity: int | None = None) -> Carry:
        return self.memory.init()

    def carry(self, state: Carry) -> Carry:
        """Deprecated: use the trace of `infer_step`."""
        warn_deprecated("carry", "infer_step(state, x, reset)[1].trace")
        return state

    def compute_step(self, state: Carry, x: Array, reset: Bool[Array, ""]) -> tuple[Carry, Inference]:
        state, projected = self.memory.consume(select(reset, self.init(), state), x)
        trace = self.memory.trace(state, projected)
        belief = self.read(trace.hidden)
        return state, Inference(belief, Info.of(x, belief), trace)

    def compute(
        self, inputs: Float[Array, "T D"], resets: Bool[Array, " T"] | None, reuse: AbstractBelief | None
    ) -> Inference:
        trace = self.memory.unroll(inputs, resets)
        beliefs = self.read(trace.hidden) if reuse is None else self.read_again(trace.hidden, reuse)
        return Inference(beliefs, Info.of(inputs, beliefs), trace)


class AbstractScaledPosterior(AbstractPosterior):
    """Interface of a posterior with numerical options that `rl.calibrate` can fit.

    `unroll` has two parts: `statistics`, which does not depend on these options, and `scaled`.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(3, 8, key=jax.random.key(0))))
    posterior.effective_scales  # ("prior_stddev", "temperature", "forgetting")
    posterior.scaled(*posterior.statistics(jnp.ones((5, 3))), posterior.scales)  # posterior.unroll(...)
    ```
    """

    @property
    @abc.abstractmethod
    def effective_scales(self) -> tuple[str, ...]:
        """Names of the options that have an effect."""

    @property
    @abc.abstractmethod
    def scales(self) -> Any:
        """Values of the options, as a named tuple."""

    @abc.abstractmethod
    def statistics(
        self, inputs: Float[Array, "T D"], queries: Float[Array, "T Q"] | None = None
    ) -> tuple[Array, Array]:
        """Part of `unroll` that does not depend on the options."""

    @abc.abstractmethod
    def scaled(self, first: Array, second: Array, scales: Any) -> AbstractGaussian:
        """Beliefs of `unroll` from its two `statistics`, with these options, which may be traced."""

    def check_targets(self, targets: Float[Array | np.ndarray, "N T K"]) -> None:
        """Refuse targets that `prediction_loss` cannot take; called before it, outside of traced code."""
        del targets

    def prediction_loss(
        self, beliefs: AbstractBelief, queries: Array | None, targets: Array | None, scales: Any
    ) -> Float[Array, ""]:
        """Mean negative log-likelihood of predicted targets; raises if the posterior predicts none."""
        raise ValueError(f"loss must be given, since a {type(self).__name__} predicts no targets; got None.")
