"""Likelihoods of targets: distributions of what is predicted, given the outputs of a head."""

import abc
import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from recurrent_laplace.errors import check_size
from recurrent_laplace.gaussians.base import LOG_2PI

PROBIT = math.pi / 8
"""Squared ratio of the slopes of the logistic and the probit function at zero (MacKay, 1992)."""


class AbstractLikelihood(eqx.Module):
    """Interface of the likelihood of targets, given the outputs of a head.

    A target is a vector as long as the outputs. A subclass is an exponential family with natural parameters
    as outputs, so that the Gauss-Newton curvature (`fisher_root`) is independent of the targets.

    ```python
    likelihood = rl.BernoulliLikelihood(1)
    likelihood.log_prob(jnp.zeros(1), jnp.ones(1))  # -log(2)
    ```
    """

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """Number K of outputs, and of entries of a target."""

    @property
    def is_gaussian(self) -> bool:
        """Whether targets are Gaussian around the outputs, with the noise of `with_noise_stddev`."""
        return False

    @property
    def named_parts(self) -> tuple[tuple[str, "AbstractLikelihood"], ...]:
        """Names and likelihoods of the targets whose vectors are concatenated; one target by default."""
        return (("target", self),)

    @abc.abstractmethod
    def log_prob(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        """Log-likelihood of targets; leading axes broadcast."""

    @abc.abstractmethod
    def mean(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        """Expected target."""

    @abc.abstractmethod
    def variance(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        """Variance of each entry of the target."""

    @abc.abstractmethod
    def entropy(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead"]:
        """Entropy of the targets, in nats: the expected negative log-likelihood."""

    @abc.abstractmethod
    def fisher_root(self, outputs: Float[Array, " K"]) -> Float[Array, "K K"]:
        """Square root R of the Fisher information `R R^T` of the outputs."""

    @abc.abstractmethod
    def outputs_of(self, mean: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        """Outputs with an expected target: the inverse of `mean`."""

    @abc.abstractmethod
    def deviance(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        """Loss relative to a perfect prediction: squared error, or twice the negative log-likelihood."""

    @abc.abstractmethod
    def integrate(
        self, outputs: Float[Array, "*lead K"], variance: Float[Array, "*lead K"]
    ) -> tuple[Float[Array, "*lead K"], "AbstractLikelihood"]:
        """Outputs and likelihood of the distribution averaged over independent Gaussian outputs."""

    def with_noise(self, scale: float | Array) -> "AbstractLikelihood":
        """Likelihood with the standard deviation of its noise multiplied by `scale`, where it has one."""
        del scale
        return self

    @property
    def support(self) -> str:
        """The targets that `allows` accepts, in words."""
        return "finite numbers"

    def allows(self, target: Float[Array, "*lead K"]) -> Bool[Array, "*lead"]:
        """Whether targets are in the support."""
        return jnp.all(jnp.isfinite(target), axis=-1)

    def with_noise_stddev(self, stddev: Float[Array, " K"]) -> "AbstractLikelihood":
        """Likelihood with this standard deviation of its noise, where it has one."""
        del stddev
        return self


class GaussianLikelihood(AbstractLikelihood):
    """Independent Gaussian targets, whose means are the outputs.

    **Arguments:**

    - `log_stddev`: logarithm of the standard deviation of the noise of each target, `(K,)`; it is learned
      with the head.

    ```python
    likelihood = rl.GaussianLikelihood(jnp.log(jnp.array([0.1, 2.0])))
    likelihood.fisher_root(jnp.zeros(2))  # diag(10, 0.5)
    ```
    """

    log_stddev: Float[Array, "*lead K"]

    @property
    def size(self) -> int:
        return self.log_stddev.shape[-1]

    @property
    def is_gaussian(self) -> bool:
        return True

    def log_prob(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        square = (target - outputs) ** 2 * jnp.exp(-2 * self.log_stddev)
        return -0.5 * jnp.sum(square + 2 * self.log_stddev + LOG_2PI, axis=-1)

    def mean(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return outputs

    def variance(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.broadcast_to(jnp.exp(2 * self.log_stddev), outputs.shape)

    def entropy(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead"]:
        each = jnp.broadcast_to(self.log_stddev + 0.5 * (1 + LOG_2PI), outputs.shape)
        return jnp.sum(each, axis=-1)

    def fisher_root(self, outputs: Float[Array, " K"]) -> Float[Array, "K K"]:
        del outputs
        return jnp.diag(jnp.exp(-self.log_stddev))

    def outputs_of(self, mean: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return mean

    def deviance(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return jnp.sum((target - outputs) ** 2, axis=-1)

    def integrate(
        self, outputs: Float[Array, "*lead K"], variance: Float[Array, "*lead K"]
    ) -> tuple[Float[Array, "*lead K"], "GaussianLikelihood"]:
        return outputs, GaussianLikelihood(0.5 * jnp.log(jnp.exp(2 * self.log_stddev) + variance))

    def with_noise(self, scale: float | Array) -> "GaussianLikelihood":
        return GaussianLikelihood(self.log_stddev + jnp.log(scale))

    def with_noise_stddev(self, stddev: Float[Array, " K"]) -> "GaussianLikelihood":
        return GaussianLikelihood(jnp.log(stddev))


class BernoulliLikelihood(AbstractLikelihood):
    """Independent targets 0 or 1, whose logits are the outputs.

    **Arguments:** `count`, the number K of targets.

    ```python
    likelihood = rl.BernoulliLikelihood(1)
    likelihood.mean(jnp.zeros(1))  # 0.5
    ```
    """

    count: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_size("count", self.count)

    @property
    def size(self) -> int:
        return self.count

    def log_prob(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return jnp.sum(
            target * jax.nn.log_sigmoid(outputs) + (1 - target) * jax.nn.log_sigmoid(-outputs), axis=-1
        )

    def mean(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jax.nn.sigmoid(outputs)

    def variance(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jax.nn.sigmoid(outputs) * jax.nn.sigmoid(-outputs)

    def entropy(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead"]:
        return -self.log_prob(outputs, self.mean(outputs))

    def fisher_root(self, outputs: Float[Array, " K"]) -> Float[Array, "K K"]:
        return jnp.diag(jnp.sqrt(self.variance(outputs)))

    def outputs_of(self, mean: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.log(mean) - jnp.log1p(-mean)

    def deviance(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return -2 * self.log_prob(outputs, target)

    def integrate(
        self, outputs: Float[Array, "*lead K"], variance: Float[Array, "*lead K"]
    ) -> tuple[Float[Array, "*lead K"], "BernoulliLikelihood"]:
        return outputs / jnp.sqrt(1 + PROBIT * variance), self

    @property
    def support(self) -> str:
        return "0 or 1"

    def allows(self, target: Float[Array, "*lead K"]) -> Bool[Array, "*lead"]:
        return jnp.all((target == 0) | (target == 1), axis=-1)


class CategoricalLikelihood(AbstractLikelihood):
    """One-hot target, whose logits are the outputs.

    **Arguments:** `categories`, their number K.

    ```python
    likelihood = rl.CategoricalLikelihood(3)
    likelihood.log_prob(jnp.zeros(3), jnp.array([0.0, 1.0, 0.0]))  # -log(3)
    ```
    """

    categories: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_size("categories", self.categories, least=2)

    @property
    def size(self) -> int:
        return self.categories

    def log_prob(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return jnp.sum(target * jax.nn.log_softmax(outputs), axis=-1)

    def mean(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jax.nn.softmax(outputs)

    def variance(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        chance = jax.nn.softmax(outputs)
        return chance * (1 - chance)

    def entropy(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead"]:
        return -self.log_prob(outputs, self.mean(outputs))

    def fisher_root(self, outputs: Float[Array, " K"]) -> Float[Array, "K K"]:
        # (diag(r) - p r^T)(diag(r) - r p^T) = diag(p) - p p^T, with r = sqrt(p).
        chance = jax.nn.softmax(outputs)
        root = jnp.sqrt(chance)
        return jnp.diag(root) - chance[:, None] * root

    def outputs_of(self, mean: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.log(mean)

    def deviance(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return -2 * self.log_prob(outputs, target)

    def integrate(
        self, outputs: Float[Array, "*lead K"], variance: Float[Array, "*lead K"]
    ) -> tuple[Float[Array, "*lead K"], "CategoricalLikelihood"]:
        return outputs / jnp.sqrt(1 + PROBIT * variance), self

    @property
    def support(self) -> str:
        return "one-hot"

    def allows(self, target: Float[Array, "*lead K"]) -> Bool[Array, "*lead"]:
        return jnp.all((target == 0) | (target == 1), axis=-1) & (jnp.sum(target, axis=-1) == 1)


class JointLikelihood(AbstractLikelihood):
    """Several targets, independent given the outputs: their vectors are concatenated.

    **Arguments:** `names` of the parts, and `parts`, a likelihood for each.

    ```python
    likelihood = rl.JointLikelihood(
        ("reward", "tile"), (rl.BernoulliLikelihood(1), rl.CategoricalLikelihood(4))
    )
    likelihood.size  # 5
    ```
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parts: tuple[AbstractLikelihood, ...]

    def __check_init__(self) -> None:
        if not self.parts or len(self.names) != len(self.parts):
            raise ValueError(
                f"parts must have one likelihood for each of {len(self.names)} names, at least one; "
                f"got {len(self.parts)}."
            )

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def named_parts(self) -> tuple[tuple[str, AbstractLikelihood], ...]:
        return tuple(zip(self.names, self.parts, strict=True))

    def split(self, values: Float[Array, "*lead K"]) -> list[Array]:
        """Entries of each part."""
        ends = list(itertools.accumulate(part.size for part in self.parts))
        return jnp.split(values, ends[:-1], axis=-1)

    def log_prob(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return sum(self._each("log_prob", outputs, target))  # pyright: ignore[reportReturnType]

    def mean(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.concatenate(self._each("mean", outputs), axis=-1)

    def variance(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.concatenate(self._each("variance", outputs), axis=-1)

    def entropy(self, outputs: Float[Array, "*lead K"]) -> Float[Array, "*lead"]:
        return sum(self._each("entropy", outputs))  # pyright: ignore[reportReturnType]

    def fisher_root(self, outputs: Float[Array, " K"]) -> Float[Array, "K K"]:
        blocks = self._each("fisher_root", outputs)
        # The noise of a part may be of higher precision than the outputs.
        root, start = jnp.zeros((self.size, self.size), jnp.result_type(*blocks)), 0
        for block in blocks:
            end = start + len(block)
            root, start = root.at[start:end, start:end].set(block), end
        return root

    def outputs_of(self, mean: Float[Array, "*lead K"]) -> Float[Array, "*lead K"]:
        return jnp.concatenate(self._each("outputs_of", mean), axis=-1)

    def deviance(
        self, outputs: Float[Array, "*lead K"], target: Float[Array, "*other K"]
    ) -> Float[Array, "*out"]:
        return sum(self._each("deviance", outputs, target))  # pyright: ignore[reportReturnType]

    def integrate(
        self, outputs: Float[Array, "*lead K"], variance: Float[Array, "*lead K"]
    ) -> tuple[Float[Array, "*lead K"], "JointLikelihood"]:
        pairs = self._each("integrate", outputs, variance)
        integrated = jnp.concatenate([part for part, _ in pairs], axis=-1)
        return integrated, JointLikelihood(self.names, tuple(likelihood for _, likelihood in pairs))

    def with_noise(self, scale: float | Array) -> "JointLikelihood":
        return JointLikelihood(self.names, tuple(part.with_noise(scale) for part in self.parts))

    @property
    def support(self) -> str:
        return ", ".join(part.support for part in self.parts)

    def allows(self, target: Float[Array, "*lead K"]) -> Bool[Array, "*lead"]:
        return jnp.all(jnp.stack(self._each("allows", target), axis=-1), axis=-1)

    def with_noise_stddev(self, stddev: Float[Array, " K"]) -> "JointLikelihood":
        return JointLikelihood(self.names, tuple(self._each("with_noise_stddev", stddev)))

    def _each(self, method: str, *values: Array) -> list[Any]:
        """Results of a method of each part, for its entries of `values`."""
        split = zip(*(self.split(array) for array in values), strict=True)
        return [getattr(part, method)(*own) for part, own in zip(self.parts, split, strict=True)]


def check_targets(likelihood: AbstractLikelihood, targets: Float[Array | np.ndarray, "... K"]) -> None:
    """Refuse targets that are all unknown (NaN), or outside the support of the likelihood."""
    values = np.asarray(targets, float).reshape(-1, likelihood.size)
    values = values[~np.isnan(values).any(axis=-1)]
    if not len(values):
        raise ValueError("targets must have at least one that is known; all are NaN.")
    start = 0
    for name, part in likelihood.named_parts:
        own = values[:, start : start + part.size]
        start += part.size
        impossible = ~np.asarray(part.allows(jnp.asarray(own)))
        if impossible.any():
            raise ValueError(
                f"targets of the {name} must be {part.support}, as a {type(part).__name__} needs, "
                f"or NaN for none; got {own[impossible][0]}."
            )
