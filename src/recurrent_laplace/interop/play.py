"""Monitored episodes of a Stable-Baselines3 agent in a Gymnasium environment."""

from collections.abc import Callable

import jax
import numpy as np

from recurrent_laplace.interop._optional import optional
from recurrent_laplace.interop.sb3 import SB3Agent
from recurrent_laplace.monitoring.episode import Episode

with optional("gymnasium", extra="sb3"):
    import gymnasium


def make_env(name: str) -> gymnasium.Env:
    """Make a Gymnasium environment by name; raise `ValueError` if that fails."""
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as problem:
        raise ValueError(f"env {name!r} cannot be made: {problem}") from None


def play_gymnasium(
    agent: SB3Agent,
    env: gymnasium.Env,
    *,
    episodes: int,
    seed: int = 0,
    greedy: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[Episode]:
    """Play whole episodes with a monitored agent.

    **Arguments:**

    - `agent`: agent of one stream.
    - `env`: environment to play in.
    - `episodes`: number of episodes.
    - `seed`: seed of the first reset and of the actions.
    - `greedy`: take the most likely actions instead of sampling.
    - `progress`: called with the number of finished episodes after each.
    """
    played = []
    key = jax.random.key(seed)
    for episode in range(episodes):
        inputs, observations, actions, rewards, readings = [], [], [], [], []
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        action = reward = None
        over = False
        while not over:
            step = agent.step(observation, episode_start=not rewards, action=action, reward=reward)
            inputs.append(agent.inputs(observation))
            observations.append(agent.observed(observation))
            key, key_action = jax.random.split(key)
            action = agent.act(step, deterministic=greedy, key=key_action)
            observation, reward, terminated, truncated, _ = env.step(
                int(action) if np.ndim(action) == 0 else action
            )
            over = terminated or truncated
            actions.append(action)
            rewards.append(float(reward))
            readings.append(step.reading)
        final = agent.observed(observation)
        played.append(
            Episode.of(inputs, actions, rewards, readings, observations=observations, final_observation=final)
        )
        if progress is not None:
            progress(episode + 1)
    return played
