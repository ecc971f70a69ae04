"""An alarm for an agent of Stable-Baselines3: its cart changes in the middle of an episode.

A RecurrentPPO learns CartPole without being shown velocities. An alarm is fitted on clean episodes of it. Then
pole or motor change, and the alarm has nothing to go by but rewards and readings of the agent's belief.

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

STEPS, CHANGED, CLEAN, TESTS, DISCOUNT = 150, 60, 90, 20, 0.98
CHANGES = {
    "nothing": {},
    "pole 4 times as long": {"length": 2.0, "polemass_length": 0.2},
    "motor twice as strong": {"force_mag": 20.0},
    "motor half as strong": {"force_mag": 5.0},
}


def cartpole() -> gymnasium.Env:
    """Position and angle are seen, velocities are not."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=STEPS)
    seen = gymnasium.spaces.Box(-10, 10, (2,))
    return gymnasium.wrappers.TransformObservation(env, lambda x: x[[0, 2]].astype(np.float32), seen)


def train(folder: Path) -> rl.interop.sb3.SB3Agent:
    """Half a minute of Stable-Baselines3. One LSTM for actor and critic: its belief has readings of both."""
    envs = VecNormalize(DummyVecEnv([cartpole] * 8), norm_reward=False)  # values in units of rewards
    options = {"n_steps": 64, "batch_size": 256, "n_epochs": 5, "learning_rate": 2e-3, "seed": 0}
    small = {"lstm_hidden_size": 32, "net_arch": [32], "shared_lstm": True, "enable_critic_lstm": False}
    model = RecurrentPPO("MlpLstmPolicy", envs, gamma=DISCOUNT, policy_kwargs=small, **options)
    model.learn(20_000)
    model.save(folder / "model.zip")
    envs.save(folder / "vecnormalize.pkl")
    return rl.interop.sb3.load(folder / "model.zip", "shared", folder / "vecnormalize.pkl")


def listen(agent: rl.interop.sb3.SB3Agent, alarm: rl.ShiftAlarm, change: dict, seed: int) -> tuple:
    """An episode with a change in it: when the alarm rang first (infinity: never), and how long it lasted."""
    env, reward, rang, t, over = cartpole(), 0.0, np.inf, 0, False
    observation, _ = env.reset(seed=seed)
    while not over:
        if t == CHANGED:
            vars(env.unwrapped).update(change)
        step = agent.step(observation, episode_start=t == 0)
        if alarm.step(step.reading, reward=reward).alarm:
            rang = min(rang, t)
        observation, reward, terminated, truncated, _ = env.step(int(agent.act(step, deterministic=True)))
        t, over = t + 1, terminated or truncated
    return rang, t


def main() -> None:
    """Train, fit the alarm, change the world, and listen."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        agent = train(Path(folder))
    clean = rl.interop.play.play_gymnasium(agent, cartpole(), episodes=CLEAN, greedy=True)
    alarm = rl.ShiftAlarm.fit(clean, false_alarm_rate=0.05, discount=DISCOUNT)
    fit, steps = alarm.fitted, np.mean([len(episode.inputs) for episode in clean])
    print(f"{CLEAN} clean episodes, of {steps:.0f} steps on average")
    print(f"{fit.checked_episodes} of them were held out: {fit.checked_false_alarms} alarms")
    print(f"{TESTS} episodes, changed at step {CHANGED}   early alarms   alarms   median delay   steps")
    for name, change in CHANGES.items():
        rang, lasted = np.array([listen(agent, alarm, change, 1000 + seed) for seed in range(TESTS)]).T
        early, heard = rang < CHANGED, (rang >= CHANGED) & (rang < np.inf)
        delay = np.median(rang[~early]) - CHANGED  # infinity: most episodes ended without an alarm
        print(f"{name:31} {early.sum():12} {heard.sum():8} {delay:14.0f} {lasted.mean():7.0f}")


if __name__ == "__main__":
    main()
