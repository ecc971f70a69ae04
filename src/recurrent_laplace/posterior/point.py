"""Point posterior: the plain recurrent network."""

from typing import NoReturn

from jaxtyping import Array, Float

from recurrent_laplace.cells import Memory
from recurrent_laplace.gaussians import PointBelief
from recurrent_laplace.posterior.base import AbstractReadPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost


class PointPosterior(AbstractReadPosterior):
    """Point mass at the features: the posterior of a plain RNN.

    **Arguments:** `memory`, the network.

    ```python
    memory = rl.Memory(rl.GRU(3, 8, key=jax.random.key(0)))
    rl.PointPosterior(memory).unroll(jnp.ones((5, 3))).mean  # (5, 8)
    ```
    """

    memory: Memory

    @property
    def has_density(self) -> bool:
        return False

    @property
    def mean_is_features(self) -> bool:
        return True

    def prior(self) -> NoReturn:
        raise ValueError("a point posterior has no prior, since its beliefs have no density.")

    def read(self, h: Float[Array, "*lead H"]) -> PointBelief:
        return PointBelief(self.memory.features(h))

    def cost(self, steps: int, batch: int = 1) -> Cost:
        return unroll_cost(self.memory, steps, batch)
