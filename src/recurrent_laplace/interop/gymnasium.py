"""Gymnasium wrapper that adds readings of an agent's belief to `info`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from recurrent_laplace.interop._optional import optional
from recurrent_laplace.interop.sb3 import SB3Agent, SB3Step
from recurrent_laplace.monitoring import Monitor, Reading

with optional("gymnasium", extra="gymnasium"):
    import gymnasium

Inputs = Callable[[Any, Any, float], Any]


class Uncertainty(gymnasium.Wrapper):
    """Wrapper that updates an agent's belief with every observation and adds readings as `info["belief"]`.

    A reset of the environment resets the belief. `latest` is the last result of the agent or the monitor: an
    `SB3Step` or an `rl.Reading`.

    **Arguments:**

    - `env`: one environment.
    - `source`: an `SB3Agent`, or a `Monitor` of one stream.
    - `inputs`: for a `Monitor`, a function `inputs(observation, action, reward)` that returns the memory's
      input; after a reset the action is None and the reward 0. By default it flattens the observation.
    - `vectors`: whether to add the arrays `mean` and `stddev` of the belief.

    ```python
    env = rl.interop.gymnasium.Uncertainty(gymnasium.make("CartPole-v1"), agent)
    observation, info = env.reset()
    info["belief"]["entropy"]
    action = agent.act(env.latest, deterministic=True)
    ```
    """

    latest: SB3Step | Reading

    def __init__(
        self,
        env: gymnasium.Env,
        source: SB3Agent | Monitor,
        *,
        inputs: Inputs | None = None,
        vectors: bool = False,
    ):
        super().__init__(env)
        monitor = source.monitor if isinstance(source, SB3Agent) else source
        if not isinstance(monitor, Monitor):
            raise ValueError(f"source must be an SB3Agent or a Monitor; got {type(source).__name__}.")
        if monitor.streams is not None:
            raise ValueError(
                f"source must be of one stream, for one environment; got streams={monitor.streams}."
            )
        if inputs is not None and source is not monitor:
            raise ValueError("inputs is for a Monitor: an SB3Agent knows what it sees.")
        self.source = source
        self.inputs = inputs or _flattened
        self.vectors = vectors

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "belief": self._read(observation, None, 0.0, start=True)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        belief = self._read(observation, action, float(reward), start=False)
        return observation, reward, terminated, truncated, {**info, "belief": belief}

    def _read(self, observation: Any, action: Any, reward: float, *, start: bool) -> dict[str, Any]:
        if isinstance(self.source, SB3Agent):
            previous = {"action": action, "reward": None if start else reward}
            self.latest = self.source.step(observation, start, **previous)
            reading = self.latest.reading
        else:
            self.latest = reading = self.source.step(self.inputs(observation, action, reward), reset=start)
        belief: dict[str, Any] = {name: float(value) for name, value in reading.scalars().items()}
        if self.vectors:
            belief |= {"mean": reading.mean, "stddev": reading.stddev}
        return belief


def _flattened(observation: Any, action: Any, reward: float) -> np.ndarray:
    del action, reward
    return np.ravel(observation)
