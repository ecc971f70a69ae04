"""An alarm for an agent of Stable-Baselines3: the day its cart gets a longer pole.

A RecurrentPPO learns CartPole without being shown velocities. An alarm is fitted on clean episodes of it,
from readings of a Laplace posterior on the critic's LSTM; then the pole changes in the middle of an episode.

    pip install 'recurrent-laplace[torch,sb3]'
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from sb3_uncertainty import cartpole

import recurrent_laplace as rl

CHANGED = 40
EPISODES = 90


def train(folder: Path) -> Path:
    """Half a minute of Stable-Baselines3."""
    torch.set_num_threads(1)
    options = {"n_steps": 64, "batch_size": 256, "learning_rate": 2e-3, "seed": 0}
    small = {"lstm_hidden_size": 32, "net_arch": [32]}
    model = RecurrentPPO("MlpLstmPolicy", cartpole(), policy_kwargs=small, **options)
    model.learn(20_000)
    model.save(folder / "model.zip")
    return folder / "model.zip"


def main() -> None:
    """Train, fit the alarm, change the world, and listen."""
    with tempfile.TemporaryDirectory() as folder:
        agent = rl.interop.sb3.load(
            train(Path(folder)),
            network="critic",
            posterior=lambda memory: rl.LaplacePosterior(memory, covariance="diagonal", accumulate="none"),
        )
    clean = rl.interop.play.play_gymnasium(agent, cartpole(), episodes=EPISODES)
    lengths = [len(episode.steps) for episode in clean]
    alarm = rl.ShiftAlarm.fit(clean, false_alarm_rate=0.05, discount=0.99)
    fit = alarm.fitted
    print(f"clean episodes: {EPISODES}, of {np.median(lengths):.0f} steps; signals: {', '.join(fit.signals)}")
    print(f"false alarms in {fit.checked_episodes} held-out episodes: {fit.checked_false_alarms}")

    env = cartpole()
    observation, _ = env.reset(seed=1)
    reward, raised = 0.0, None
    for t in range(200):
        if t == CHANGED:
            env.unwrapped.length *= 6
            env.unwrapped.polemass_length *= 6
        step = agent.step(observation, episode_start=t == 0)
        now = alarm.step(step.reading, reward=reward)
        if now.alarm and raised is None:
            raised = t
            print(f"alarm at step {t}; by its own estimate the change began {now.since} steps before")
        observation, reward, terminated, truncated, _ = env.step(int(agent.act(step, deterministic=True)))
        if terminated or truncated:
            break
    print(f"the pole changed at step {CHANGED}; alarm: {'none' if raised is None else f'at step {raised}'}")


if __name__ == "__main__":
    main()
