"""Gymnasium wrapper that adds readings of an agent's belief to `info`."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from recurrent_laplace.errors import check_size
from recurrent_laplace.interop._optional import optional
from recurrent_laplace.interop.sb3 import SB3Agent, SB3Step
from recurrent_laplace.monitoring import Monitor, PredictorFit, Reading, Recording, fit_predictor
from recurrent_laplace.monitoring.prediction import FEWEST_EPISODES

with optional("gymnasium", extra="gymnasium"):
    import gymnasium

log = logging.getLogger("recurrent_laplace")

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
    - `fit_episodes`: for an `SB3Agent`, the number of first episodes that `rl.fit_predictor` is fitted on.
      From the next reset on, `fit` is the result, `source` the agent with its posterior, and readings have a
      surprise.

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
        fit_episodes: int | None = None,
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
        if fit_episodes is not None:
            check_size("fit_episodes", fit_episodes, least=FEWEST_EPISODES)
            if source is monitor:
                raise ValueError(
                    "fit_episodes is for an SB3Agent; for a Monitor, fit rl.fit_predictor to rl.Recordings."
                )
        self.fit_episodes = fit_episodes
        self.fit: PredictorFit | None = None
        self._recorded: list[Recording] = []
        self._steps: list[tuple[Any, ...]] = []
        self.source = source
        self.inputs = inputs or _flattened
        self.vectors = vectors

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        observation, info = self.env.reset(seed=seed, options=options)
        if self.fit_episodes is not None and self.fit is None and len(self._recorded) >= self.fit_episodes:
            self._fit()
        self._previous, self._steps = observation, []
        return observation, {**info, "belief": self._read(observation, None, 0.0, start=True)}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        belief = self._read(observation, action, float(reward), start=False)
        if self.fit_episodes is not None and self.fit is None:
            self._record(observation, action, float(reward), ended=terminated or truncated)
        return observation, reward, terminated, truncated, {**info, "belief": belief}

    def _record(self, observation: Any, action: Any, reward: float, *, ended: bool) -> None:
        """Add a step to the recordings: the action at the previous observation, its reward, and what came."""
        agent = self.source
        assert isinstance(agent, SB3Agent)
        taken = np.asarray(action) if agent.actions else np.ravel(action)
        self._steps.append((agent.inputs(self._previous), agent.observed(self._previous), taken, reward))
        self._previous = observation
        if ended:
            inputs, observations, actions, rewards = map(np.stack, zip(*self._steps, strict=True))
            final = agent.observed(observation)
            self._recorded.append(Recording(inputs, actions, rewards, observations, final))

    def _fit(self) -> None:
        agent = self.source
        assert isinstance(agent, SB3Agent)
        self.fit = fit_predictor(agent.posterior, self._recorded, actions=agent.actions)
        assert self.fit.posterior is not None
        self.source, self._recorded = agent.with_posterior(self.fit.posterior), []
        log.info("%s", self.fit)

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
