"""Belief terms of the objectives: samples, the consecutive KL, entropy."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.learning.options import SharedOptions
from recurrent_laplace.posterior import AbstractPosterior, Info

MATRICES_PER_CHUNK = 200
"""Covariance matrices per chunk of the consecutive KL."""

KL_VARIANCE = "kl_variance"
"""Metric that `with_standard_error` replaces."""


def sample_belief(
    belief: AbstractBelief, samples: int, *, key: Array, noise: Float[Array, "S *lead F"] | None = None
) -> Float[Array, "S *lead F"]:
    """Samples of a belief; a single one of a point belief.

    `noise` are the standard normal numbers of `key`, if already sampled.
    """
    if samples == 0 or not isinstance(belief, AbstractGaussian):
        return belief.mean[None]
    return belief.sample(key, (samples,)) if noise is None else belief.perturb(noise)


def sampling_noise(
    posterior: AbstractPosterior, samples: int, lead: tuple[int, ...], *, key: Array
) -> Float[Array, "S *lead F"]:
    """Noise that `sample_belief` makes of `key` for a posterior's beliefs with leading axes `lead`."""
    samples = samples if posterior.has_density else 1
    memory = posterior.memory
    return jax.random.normal(key, (samples, *lead, memory.feature_size), memory.dtype)


class BeliefTerms(eqx.Module):
    """Consecutive KL and entropy, averaged over tasks and steps, and whether all beliefs are finite.

    A point belief has neither KL nor entropy: both are None. `kl_variance` is that of the mean over a batch
    that `kl` estimates, or None if `kl` is exact.
    """

    kl: Float[Array, ""] | None
    kl_variance: Float[Array, ""] | None
    entropy: Float[Array, ""] | None
    finite: Bool[Array, ""]

    @classmethod
    def of(
        cls, posterior: AbstractPosterior, beliefs: AbstractBelief, info: Info, options: SharedOptions
    ) -> "BeliefTerms":
        """Terms of beliefs with leading axes of tasks and time: those of a batch, or of some of its tasks."""
        finite = jnp.all(info.finite_belief)
        if not isinstance(beliefs, AbstractGaussian):
            return cls(None, None, None, finite)
        entropy = jnp.mean(jax.lax.stop_gradient(beliefs).entropy())
        if posterior.covariance_has_gradient:
            kl = jnp.mean(_over_tasks(posterior.consecutive_kl, beliefs))
            return cls(kl, None, entropy, finite)
        kl, task_variance = _kl_of_constant_covariances(posterior, beliefs, options.kl_fraction)
        variance = None if task_variance is None else task_variance / options.batch
        return cls(kl, variance, entropy, finite)

    def penalty(self, beta: float) -> Float[Array, ""] | float:
        """Weighted KL, the term of the loss."""
        return 0.0 if self.kl is None else beta * self.kl

    def metrics(self) -> dict[str, Array]:
        """Metrics to log, before `with_standard_error`; NaN for a missing term."""
        terms = {"kl": self.kl, "entropy": self.entropy}
        metrics = {name: jnp.full((), jnp.nan) if term is None else term for name, term in terms.items()}
        return metrics if self.kl_variance is None else metrics | {KL_VARIANCE: self.kl_variance}


def with_standard_error(metrics: dict[str, Array]) -> dict[str, Array]:
    """Replace the variance of an estimated KL, a mean over chunks and minibatches, by its standard error."""
    if KL_VARIANCE not in metrics:
        return metrics
    others = {name: metric for name, metric in metrics.items() if name != KL_VARIANCE}
    return others | {"kl_standard_error": jnp.sqrt(metrics[KL_VARIANCE])}


def consecutive_mahalanobis(posterior: AbstractPosterior, beliefs: AbstractGaussian) -> Float[Array, " T"]:
    """Mahalanobis terms of `posterior.consecutive_kl(beliefs)`."""
    past = jax.lax.stop_gradient(beliefs)
    first = beliefs[:1].mahalanobis(posterior.prior())
    # The means are shifted by one step, not the matrices, which would be copied.
    following = jnp.concatenate([beliefs.mean[1:], past.mean[-1:]])
    later = 0.5 * jnp.sum(past.whiten(following - past.mean) ** 2, axis=-1)
    return jnp.concatenate([first, later[:-1]])


def _kl_of_constant_covariances(
    posterior: AbstractPosterior, beliefs: AbstractGaussian, fraction: float
) -> tuple[Float[Array, ""], Float[Array, ""] | None]:
    """Mean consecutive KL of beliefs whose means alone have gradients.

    The part that depends on the covariances has no gradient. It may be taken from a `fraction` of the tasks,
    at least two; then the second value is the variance of a task's contribution to the error.
    """
    tasks = len(beliefs)
    count = min(max(math.ceil(fraction * tasks), 2), tasks)

    def covariance_kl(beliefs: AbstractGaussian) -> Float[Array, " T"]:
        return beliefs.covariance_kl(posterior.previous_beliefs(beliefs))

    mahalanobis = jax.vmap(lambda beliefs: consecutive_mahalanobis(posterior, beliefs))(beliefs)
    of_task = jnp.mean(_over_tasks(covariance_kl, jax.lax.stop_gradient(beliefs[:count])), axis=-1)
    kl = jnp.mean(mahalanobis) + jnp.mean(of_task)
    if count == tasks:
        return kl, None
    # Sampled without replacement: the error vanishes as the sample approaches all tasks.
    return kl, jnp.var(of_task, ddof=1) * (tasks / count - 1)


def _over_tasks(
    function: Callable[[AbstractGaussian], Float[Array, " T"]], beliefs: AbstractGaussian
) -> Float[Array, "B T"]:
    if beliefs.is_diagonal:
        return jax.vmap(function)(beliefs)
    # Matrices of all tasks at once would fall out of the cache, and several copies of them out of memory.
    _, steps = beliefs.batch_shape
    # A lambda, since `checkpoint` hashes what it is given: a method would hash the weights of its module.
    of_task = jax.checkpoint(lambda beliefs: function(beliefs))
    return jax.lax.map(of_task, beliefs, batch_size=max(MATRICES_PER_CHUNK // steps, 1))
