"""Predictive distributions: a head applied to a belief."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from recurrent_laplace.errors import check_size
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian

Head = Callable[[Float[Array, " F"]], Any]
"""Function from features of shape `(F,)` to the parameters of a prediction."""


def predict_average(head: Head, belief: AbstractBelief, *, samples: int, key: Array) -> PyTree[Array]:
    """Average of the head's outputs over samples from the belief, as in the paper.

    **Arguments:** `head`, a function from features `(F,)` to any pytree; `belief`, with any leading axes;
    `samples`, the number of samples; `key`, a random key.

    ```python
    belief = rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4))
    rl.predict_average(lambda z: z[:2], belief, samples=10, key=jax.random.key(0))  # (2,)
    ```
    """
    outputs = predict_mixture(head, belief, samples=samples, key=key).components
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), outputs)


def predict_mixture(head: Head, belief: AbstractBelief, *, samples: int, key: Array) -> "Mixture":
    """Uniform mixture of the head's outputs on samples from the belief.

    **Arguments:** `head`, a function from features `(F,)` to any pytree; `belief`, with any leading axes;
    `samples`, the number of samples; `key`, a random key.

    ```python
    belief = rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4))
    mixture = rl.predict_mixture(lambda z: z[:2], belief, samples=10, key=jax.random.key(0))
    mixture.log_prob(lambda logits: jax.nn.log_softmax(logits)[0])
    ```
    """
    check_size("samples", samples)
    return Mixture(_over_leading(head, 1 + len(belief.batch_shape))(belief.sample(key, (samples,))))


def predict_linearized(head: Head, belief: AbstractBelief) -> "Linearized":
    """Mean and covariance of the head's output, with the head linearised at the mean of the belief.

    They are exact for an affine head.

    **Arguments:** `head`, a function from features `(F,)` to one vector of shape `(K,)` or a scalar;
    `belief`, with any leading axes.

    ```python
    belief = rl.DiagonalGaussian(jnp.zeros(4), jnp.ones(4))
    rl.predict_linearized(jnp.sum, belief).stddev()  # 2.0
    ```
    """

    def value_and_jacobian(mean: Array) -> tuple[Array, Array]:
        out = head(mean)
        if not isinstance(out, jax.Array) or out.ndim > 1:
            raise ValueError(
                "head must return one array of shape (K,) or () to be linearised; "
                f"got {jax.tree.map(jnp.shape, out)}."
            )
        return out, jax.jacrev(head)(mean)

    mean, jacobian = _over_leading(value_and_jacobian, len(belief.batch_shape))(belief.mean)
    scalar = jacobian.ndim == belief.mean.ndim
    jacobian = jacobian[..., None, :] if scalar else jacobian
    if isinstance(belief, AbstractGaussian):
        # The deviation of the output is G S e, with Jacobian G and standard normal e.
        root = jacobian @ belief.covariance_root()
        covariance = root @ jnp.swapaxes(root, -1, -2)
    else:
        covariance = jnp.zeros((*jacobian.shape[:-1], jacobian.shape[-2]), mean.dtype)
    return Linearized(mean, covariance[..., 0, 0] if scalar else covariance)


class Mixture(eqx.Module):
    """Uniform mixture of predictions, the result of `rl.predict_mixture`.

    **Arguments:** `components`, a pytree of arrays with a leading axis of samples.

    ```python
    mixture = rl.Mixture(jnp.array([[0.0, 1.0], [2.0, 0.0]]))  # logits of two components
    mixture.log_prob(lambda logits: jax.nn.log_softmax(logits)[0])
    ```
    """

    components: PyTree[Array]

    def log_prob(self, component_log_prob: Callable[[Any], Array]) -> Array:
        """Log-density of the mixture, given a function for that of one component with its leading axes."""
        log_probs = jax.vmap(component_log_prob)(self.components)
        return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(log_probs.shape[0])


class Linearized(eqx.Module):
    """Gaussian prediction of a linearised head, the result of `rl.predict_linearized`.

    **Arguments:** `mean` of shape `(*leading, K)` and `covariance` of shape `(*leading, K, K)`; both without
    the axes K for a scalar output.

    ```python
    rl.Linearized(jnp.zeros(2), 4 * jnp.eye(2)).stddev()  # 2.0, 2.0
    ```
    """

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
