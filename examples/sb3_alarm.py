"""An alarm for an agent of Stable-Baselines3, whose environment changes in the middle of an episode.

RecurrentPPO learns CartPole without velocities in its observations. An alarm is fitted on episodes of the
training environment; then pole or motor change. The alarm uses rewards and readings of the belief only.

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

STEPS, CHANGED, CLEAN, TESTS, DISCOUNT = 120, 50, 60, 10, 0.98
CHANGES = {
    "nothing": {},
    "pole half as long": {"length": 0.25, "polemass_length": 0.025},
    "pole twice as long": {"length": 1.0, "polemass_length": 0.1},
    "motor twice as strong": {"force_mag": 20.0},
}


def cartpole(steps: int = 150) -> gymnasium.Env:
    """Position and angle are seen, velocities are not."""
    env, seen = gymnasium.make("CartPole-v1", max_episode_steps=steps), gymnasium.spaces.Box(-10, 10, (2,))
    return gymnasium.wrappers.TransformObservation(env, lambda x: x[[0, 2]], seen)


def train(folder: Path) -> rl.interop.sb3.SB3Agent:
    """One LSTM for actor and critic, trained for a minute: its belief has readings of both."""
    envs = VecNormalize(DummyVecEnv([cartpole] * 8), norm_reward=False)  # values in units of rewards
    options = {"n_steps": 64, "batch_size": 256, "n_epochs": 5, "gamma": DISCOUNT, "seed": 0}
    small = {"lstm_hidden_size": 32, "net_arch": [32], "shared_lstm": True, "enable_critic_lstm": False}
    model = RecurrentPPO("MlpLstmPolicy", envs, lambda left: 2e-3 * left, policy_kwargs=small, **options)
    model.learn(32_768)
    model.save(folder / "model.zip")
    envs.save(folder / "vecnormalize.pkl")
    return rl.interop.sb3.load(folder / "model.zip", "shared", folder / "vecnormalize.pkl")


def listen(agent: rl.interop.sb3.SB3Agent, alarm: rl.ShiftAlarm, change: dict, seed: int) -> tuple:
    """An episode with a change in it: when the alarm rang first (infinity: never), and how long it lasted."""
    env, reward, rang, t, over = cartpole(STEPS), 0.0, np.inf, 0, False
    observation, _ = env.reset(seed=seed)
    while not over:
        if t == CHANGED:
            vars(env.unwrapped).update(change)
        step = agent.step(observation, episode_start=t == 0)
        rang = min(rang, t if alarm.step(step.reading, reward=reward).alarm else np.inf)
        observation, reward, terminated, truncated, _ = env.step(int(agent.act(step, deterministic=True)))
        t, over = t + 1, terminated or truncated
    return rang, t


def main() -> None:
    """Train, fit the alarm, change the world, and listen."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        agent = train(Path(folder))
    clean = rl.interop.play.play_gymnasium(agent, cartpole(STEPS), episodes=CLEAN, greedy=True)
    print(rl.fit_predictor(agent.posterior, clean, actions=2))  # what the belief is worth
    alarm = rl.ShiftAlarm.fit(clean, false_alarm_rate=0.05, discount=DISCOUNT)
    print(f"alarms: {alarm.fitted.checked_false_alarms} in {alarm.fitted.checked_episodes} held-out episodes")
    print(f"{TESTS} episodes, changed at step {CHANGED}  early alarms  alarms  median delay  steps")
    for name, change in CHANGES.items():
        rang, lasted = np.array([listen(agent, alarm, change, 1000 + seed) for seed in range(TESTS)]).T
        early, after = sum(rang < CHANGED), rang[rang >= CHANGED]  # Infinity: no alarm.
        delay, steps = np.median(after) - CHANGED, lasted.mean()
        print(f"{name:30} {early:12} {sum(after < np.inf):7} {delay:13.0f} {steps:6.0f}")


if __name__ == "__main__":
    main()
