"""The child process of `peers.py` that trains PPO of memorax 1.0.1 with an LSTM.

An episode of memorax is a task of 100 steps: `done` resets its memory and ends its returns, and comes after
the last step of a task only. An episode inside a task ends at the goal or after 15 steps without a `done`.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from gymnax.environments import spaces
from memorax.algorithms import PPO, PPOConfig
from memorax.networks import MLP, RNN, Network, SequenceModelWrapper, Stack, heads
from peers_curve import STEPS, Curve, Request, run

from recurrent_laplace.tasks import Gridworld

STEPS_PER_CALL = 6400
"""Steps of experience between two looks at the clock."""

EMBEDDING, HIDDEN, HEAD = 32, 64, 64
"""Sizes of the laptop preset."""


class TaskState(NamedTuple):
    """A problem, the state of the world in it, and the number of steps made."""

    problem: Any
    world: Any
    steps: jax.Array


class TaskEnvironment:
    """The gridworld with the interface of gymnax that memorax calls; a new problem follows the last step."""

    def __init__(self, task: Gridworld):
        self.task = task

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Space of the actions."""
        del params
        return spaces.Discrete(self.task.actions)

    def reset(self, key: jax.Array, params: Any = None) -> tuple[jax.Array, TaskState]:
        """Sample a problem."""
        del params
        key_problem, key_world = jax.random.split(key)
        problem = self.task.sample(key_problem)
        world, observation = self.task.reset(problem, key_world)
        return observation, TaskState(problem, world, jnp.zeros((), int))

    def step(
        self, key: jax.Array, state: TaskState, action: jax.Array, params: Any = None
    ) -> tuple[jax.Array, TaskState, jax.Array, jax.Array, dict]:
        """Make a step; `done` is the end of the task."""
        key_step, key_reset = jax.random.split(key)
        world, outcome = self.task.step(state.problem, state.world, action, key_step)
        following = TaskState(state.problem, world, state.steps + 1)
        done = following.steps == STEPS
        other = self.reset(key_reset, params)
        observation, following = jax.tree.map(
            lambda new, old: jnp.where(done, new, old), other, (outcome.observation, following)
        )
        return observation, following, outcome.reward, done, {}


class Inputs(nn.Module):
    """Embedding of the observation, the previous action and the previous reward.

    At the start of a task memorax shows the last action and reward of the task before when it acts, and zeros
    when it learns; here they are zero in both.
    """

    actions: int

    @nn.compact
    def __call__(self, observation, *, action, reward, done, **_):
        kept = 1.0 - done[..., None]
        previous = kept * jax.nn.one_hot(action, self.actions)
        return nn.relu(nn.Dense(EMBEDDING)(jnp.concatenate([observation, previous, kept * reward], axis=-1)))


def make_network(head: nn.Module, actions: int) -> Network:
    """LSTM of the width of the laptop preset, and a hidden layer before the head."""
    torso = Stack((RNN(nn.OptimizedLSTMCell(HIDDEN)), SequenceModelWrapper(MLP(HEAD))))
    return Network(Inputs(actions), torso, head)


def train(request: Request, curve: Curve) -> None:
    """Train with a `PPOConfig` of `settings`, and Adam with their `learning_rate` and `gradient_norm`."""
    settings = dict(request.settings)
    rate, norm = settings.pop("learning_rate"), settings.pop("gradient_norm")
    config = PPOConfig(name="PPO", num_eval_envs=request.tasks, **settings)
    environment = TaskEnvironment(Gridworld())
    actions = environment.task.actions
    actor, critic = (make_network(head, actions) for head in (heads.Categorical(actions), heads.VNetwork()))
    optimizers = [optax.chain(optax.clip_by_global_norm(norm), optax.adam(rate)) for _ in range(2)]
    agent = PPO(config, environment, None, actor, critic, *optimizers)

    key, state = agent.init(jax.random.key(request.seed))
    steps = config.batch_size * max(STEPS_PER_CALL // config.batch_size, 1)

    def evaluate(seed: int) -> float:
        # All test tasks begin at once and end with the last step.
        _, transitions = agent.evaluate(jax.random.key(seed), state, STEPS, deterministic=False)
        return float(transitions.reward.sum() / request.tasks)

    done = 0
    while not curve.is_over:
        curve.measure(done, evaluate)
        key, state, _ = jax.block_until_ready(agent.train(key, state, steps))
        done += steps
    curve.measure(done, evaluate, last=True)


if __name__ == "__main__":
    run(train, ["memorax", "jax", "flax"])
