"""The child process of `peers.py` that trains RecurrentPPO of sb3-contrib.

An episode of Stable-Baselines3 is a task of 100 steps: `done` resets its memory and ends its returns, and
comes after the last step of a task only. An episode inside a task ends at the goal or after 15 steps without
a `done`. The end of a task is marked as truncated, so that the value of its last input is bootstrapped.
"""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from peers_curve import STEPS, Curve, Request, run
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from recurrent_laplace.tasks import Gridworld

HIDDEN, HEAD = 64, 64
"""Sizes of the laptop preset."""
FOREVER = 10**12
"""Steps to ask for; the clock ends the training."""


class Tasks(VecEnv):
    """Gridworlds in one compiled program; inputs are the observation, previous action and previous reward."""

    def __init__(self, task: Gridworld, tasks: int, seed: int):
        self.task = task
        width = task.observation_size + task.actions + 1
        space = gymnasium.spaces.Box(0.0, 1.0, (width,), np.float32)
        super().__init__(tasks, space, gymnasium.spaces.Discrete(task.actions))
        self._key = jax.random.key(seed)
        self._started = 0
        self._sample = jax.jit(jax.vmap(self._start))
        self._advance = jax.jit(jax.vmap(self._move))

    def reset(self) -> np.ndarray:
        """Begin with new problems."""
        keys = jax.random.split(jax.random.fold_in(self._key, self._started), self.num_envs)
        self._started += 1
        self._steps = 0
        self._problems, self._worlds, inputs = self._sample(keys)
        return np.array(inputs)  # PyTorch wants a writable one.

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions."""
        self._actions = jnp.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Make a step of all tasks, which end together."""
        self._worlds, inputs, rewards = self._advance(self._problems, self._worlds, self._actions)
        self._steps += 1
        ends = self._steps == STEPS
        inputs, rewards = np.array(inputs), np.array(rewards, np.float32)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if ends:
            infos = [{"TimeLimit.truncated": True, "terminal_observation": row} for row in inputs]
            inputs = self.reset()
        return inputs, rewards, np.full(self.num_envs, ends), infos

    def _start(self, key: jax.Array) -> tuple[Any, Any, jax.Array]:
        key_problem, key_world = jax.random.split(key)
        problem = self.task.sample(key_problem)
        world, observation = self.task.reset(problem, key_world)
        return problem, world, jnp.concatenate([observation, jnp.zeros(self.task.actions + 1)])

    def _move(self, problem: Any, world: Any, action: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        world, outcome = self.task.step(problem, world, action, jax.random.key(0))  # Needs no noise.
        previous = jax.nn.one_hot(action, self.task.actions)
        inputs = jnp.concatenate([outcome.observation, previous, outcome.reward[None]])
        return world, inputs, outcome.reward

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Attribute of every task, such as `render_mode`, which they have not."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Tasks have no attributes."""
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Tasks have no methods."""
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Tasks are not wrapped."""
        return [False] * self.num_envs


class Clock(BaseCallback):
    """Measures the return before each rollout, and ends the training in time."""

    def __init__(self, curve: Curve, evaluate: Any):
        super().__init__()
        self.curve, self.evaluate = curve, evaluate

    def _on_rollout_start(self) -> None:
        if not self.curve.is_over:
            self.curve.measure(self.num_timesteps, self.evaluate)

    def _on_step(self) -> bool:
        return not self.curve.is_over


def train(request: Request, curve: Curve) -> None:
    """Train with `settings` as arguments of `RecurrentPPO`, in `num_envs` tasks at once."""
    settings = dict(request.settings)
    environment = Tasks(Gridworld(), settings.pop("num_envs"), request.seed)
    sizes = {"lstm_hidden_size": HIDDEN, "net_arch": [HEAD]}
    agent = RecurrentPPO(
        "MlpLstmPolicy", environment, policy_kwargs=sizes, seed=request.seed, device="cpu", **settings
    )

    def evaluate(seed: int) -> float:
        tests = Tasks(environment.task, request.tasks, seed)
        inputs, memory, starts = tests.reset(), None, np.ones(request.tasks, bool)
        total = 0.0
        for _ in range(STEPS):
            actions, memory = agent.predict(inputs, state=memory, episode_start=starts, deterministic=False)
            inputs, rewards, starts, _ = tests.step(actions)
            total += float(rewards.sum())
        return total / request.tasks

    agent.learn(FOREVER, callback=Clock(curve, evaluate))
    curve.measure(agent.num_timesteps, evaluate, last=True)


if __name__ == "__main__":
    run(train, ["sb3-contrib", "stable-baselines3", "torch"])
