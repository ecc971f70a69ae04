"""The uncertainty of an agent of Stable-Baselines3.

A RecurrentPPO learns CartPole without velocities in its observations. Its zip is then read, without executing
anything in it, and posteriors are added to the LSTMs of actor and critic. That of the actor learns to predict
the next observation from recorded episodes. In the middle of an episode the cart is pushed.

    pip install 'recurrent-laplace[torch,sb3]'
"""

import tempfile
from pathlib import Path

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import recurrent_laplace as rl

PUSHED, EPISODES = 30, 32


def cartpole() -> gymnasium.Env:
    """Position and angle are seen, velocities are not."""
    env, seen = gymnasium.make("CartPole-v1"), gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda x: x[[0, 2]], seen)


def train(folder: Path) -> None:
    """Half a minute of Stable-Baselines3."""
    envs = VecNormalize(DummyVecEnv([cartpole] * 8))
    options = {"n_steps": 64, "batch_size": 256, "n_epochs": 5, "learning_rate": 2e-3, "seed": 0}
    small = {"lstm_hidden_size": 32, "net_arch": [32]}
    model = RecurrentPPO("MlpLstmPolicy", envs, policy_kwargs=small, **options)
    model.learn(15_000)
    model.save(folder / "model.zip")
    envs.save(folder / "vecnormalize.pkl")


def main() -> None:
    """Train, load, and play an episode with a belief over each of the two LSTMs."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train(folder)
        files = {"path": folder / "model.zip", "vec_normalize": folder / "vecnormalize.pkl"}
        actor, critic = (rl.interop.sb3.load(network=network, **files) for network in ("actor", "critic"))
    episodes = rl.interop.play.play_gymnasium(actor, cartpole(), episodes=EPISODES)
    fit = rl.fit_predictor(actor.posterior, episodes, actions=actor.actions)
    print(fit)  # what the belief is worth
    actor = actor.with_posterior(fit.posterior)
    env = rl.interop.gymnasium.Uncertainty(cartpole(), actor)  # readings of the actor come in `info`
    observation, info = env.reset(seed=3)
    over, t = False, 0
    print("  t  surprise  policy moved   value ± stddev  forecast of position and angle")
    while not over and t < 60:
        value = critic.step(observation, episode_start=t == 0)
        belief = info["belief"]
        action = int(actor.act(env.latest, deterministic=True))
        if t in (0, 1, 2, 5, 10, 20, 29, 30, 31, 32, 33, 35, 40, 50):
            print(
                f"{t:3} {belief['surprise']:9.1f} {belief['policy_moved']:13.4f}"
                f" {value.value:7.1f} ± {value.reading.value_stddev:.2f}  {actor.predict(action)}"
            )
        if t == PUSHED - 1:
            env.unwrapped.state[1] += 1.0  # a push
        observation, _, terminated, truncated, info = env.step(action)
        over, t = terminated or truncated, t + 1


if __name__ == "__main__":
    main()
