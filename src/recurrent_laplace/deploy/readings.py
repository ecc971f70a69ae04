"""What can be read off a belief, and off what it means for the agent's heads."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.gaussians.base import LOG_2PI
from recurrent_laplace.posterior import AbstractPosterior, predict_linearized

Policy = Callable[[Float[Array, " F"], Any], Any]
"""`policy(z, seen)`: logits of shape `(K,)`, or mean and log-stddev of continuous actions, each `(A,)`."""
Value = Callable[[Float[Array, " F"], Any], Float[Array, ""]]
"""`value(z, seen)`: a scalar."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """What an agent does with its belief; either may be missing."""

    policy: Policy | None = None
    value: Value | None = None


jax.tree_util.register_dataclass(Heads, data_fields=["policy", "value"], meta_fields=[])


@dataclasses.dataclass(frozen=True)
class Reading:
    """The belief of one step, in numbers. With several streams, all have a leading axis of streams.

    - `entropy` of the belief, in nats; `kl` from the belief one step before (the prior, at first), and
      `mahalanobis`, the part of it that the mean's jump causes;
    - `mean` and `stddev` of each feature;
    - `step`: inputs since the last reset, this one included;
    - with a value head: `value` at the mean; `value_stddev` under the belief, the head linearised;
      `value_moved`, how much the value *at this observation* changed because the belief did;
    - with a policy head: `policy`, its output at the mean, and `policy_entropy`, its entropy;
      `policy_disagreement`, the mean KL in nats of draws' policies from the policy at the mean;
      `policy_moved`, the KL of the policy at this observation from the one that the previous belief
      would have had there.
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
    source: str = ""
    """Identity of the posterior that was read."""

    def scalars(self) -> dict[str, Any]:
        """The numbers that have one value a step, by name; those that are missing are left out."""
        names = [field.name for field in dataclasses.fields(self)]
        vectors = ("mean", "stddev", "policy", "source")
        return {
            name: getattr(self, name)
            for name in names
            if name not in vectors and getattr(self, name) is not None
        }


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
    seen: Any,
    noise: Float[Array, "S F"],
) -> Reading:
    """The reading of one belief after another; `noise` makes the draws."""
    reading: dict[str, Any] = {}
    value, policy = heads.value, heads.policy
    if value is not None:
        linear = predict_linearized(lambda z: jnp.reshape(value(z, seen), ()), belief)
        reading |= {
            "value": linear.mean,
            "value_stddev": linear.stddev(),
            "value_moved": linear.mean - jnp.reshape(value(previous.mean, seen), ()),
        }
    if policy is not None:
        now = policy(belief.mean, seen)
        draws = jax.vmap(lambda z: policy(z, seen))(belief.perturb(noise))
        reading |= {
            "policy": now,
            "policy_entropy": policy_entropy(now),
            "policy_disagreement": jnp.mean(jax.vmap(policy_kl, (0, None))(draws, now)),
            "policy_moved": policy_kl(now, policy(previous.mean, seen)),
        }
    return Reading(
        entropy=belief.entropy(),
        kl=belief.kl(previous),
        mahalanobis=belief.mahalanobis(previous),
        mean=belief.mean,
        stddev=jnp.sqrt(belief.variance()),
        step=step,
        **reading,
    )


def read_sequence(
    posterior: AbstractPosterior,
    heads: Heads,
    inputs: Float[Array, "T D"],
    seen: Any,
    noise: Float[Array, "S F"],
) -> tuple[Reading, AbstractBelief]:
    """The readings of a whole sequence, with a leading axis of time, and the beliefs that were read."""
    beliefs = posterior.unroll(inputs)
    first = jax.tree.map(lambda leaf: leaf[None], posterior.prior())
    previous = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:-1]]), first, beliefs)
    steps = 1 + jnp.arange(len(inputs))
    of_step = lambda b, p, t, s: read(b, p, t, heads, s, noise)  # noqa: E731
    return jax.vmap(of_step)(beliefs, previous, steps, seen), beliefs


def policy_kl(first: Any, second: Any) -> Float[Array, ""]:
    """`KL(first || second)` of two policies, by their logits or by their mean and log-stddev."""
    if isinstance(first, tuple):
        (mean, log_stddev), (other_mean, other_log_stddev) = first, second
        ratio = jnp.exp(2 * (log_stddev - other_log_stddev))
        apart = ((mean - other_mean) * jnp.exp(-other_log_stddev)) ** 2
        return 0.5 * jnp.sum(ratio + apart - 1 - jnp.log(ratio))
    log_probs, other = jax.nn.log_softmax(first), jax.nn.log_softmax(second)
    return jnp.sum(jnp.exp(log_probs) * (log_probs - other))


def policy_entropy(policy: Any) -> Float[Array, ""]:
    """Entropy of a policy in nats."""
    if isinstance(policy, tuple):
        _, log_stddev = policy
        return jnp.sum(log_stddev) + 0.5 * log_stddev.size * (1 + LOG_2PI)
    log_probs = jax.nn.log_softmax(policy)
    return -jnp.sum(jnp.exp(log_probs) * log_probs)


def check_heads(posterior: AbstractPosterior, heads: Heads, seen: Any) -> None:
    """Refuse heads that do not fit the belief."""
    z = jax.ShapeDtypeStruct((posterior.memory.feature_size,), posterior.memory.dtype)
    if heads.policy is not None:
        out = eqx.filter_eval_shape(heads.policy, z, seen)
        parts = out if isinstance(out, tuple) else (out,)
        if len(parts) > 2 or any(getattr(part, "ndim", None) != 1 for part in parts):
            raise ValueError(
                "policy must return logits of shape (K,), or a pair of mean and log-stddev of shape (A,); "
                f"got {jax.tree.map(lambda leaf: leaf.shape, out)}."
            )
    if heads.value is not None:
        out = eqx.filter_eval_shape(heads.value, z, seen)
        if getattr(out, "size", None) != 1:
            raise ValueError(f"value must return one number; got {jax.tree.map(jnp.shape, out)}.")
