"""Variational recurrent network (VRNN)."""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.cells import Affine, Memory
from recurrent_laplace.errors import check_choice, check_number
from recurrent_laplace.gaussians import (
    AbstractBelief,
    DiagonalGaussian,
    SpectralGaussian,
    cayley_map,
    skew_symmetric,
)
from recurrent_laplace.gaussians.spectral import known_cayley_map
from recurrent_laplace.posterior.base import AbstractReadPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost

LOG_EIGENVALUE_RANGE = (-10.0, 2.0)
"""Bounds to which log-eigenvalues of the covariance are clipped."""


def check_variational(*, covariance: Any = "dense", prior_stddev: Any = 1.0) -> None:
    """Refuse invalid options of a `VariationalPosterior`; any subset can be checked."""
    check_choice("covariance", covariance, ("dense", "diagonal"))
    check_number("prior_stddev", prior_stddev, above=0)


class VariationalPosterior(AbstractReadPosterior):
    """Variational RNN: a Gaussian whose mean and covariance are learned linear heads on the hidden state.

    `Sigma = U exp(S) U^T`, with `S` clipped to [-10, 2] and `U` orthogonal by a Cayley map; the diagonal
    variant has `U = I`. The mean is the memory's readout, so point, Laplace and variational posteriors on one
    memory differ only by the covariance head.

    **Arguments:**

    - `memory`: the network, an `rl.Memory`.
    - `covariance`: `"dense"` or `"diagonal"`.
    - `prior_stddev`: standard deviation of the belief before any input, and around which the untrained
      covariance head starts.
    - `key`: random key for the initial weights of the covariance head.

    ```python
    memory = rl.Memory(rl.GRU(3, 8, key=jax.random.key(0)))
    posterior = rl.VariationalPosterior(memory, covariance="dense", key=jax.random.key(1))
    posterior.unroll(jnp.ones((5, 3))).entropy()  # (5,)
    ```
    """

    memory: Memory
    log_eigenvalue_head: Affine
    rotation_head: Affine | None
    covariance: str = eqx.field(static=True)
    prior_stddev: float = eqx.field(static=True)

    def __init__(
        self,
        memory: Memory,
        *,
        covariance: Literal["dense", "diagonal"] = "dense",
        prior_stddev: float = 1.0,
        key: Array,
    ):
        check_variational(covariance=covariance, prior_stddev=prior_stddev)
        hidden, size = memory.cell.hidden_size, memory.feature_size
        key_eigenvalues, key_rotation = jax.random.split(key)
        self.memory = memory
        head = Affine.init(hidden, size, dtype=memory.dtype, key=key_eigenvalues)
        assert head.bias is not None
        self.log_eigenvalue_head = Affine(head.weight, head.bias + 2 * math.log(prior_stddev))
        self.rotation_head = None
        if covariance == "dense":
            entries = size * (size - 1) // 2
            self.rotation_head = Affine.init(hidden, entries, dtype=memory.dtype, key=key_rotation)
        self.covariance = covariance
        self.prior_stddev = float(prior_stddev)

    @property
    def mean_is_features(self) -> bool:
        return True

    def prior(self) -> DiagonalGaussian | SpectralGaussian:
        size, dtype = self.memory.feature_size, self.memory.dtype
        mean = jnp.zeros(size, dtype)
        if self.rotation_head is None:
            return DiagonalGaussian(mean, jnp.full(size, self.prior_stddev**-2, dtype))
        log_variance = jnp.full(size, 2 * jnp.log(self.prior_stddev), dtype)
        return SpectralGaussian(mean, log_variance, jnp.eye(size, dtype=dtype))

    def read(self, h: Float[Array, "*lead H"]) -> DiagonalGaussian | SpectralGaussian:
        mean = self.memory.features(h)
        log_eigenvalues = self._log_eigenvalues(h)
        if self.rotation_head is None:
            return DiagonalGaussian(mean, jnp.exp(-log_eigenvalues))
        return SpectralGaussian(mean, log_eigenvalues, cayley_map(self._skew(self.rotation_head, h)))

    def read_again(
        self, h: Float[Array, "*lead H"], reuse: AbstractBelief
    ) -> DiagonalGaussian | SpectralGaussian:
        if self.rotation_head is None or not isinstance(reuse, SpectralGaussian):
            return self.read(h)
        basis = known_cayley_map(self._skew(self.rotation_head, h), reuse.basis)
        return SpectralGaussian(self.memory.features(h), self._log_eigenvalues(h), basis)

    def _log_eigenvalues(self, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F"]:
        return jnp.clip(self.log_eigenvalue_head(h), *LOG_EIGENVALUE_RANGE)

    def _skew(self, head: Affine, h: Float[Array, "*lead H"]) -> Float[Array, "*lead F F"]:
        """Compute `skew_symmetric(head(h))` by scattering the weights, which are fewer than the outputs."""
        size = self.memory.feature_size
        assert head.bias is not None
        weight = skew_symmetric(head.weight.T, size)
        return jnp.einsum("...h,hfg->...fg", h, weight) + skew_symmetric(head.bias, size)

    def cost(self, steps: int, batch: int = 1) -> Cost:
        h, f = self.memory.cell.hidden_size, self.memory.feature_size
        per_step = h * f
        numbers = 2 * f
        if self.rotation_head is not None:
            # Multiplications of the head and of the inverse; its blocks, and the basis itself.
            per_step += h * f * f + f**3
            numbers += 5 * f * f
        return unroll_cost(self.memory, steps, batch, per_step, numbers)
