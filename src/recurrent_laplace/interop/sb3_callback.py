"""Stable-Baselines3 callback that logs readings of the belief during training."""

import numpy as np

from recurrent_laplace.errors import check_size
from recurrent_laplace.interop._optional import optional
from recurrent_laplace.interop.sb3 import MakePosterior, Network, from_model

with optional("stable_baselines3", extra="sb3"):
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm


class UncertaintyCallback(BaseCallback):
    """Callback that logs readings of the belief of a `RecurrentPPO` during training, as `belief/...`.

    The observations of a rollout are replayed through the current weights, from a reset belief, and the mean
    of each reading over steps and environments is recorded.

    **Arguments:** `every`, the number of rollouts between records; `network` and `posterior` as for
    `rl.interop.sb3.load`; `verbose` of `BaseCallback`.

    ```python
    model.learn(100_000, callback=rl.interop.sb3.UncertaintyCallback(every=5))
    ```
    """

    def __init__(
        self,
        every: int = 1,
        network: Network = "actor",
        posterior: MakePosterior | None = None,
        verbose: int = 0,
    ):
        check_size("every", every)
        super().__init__(verbose)
        self.every = every
        self.network: Network = network
        self.posterior = posterior
        self._rollouts = 0

    def _on_training_start(self) -> None:
        # What cannot be converted is told now, not after the first rollout.
        from_model(self.model, self.network, self.posterior)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._rollouts += 1
        if self._rollouts % self.every:
            return
        assert isinstance(self.model, OnPolicyAlgorithm)
        buffer = self.model.rollout_buffer
        agent = from_model(self.model, self.network, self.posterior, streams=buffer.n_envs)
        shape = (buffer.n_envs, *agent.description.observation_shape)
        rows = [
            agent.step(observation.reshape(shape), start).reading.scalars()
            for observation, start in zip(buffer.observations, buffer.episode_starts, strict=True)
        ]
        for name in rows[0]:
            if name != "step":
                self.logger.record(f"belief/{name}", float(np.mean([row[name] for row in rows])))
