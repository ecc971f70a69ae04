"""Readings of a belief: entropy, KL, and the predictive uncertainty of the agent's heads."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.gaussians.base import LOG_2PI
from recurrent_laplace.posterior import AbstractPosterior, predict_linearized

Policy = Callable[[Float[Array, " F"], Any], Any]
"""`policy(z, context)`: logits of shape `(K,)`, or mean and log-stddev of continuous actions, each `(A,)`."""
Value = Callable[[Float[Array, " F"], Any], Float[Array, ""]]
"""`value(z, context)`: a scalar."""
NOT_FINITE = "not finite"
"""Text in tables for NaN and infinity."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """Policy and value head of an agent; either may be missing."""

    policy: Policy | None = None
    value: Value | None = None


jax.tree_util.register_dataclass(Heads, data_fields=["policy", "value"], meta_fields=[])


@dataclasses.dataclass(frozen=True)
class Reading:
    """Summary statistics of a belief at one step, as returned by `rl.Monitor.step`.

    With several streams, all have a leading axis. Readings of a missing head are None.

    **Arguments:**

    - `entropy`: entropy of the belief, in nats.
    - `kl`: KL divergence from the previous belief (at first the prior), in nats.
    - `mahalanobis`: contribution of the change of the mean to `kl`.
    - `mean`, `stddev`: mean and standard deviation of each feature.
    - `step`: number of inputs since the last reset, including this one.
    - `value`, `value_stddev`: value at the mean, and its stddev under the belief with the head linearised.
    - `value_moved`: change of the value at this observation caused by the change of the belief.
    - `policy`, `policy_entropy`: output of the policy head at the mean, and its entropy.
    - `policy_disagreement`: mean KL of the policies at samples from the policy at the mean, in nats.
    - `policy_moved`: KL of the policy from the policy of the previous belief at this observation.
    - `surprise`: negative log-likelihood of what followed the last query, beyond its expectation, in nats: 0
      on average if predictions are right, and where nothing was predicted. None if no target was given.
    - `finite`: whether the input and all readings are finite.
    - `source`: hash of the posterior that was read.

    ```python
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(2, 4, key=jax.random.key(0))))
    reading = rl.Monitor(posterior).step(jnp.ones(2))
    reading.scalars()  # entropy, kl, mahalanobis, step
    ```
    """

    entropy: Float[Array, "*lead"]
    kl: Float[Array, "*lead"]
    mahalanobis: Float[Array, "*lead"]
    mean: Float[Array, "*lead F"]
    stddev: Float[Array, "*lead F"]
    step: Any
    value: Float[Array, "*lead"] | None = None
    value_stddev: Float[Array, "*lead"] | None = None
    value_moved: Float[Array, "*lead"] | None = None
    policy: Any = None
    policy_entropy: Float[Array, "*lead"] | None = None
    policy_disagreement: Float[Array, "*lead"] | None = None
    policy_moved: Float[Array, "*lead"] | None = None
    surprise: Float[Array, "*lead"] | None = None
    finite: Any = None
    source: str = ""

    def scalars(self) -> dict[str, Any]:
        """Readings with one number per step, by name, without missing ones."""
        return self._without("mean", "stddev", "policy", "finite", "source")

    def numbers(self) -> dict[str, Any]:
        """Readings that depend on the belief, by name, without missing ones: arrays or pairs of arrays."""
        return self._without("step", "finite", "source")

    def _without(self, *others: str) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in others and value is not None}


jax.tree_util.register_dataclass(
    Reading,
    data_fields=[field.name for field in dataclasses.fields(Reading) if field.name != "source"],
    meta_fields=["source"],
)


def read(
    belief: AbstractBelief,
    previous: AbstractBelief,
    step: Array,
    heads: Heads,
    context: Any,
    noise: Float[Array, "S F"],
) -> Reading:
    """Compute the reading of a belief, given the previous one; `noise` generates the samples."""
    predictive: dict[str, Any] = {}
    value, policy = heads.value, heads.policy
    if value is not None:
        linear = predict_linearized(lambda z: jnp.reshape(value(z, context), ()), belief)
        predictive |= {
            "value": linear.mean,
            "value_stddev": linear.stddev(),
            "value_moved": linear.mean - jnp.reshape(value(previous.mean, context), ()),
        }
    if policy is not None:
        at_mean = policy(belief.mean, context)
        at_samples = jax.vmap(lambda z: policy(z, context))(belief.perturb(noise))
        predictive |= {
            "policy": at_mean,
            "policy_entropy": policy_entropy(at_mean),
            "policy_disagreement": jnp.mean(jax.vmap(policy_kl, (0, None))(at_samples, at_mean)),
            "policy_moved": policy_kl(at_mean, policy(previous.mean, context)),
        }
    reading = Reading(
        entropy=belief.entropy(),
        kl=belief.kl(previous),
        mahalanobis=belief.mahalanobis(previous),
        mean=belief.mean,
        stddev=jnp.sqrt(belief.variance()),
        step=step,
        **predictive,
    )
    return dataclasses.replace(reading, finite=all_finite(reading.numbers()))


def read_sequence(
    posterior: AbstractPosterior,
    heads: Heads,
    inputs: Float[Array, "T D"],
    context: Any,
    noise: Float[Array, "S F"],
    queries: Float[Array, "T Q"] | None = None,
) -> tuple[Reading, AbstractBelief]:
    """Readings of a sequence, with a leading axis of time, and the beliefs."""
    beliefs = posterior.unroll(inputs, queries=queries)
    first = jax.tree.map(lambda leaf: leaf[None], posterior.prior())
    previous = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:-1]]), first, beliefs)
    steps = 1 + jnp.arange(len(inputs))
    read_all = jax.vmap(read, (0, 0, 0, None, 0, None))
    return read_all(beliefs, previous, steps, heads, context, noise), beliefs


def surprise(
    posterior: AbstractPosterior,
    previous: AbstractBelief,
    query: Float[Array, "*lead Q"],
    target: Float[Array, "*lead K"],
) -> Float[Array, "*lead"]:
    """Negative log-likelihood of a target under the belief before it, less its expectation.

    It is 0 where query or target have a NaN, and NaN for a target outside of the support.
    """
    known = jnp.isfinite(query).all(axis=-1) & ~jnp.isnan(target).any(axis=-1)
    query, target = (jnp.where(known[..., None], values, 0) for values in (query, target))
    predictive = posterior.predict(previous, query)
    expected = predictive.likelihood.entropy(predictive.outputs)[0]
    allowed = predictive.likelihood.allows(target)
    return jnp.where(known, jnp.where(allowed, -predictive.log_prob(target) - expected, jnp.nan), 0)


def policy_kl(first: Any, second: Any) -> Float[Array, ""]:
    """`KL(first || second)` of two policies, in nats."""
    if isinstance(first, tuple):
        (mean, log_stddev), (other_mean, other_log_stddev) = first, second
        ratio = jnp.exp(2 * (log_stddev - other_log_stddev))
        distance = ((mean - other_mean) * jnp.exp(-other_log_stddev)) ** 2
        return 0.5 * jnp.sum(ratio + distance - 1 - jnp.log(ratio))
    log_probs, other = jax.nn.log_softmax(first), jax.nn.log_softmax(second)
    return jnp.sum(jnp.exp(log_probs) * (log_probs - other))


def policy_entropy(policy: Any) -> Float[Array, ""]:
    """Entropy of a policy in nats."""
    if isinstance(policy, tuple):
        _, log_stddev = policy
        return jnp.sum(log_stddev) + 0.5 * log_stddev.size * (1 + LOG_2PI)
    log_probs = jax.nn.log_softmax(policy)
    return -jnp.sum(jnp.exp(log_probs) * log_probs)


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether all floating-point numbers in the arrays of a tree are finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def finite_or_none(queries: Float[Array, "*lead Q"]) -> Bool[Array, "*lead"]:
    """Whether queries are finite, or NaN throughout, which stands for none."""
    return jnp.all(jnp.isfinite(queries), axis=-1) | jnp.all(jnp.isnan(queries), axis=-1)


def check_heads(posterior: AbstractPosterior, heads: Heads, context: Any) -> None:
    """Raise if the outputs of the heads have wrong shapes."""
    z = jax.ShapeDtypeStruct((posterior.memory.feature_size,), posterior.memory.dtype)
    if heads.policy is not None:
        out = eqx.filter_eval_shape(heads.policy, z, context)
        parts = out if isinstance(out, tuple) else (out,)
        if len(parts) > 2 or any(getattr(part, "ndim", None) != 1 for part in parts):
            raise ValueError(
                "policy must return logits of shape (K,), or a pair of mean and log-stddev of shape (A,); "
                f"got {jax.tree.map(lambda leaf: leaf.shape, out)}."
            )
    if heads.value is not None:
        out = eqx.filter_eval_shape(heads.value, z, context)
        if getattr(out, "size", None) != 1:
            raise ValueError(f"value must return one number; got {jax.tree.map(jnp.shape, out)}.")
