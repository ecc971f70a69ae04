"""Objectives from outside of the package."""

from typing import ClassVar

import recurrent_laplace as rl


class Doubled(rl.PPO):
    """PPO with twice the loss, and a metric of its own."""

    name: ClassVar[str] = "doubled"

    def loss(self, model, batch, schedule, *, key, noise=None):
        loss, (metrics, finite) = super().loss(model, batch, schedule, key=key, noise=noise)
        return 2 * loss, (metrics | {"half": loss}, finite)
