"""Interfaces of beliefs, and the divergences between Gaussians of any two families."""

import abc
import math
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LOG_2PI = math.log(2 * math.pi)


class AbstractBelief(eqx.Module):
    """Interface of a distribution over features z in R^F.

    Leaves share any number of leading axes (time, batch), which `belief[i]` and `belief[1:]` index.

    ```python
    beliefs = rl.DiagonalGaussian(jnp.zeros((5, 3)), jnp.ones((5, 3)))
    beliefs.entropy()  # (5,)
    beliefs[-1].sample(jax.random.key(0), (100,))  # (100, 3)
    ```
    """

    mean: eqx.AbstractVar[Float[Array, "*lead F"]]

    @abc.abstractmethod
    def variance(self) -> Float[Array, "*lead F"]:
        """Marginal variances."""

    @abc.abstractmethod
    def covariance(self) -> Float[Array, "*lead F F"] | Float[Array, "*lead F"]:
        """Covariance matrix, or its diagonal if the belief is diagonal."""

    @abc.abstractmethod
    def precision(self) -> Float[Array, "*lead F F"] | Float[Array, "*lead F"]:
        """Inverse covariance matrix, or its diagonal if the belief is diagonal."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, "*lead"]:
        """Differential entropy in nats."""

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, "*shape F"]) -> Float[Array, "*out"]:
        """Log-density at `z`, whose leading axes broadcast with the belief's."""

    @abc.abstractmethod
    def kl(self, other: "AbstractBelief") -> Float[Array, "*out"]:
        """KL divergence `KL(self || other)` in nats; leading axes broadcast."""

    @abc.abstractmethod
    def mahalanobis(self, other: "AbstractBelief") -> Float[Array, "*out"]:
        """Mahalanobis term `1/2 d^T Lambda_other d` of `KL(self || other)`, with `d` the mean difference."""

    @abc.abstractmethod
    def perturb(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        """Transform standard normal `noise` to samples; leading axes broadcast with the belief's."""

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Float[Array, "*out F"]:
        """Draw independent samples of shape `(*shape, *leading, F)`, differentiable in the parameters."""
        noise = jax.random.normal(key, (*shape, *self.mean.shape), self.mean.dtype)
        return self.perturb(noise)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the leading axes."""
        return self.mean.shape[:-1]

    def __len__(self) -> int:
        if not self.batch_shape:
            raise TypeError("a belief without leading axes has no length.")
        return self.batch_shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Self:
        axes = self.mean.ndim - 1
        index = index if isinstance(index, tuple) else (index,)
        _check_index(index, self.batch_shape)
        if not any(item is Ellipsis for item in index):
            index = (*index, Ellipsis)
        # Full slices protect the trailing axes of a leaf from the index.
        return jax.tree.map(lambda leaf: leaf[(*index, *(slice(None),) * (leaf.ndim - axes))], self)


def _check_index(index: tuple, batch_shape: tuple[int, ...]) -> None:
    """Refuse an index that is out of bounds, which JAX would clamp, by trying it in NumPy."""
    if any(isinstance(item, jax.Array) for item in index):
        return
    try:
        np.broadcast_to(0, batch_shape)[index]
    except IndexError as problem:
        raise IndexError(
            f"index {index} is not valid for a belief with leading axes {batch_shape}: {problem}."
        ) from None


class AbstractGaussian(AbstractBelief):
    """Interface of a Gaussian, in any parametrisation of `Lambda = W^T W` and `Sigma = S S^T`.

    Densities and divergences follow from products with `W` and `S`. A new family implements `whiten`,
    `color`, `covariance_root`, `precision_diagonal`, `log_det_precision` and the moments, and has all
    divergences to and from the other families.

    ```python
    p = rl.DenseGaussian.from_precision(jnp.zeros(3), jnp.eye(3) + 1)
    q = rl.DiagonalGaussian(jnp.ones(3), jnp.ones(3))
    p.kl(q), p.mahalanobis(q), q.log_prob(p.mean)
    ```
    """

    is_diagonal: ClassVar[bool] = False

    @abc.abstractmethod
    def whiten(self, deviation: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        """Product `W d` for vectors along the last axis."""

    @abc.abstractmethod
    def color(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        """Product `S e` for vectors along the last axis."""

    @abc.abstractmethod
    def covariance_root(self) -> Float[Array, "*lead F F"]:
        """Square root `S` of the covariance as a matrix."""

    @abc.abstractmethod
    def precision_diagonal(self) -> Float[Array, "*lead F"]:
        """Diagonal of the precision."""

    @abc.abstractmethod
    def log_det_precision(self) -> Float[Array, "*lead"]:
        """Log-determinant of the precision."""

    def eigenvalues(self) -> Float[Array, "*lead F"] | None:
        """Eigenvalues of the covariance in any order, or None if the family does not store them."""
        return None

    def perturb(self, noise: Float[Array, "*shape F"]) -> Float[Array, "*out F"]:
        return self.mean + self.color(noise)

    def entropy(self) -> Float[Array, "*lead"]:
        return 0.5 * (self.mean.shape[-1] * (1 + LOG_2PI) - self.log_det_precision())

    def log_prob(self, z: Float[Array, "*shape F"]) -> Float[Array, "*out"]:
        squared = jnp.sum(self.whiten(z - self.mean) ** 2, axis=-1)
        return 0.5 * (self.log_det_precision() - squared - self.mean.shape[-1] * LOG_2PI)

    def mahalanobis(self, other: AbstractBelief) -> Float[Array, "*out"]:
        other = _with_density(self, other)
        return 0.5 * jnp.sum(other.whiten(self.mean - other.mean) ** 2, axis=-1)

    def kl(self, other: AbstractBelief) -> Float[Array, "*out"]:
        return self.mahalanobis(other) + self.covariance_kl(other)

    def covariance_kl(self, other: AbstractBelief) -> Float[Array, "*out"]:
        """KL divergence between the two Gaussians centred at zero: `kl` without its Mahalanobis term."""
        other = _with_density(self, other)
        log_ratio = self.log_det_precision() - other.log_det_precision()
        spread = _trace_of_ratio(self, other) - self.mean.shape[-1]
        return 0.5 * (spread + log_ratio)


def _with_density(belief: AbstractGaussian, other: AbstractBelief) -> AbstractGaussian:
    if not isinstance(other, AbstractGaussian):
        raise ValueError(
            f"the KL divergence to a {type(other).__name__} is infinite, since it has no density. "
            "Use a LaplacePosterior or a VariationalPosterior."
        )
    ours, theirs = belief.mean.shape[-1], other.mean.shape[-1]
    if ours != theirs:
        raise ValueError(f"other must have {ours} features, as this belief; got {theirs}.")
    return other


def _trace_of_ratio(p: AbstractGaussian, q: AbstractGaussian) -> Array:
    """Trace `tr(Lambda_q Sigma_p)`."""
    if p.is_diagonal or q.is_diagonal:
        # If either is diagonal, off-diagonal entries of the other do not enter the trace.
        return jnp.sum(q.precision_diagonal() * p.variance(), axis=-1)
    columns = jnp.swapaxes(p.covariance_root(), -1, -2)
    return jnp.sum(q[..., None].whiten(columns) ** 2, axis=(-1, -2))
