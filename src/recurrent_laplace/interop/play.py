"""An agent of Stable-Baselines3 in its environment, watched."""

import gymnasium
import jax
import numpy as np

from recurrent_laplace.deploy.recording import Episode
from recurrent_laplace.interop.sb3 import SB3Agent


def make_env(name: str) -> gymnasium.Env:
    """An environment by Gymnasium's name for it."""
    try:
        return gymnasium.make(name)
    except (gymnasium.error.Error, ModuleNotFoundError) as problem:
        raise ValueError(f"env {name!r} cannot be made: {problem}") from None


def play_gymnasium(
    agent: SB3Agent, env: gymnasium.Env, *, episodes: int, seed: int = 0, greedy: bool = False
) -> list[Episode]:
    """Whole episodes, the first reset with `seed`; actions are drawn, or the likeliest ones if `greedy`."""
    played = []
    key = jax.random.key(seed)
    for episode in range(episodes):
        inputs, actions, rewards, readings = [], [], [], []
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        over = False
        while not over:
            step = agent.step(observation, episode_start=not rewards)
            inputs.append(agent.inputs(observation))
            key, key_action = jax.random.split(key)
            action = agent.act(step, deterministic=greedy, key=key_action)
            observation, reward, terminated, truncated, _ = env.step(
                int(action) if np.ndim(action) == 0 else action
            )
            over = terminated or truncated
            actions.append(action)
            rewards.append(float(reward))
            readings.append(step.reading)
        played.append(Episode.of(inputs, actions, rewards, readings))
    return played
