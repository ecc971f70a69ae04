"""What both objectives ask of beliefs."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.posterior import AbstractPosterior, Info, PointPosterior

MATRICES_TOGETHER = 200
"""Covariances whose KL is worked on together."""


def draw(
    belief: AbstractBelief, samples: int, *, key: Array, noise: Float[Array, "S *lead F"] | None = None
) -> Float[Array, "S *lead F"]:
    """Draws from a belief; one is as good as many where all mass is at a point.

    `noise`: what `key` stands for, where it is made already.
    """
    if noise is not None:
        return belief.perturb(noise)
    return belief.sample(key, (samples if isinstance(belief, AbstractGaussian) else 1,))


def noise_of(
    posterior: AbstractPosterior, samples: int, lead: tuple[int, ...], *, key: Array
) -> Float[Array, "S *lead F"]:
    """The noise that `draw` makes of a key for a posterior's beliefs with leading axes `lead`."""
    samples = 1 if isinstance(posterior, PointPosterior) else samples
    memory = posterior.memory
    return jax.random.normal(key, (samples, *lead, memory.feature_size), memory.dtype)


def _consecutive_kl(posterior: AbstractPosterior, beliefs: AbstractGaussian) -> Float[Array, "B T"]:
    if beliefs.is_diagonal:
        return jax.vmap(posterior.consecutive_kl)(beliefs)
    # Matrices of all tasks at once would fall out of the cache, and several copies of them out of memory.
    _, steps = beliefs.batch_shape
    of_task = jax.checkpoint(lambda beliefs: posterior.consecutive_kl(beliefs))
    return jax.lax.map(of_task, beliefs, batch_size=max(MATRICES_TOGETHER // steps, 1))


class BeliefTerms(eqx.Module):
    """Means over tasks and steps: consecutive KL and entropy (None: a point has none); all finite?"""

    kl: Float[Array, ""] | None
    entropy: Float[Array, ""] | None
    finite: Bool[Array, ""]

    @classmethod
    def of(cls, posterior: AbstractPosterior, beliefs: AbstractBelief, info: Info) -> "BeliefTerms":
        """Of beliefs with leading axes of tasks and time."""
        finite = jnp.all(info.finite_belief)
        if not isinstance(beliefs, AbstractGaussian):
            return cls(None, None, finite)
        kl = jnp.mean(_consecutive_kl(posterior, beliefs))
        return cls(kl, jnp.mean(jax.lax.stop_gradient(beliefs).entropy()), finite)

    def penalty(self, beta: float) -> Float[Array, ""] | float:
        """The KL's part of the loss."""
        return 0.0 if self.kl is None else beta * self.kl

    def metrics(self) -> dict[str, Array]:
        """For the log: NaN stands for what has no value."""
        nothing = jnp.full((), jnp.nan)
        return {
            "kl": nothing if self.kl is None else self.kl,
            "entropy": nothing if self.entropy is None else self.entropy,
        }
