"""The plain recurrent network."""

from typing import NoReturn

from jaxtyping import Array, Float

from recurrent_laplace.cells import Memory
from recurrent_laplace.gaussians import PointBelief
from recurrent_laplace.posterior.base import AbstractReadPosterior
from recurrent_laplace.posterior.cost import Cost, unroll_cost


class PointPosterior(AbstractReadPosterior):
    """The RNN: all belief at its features.

    ```python
    beliefs = rl.PointPosterior(memory).unroll(inputs)
    beliefs.mean  # (T, F)
    ```
    """

    memory: Memory

    def prior(self) -> NoReturn:
        raise ValueError("a point posterior has no prior: its beliefs are no distributions.")

    def read(self, h: Float[Array, "*lead H"]) -> PointBelief:
        return PointBelief(self.memory.features(h))

    def cost(self, steps: int, batch: int = 1) -> Cost:
        return unroll_cost(self.memory, steps, batch)
