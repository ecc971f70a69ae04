"""A belief pushed through a head: what the belief means for a prediction."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from recurrent_laplace.errors import check_size
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian

Head = Callable[[Float[Array, " F"]], Any]
"""From features of shape `(F,)` to the parameters of a prediction."""


def predict_average(head: Head, belief: AbstractBelief, *, samples: int, key: Array) -> PyTree[Array]:
    """The head's outputs averaged over draws from the belief (the paper's way).

    ```python
    logits = rl.predict_average(policy, belief, samples=10, key=key)  # (*leading, A)
    ```
    """
    outputs = predict_mixture(head, belief, samples=samples, key=key).components
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), outputs)


def predict_mixture(head: Head, belief: AbstractBelief, *, samples: int, key: Array) -> "Mixture":
    """The head's outputs on draws from the belief, as the components of an even mixture.

    ```python
    mixture = rl.predict_mixture(policy, belief, samples=10, key=key)
    mixture.log_prob(lambda logits: jax.nn.log_softmax(logits)[action])
    ```
    """
    check_size("samples", samples)
    return Mixture(_over_leading(head, 1 + len(belief.batch_shape))(belief.sample(key, (samples,))))


def predict_linearized(head: Head, belief: AbstractBelief) -> "Linearized":
    """Mean and covariance of the head's output, the head replaced by its tangent at the mean.

    Exact for an affine head. The output must be one vector of shape `(K,)`, or a scalar.

    ```python
    value = rl.predict_linearized(critic, belief)
    value.stddev()
    ```
    """

    def at(mean: Array) -> tuple[Array, Array]:
        out = head(mean)
        if not isinstance(out, jax.Array) or out.ndim > 1:
            raise ValueError(
                "head must return one array of shape (K,) or () to be linearised; "
                f"got {jax.tree.map(jnp.shape, out)}."
            )
        return out, jax.jacrev(head)(mean)

    mean, jacobian = _over_leading(at, len(belief.batch_shape))(belief.mean)
    scalar = jacobian.ndim == belief.mean.ndim
    jacobian = jacobian[..., None, :] if scalar else jacobian
    if isinstance(belief, AbstractGaussian):
        # d out = G S e for standard normal e.
        root = jacobian @ belief.covariance_root()
        covariance = root @ jnp.swapaxes(root, -1, -2)
    else:
        covariance = jnp.zeros((*jacobian.shape[:-1], jacobian.shape[-2]), mean.dtype)
    return Linearized(mean, covariance[..., 0, 0] if scalar else covariance)


class Mixture(eqx.Module):
    """Even mixture: each leaf of `components` has a leading axis of draws."""

    components: PyTree[Array]

    def log_prob(self, component_log_prob: Callable[[Any], Array]) -> Array:
        """Log-density of the mixture, given that of one component with all its leading axes."""
        log_probs = jax.vmap(component_log_prob)(self.components)
        return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(log_probs.shape[0])


class Linearized(eqx.Module):
    """Mean, of shape `(*leading, K)`, and covariance `(*leading, K, K)`; a scalar output has no K."""

    mean: Float[Array, "..."]
    covariance: Float[Array, "..."]

    def stddev(self) -> Float[Array, "..."]:
        """Standard deviation of each output."""
        if self.covariance.ndim == self.mean.ndim:
            return jnp.sqrt(self.covariance)
        return jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))


def _over_leading(function: Callable, axes: int) -> Callable:
    for _ in range(axes):
        function = jax.vmap(function)
    return function
