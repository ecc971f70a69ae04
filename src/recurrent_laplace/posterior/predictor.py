"""Predictive heads: what will be observed, from features, a query and possibly an action."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recurrent_laplace.errors import check_shape, check_size
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.posterior.predictive import predict_linearized
from recurrent_laplace.posterior.targets import AbstractLikelihood


class FunctionHead(eqx.Module):
    """Head that is a function, not a module: it has no weights to be learned or saved."""

    function: Callable[..., Any] = eqx.field(static=True)

    def __call__(self, z: Any, context: Any = None) -> Any:
        return self.function(z, context)


class Predictive(eqx.Module):
    """Predictive distribution of targets under a belief, the result of `rl.Predictor.predict`.

    **Arguments:**

    - `likelihood`: likelihood of the targets.
    - `outputs`: its parameters, with a leading axis of samples, over which the distribution is a mixture.

    ```python
    predictive = rl.Predictive(rl.BernoulliLikelihood(1), jnp.array([[-1.0], [1.0]]))
    predictive.mean(), predictive.log_prob(jnp.ones(1))  # 0.5, -log(2)
    ```
    """

    likelihood: AbstractLikelihood
    outputs: Float[Array, "S *lead K"]

    def mean(self) -> Float[Array, "*lead K"]:
        """Expected target."""
        return jnp.mean(self.likelihood.mean(self.outputs), axis=0)

    def variance(self) -> Float[Array, "*lead K"]:
        """Variance of each entry of the target: within samples, and between their means."""
        within = jnp.mean(self.likelihood.variance(self.outputs), axis=0)
        return within + jnp.var(self.likelihood.mean(self.outputs), axis=0)

    def stddev(self) -> Float[Array, "*lead K"]:
        """Standard deviation of each entry of the target."""
        return jnp.sqrt(self.variance())

    def log_prob(self, target: Float[Array, "*other K"]) -> Float[Array, "*out"]:
        """Log-probability, or log-density, of a target."""
        log_probs = self.likelihood.log_prob(self.outputs, target)
        return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(self.outputs.shape[0])


class Predictor(eqx.Module):
    """Predictive head with the likelihood of its targets: `p(target | z, query)`.

    A query is a vector: the context, such as an observation, followed by a one-hot action if there are
    discrete actions. The head then has the outputs of each action, of which the query selects one.

    **Arguments:**

    - `head`: `head(z, context)` returns the K outputs of the likelihood, or `actions` times K of them; an
      Equinox module or a function.
    - `likelihood`: likelihood of the targets.
    - `context_size`: length of the context. 0: the head's second argument is None.
    - `actions`: number of discrete actions, or 0.

    ```python
    predictor = rl.Predictor(lambda z, x: z[:1] * x, rl.GaussianLikelihood(jnp.zeros(1)), context_size=1)
    belief = rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4))
    predictor.predict(belief, jnp.array([2.0])).stddev()  # sqrt(1 + 2^2)
    ```
    """

    head: Any
    likelihood: AbstractLikelihood
    context_size: int = eqx.field(static=True)
    actions: int = eqx.field(static=True)

    def __init__(
        self,
        head: Callable[..., Any],
        likelihood: AbstractLikelihood,
        *,
        context_size: int = 0,
        actions: int = 0,
    ):
        check_predictor(likelihood, context_size=context_size, actions=actions)
        if not callable(head):
            raise ValueError(
                "head must be an Equinox module or a function of z and a context; "
                f"got a {type(head).__name__}."
            )
        self.head = head if isinstance(head, eqx.Module) else FunctionHead(head)
        self.likelihood = likelihood
        self.context_size = context_size
        self.actions = actions

    @property
    def query_size(self) -> int:
        """Length Q of a query."""
        return self.context_size + self.actions

    def query(
        self, context: Float[Array, "*lead C"] | None, action: Int[Array, "*lead"] | None = None
    ) -> Float[Array, "*lead Q"]:
        """Query of a context and a discrete action."""
        parts = [] if context is None else [context]
        if self.actions:
            assert action is not None
            dtype = None if context is None else context.dtype
            parts.append(jax.nn.one_hot(action, self.actions, dtype=dtype))
        return jnp.concatenate(parts, axis=-1)

    def __call__(self, z: Float[Array, "... F"], query: Float[Array, "... Q"]) -> Float[Array, "... K"]:
        """Outputs of the likelihood; leading axes broadcast."""
        context = query[..., : self.context_size] if self.context_size else None
        outputs = self.head(z, context)
        if not self.actions:
            return outputs
        of_actions = outputs.reshape(*outputs.shape[:-1], self.actions, self.likelihood.size)
        return jnp.einsum("...ak,...a->...k", of_actions, query[..., self.context_size :])

    def predict(
        self,
        belief: AbstractBelief,
        query: Float[Array, "*lead Q"],
        *,
        samples: int = 0,
        key: Array | None = None,
    ) -> Predictive:
        """Predictive distribution of the target of a query; `belief` and `query` share leading axes.

        Without samples, the head is linearised at the mean of the belief: the variance of the outputs is
        added to that of Gaussian targets, and divides logits by `sqrt(1 + pi/8 variance)`. With samples, it
        is the mixture of their likelihoods.

        **Arguments:** `belief`; `query`; `samples`, the number of samples, and their `key`.
        """
        check_shape("query", query, (*belief.batch_shape, self.query_size))
        check_size("samples", samples, least=0)
        if samples:
            if key is None:
                raise ValueError(f"key must be a JAX random key with samples={samples}; got None.")
            outputs = self._sampled(belief, query, samples, key)
            return Predictive(self.likelihood, outputs)
        mean, variance = self._linearized(belief, query)
        outputs, likelihood = self.likelihood.integrate(mean, variance)
        return Predictive(likelihood, outputs[None])

    def _sampled(self, belief: AbstractBelief, query: Array, samples: int, key: Array) -> Array:
        z = belief.sample(key, (samples,)) if isinstance(belief, AbstractGaussian) else belief.mean[None]
        return self(z, jnp.broadcast_to(query, (*z.shape[:-1], query.shape[-1])))

    def _linearized(self, belief: AbstractBelief, query: Array) -> tuple[Array, Array]:
        def of_one(belief: AbstractBelief, query: Array) -> tuple[Array, Array]:
            linear = predict_linearized(lambda z: self(z, query), belief)
            return linear.mean, linear.stddev() ** 2

        function = of_one
        for _ in belief.batch_shape:
            function = jax.vmap(function)
        return function(belief, query)


def check_predictor(likelihood: Any, *, context_size: Any, actions: Any) -> None:
    """Refuse a likelihood that is none, and invalid sizes."""
    if not isinstance(likelihood, AbstractLikelihood):
        raise ValueError(
            f"likelihood must be an AbstractLikelihood, such as rl.GaussianLikelihood or "
            f"rl.BernoulliLikelihood; got a {type(likelihood).__name__}."
        )
    check_size("context_size", context_size, least=0)
    check_size("actions", actions, least=0)


def check_outputs(predictor: Predictor, feature_size: int, dtype: Any) -> None:
    """Refuse a head whose inputs or outputs do not fit, by tracing it."""
    z = jax.ShapeDtypeStruct((feature_size,), dtype)
    expected = (max(predictor.actions, 1) * predictor.likelihood.size,)
    context = jax.ShapeDtypeStruct((predictor.context_size,), dtype) if predictor.context_size else None
    try:
        outputs = eqx.filter_eval_shape(predictor.head, z, context)
    except (TypeError, ValueError) as problem:
        reason = str(problem).partition("\n")[0].rstrip(".")
        raise ValueError(
            f"head must take {feature_size} features and a context of length {predictor.context_size}; "
            f"it fails: {reason}."
        ) from None
    if getattr(outputs, "shape", None) != expected:
        raise ValueError(
            f"head must return outputs of shape {expected}, those of its likelihood"
            f"{' for each action' if predictor.actions else ''}; got {jax.tree.map(jnp.shape, outputs)}."
        )
