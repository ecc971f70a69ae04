"""A task of one's own: two doors, a prize behind one of them, and a voice that mostly tells the truth.

Actions: listen, open the left door, open the right one. Listening costs little and gives a hint; the wrong
door costs much, the right one pays 1. The prize stays where it is, so it pays to listen first, and to open
the same door for good after that. An agent that guesses has a regret of 5.5 on average.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

import recurrent_laplace as rl
from recurrent_laplace.errors import check_number


@rl.register_task
@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoDoors(rl.AbstractControlTask):
    """Find out which of two doors has the prize."""

    name: ClassVar[str] = "two_doors"
    policy_input: ClassVar = "belief"

    reliability: float = 0.8
    """Chance that a hint is true."""
    listening_cost: float = 0.1
    """What a hint costs."""
    wrong_door_cost: float = 10.0
    """What the wrong door costs."""

    def check(self) -> None:
        check_number("reliability", self.reliability, least=0.5, most=1)
        check_number("listening_cost", self.listening_cost, least=0)
        check_number("wrong_door_cost", self.wrong_door_cost, least=0)

    @property
    def actions(self) -> int:
        return 3

    @property
    def observation_size(self) -> int:
        return 1

    def sample(self, key: Array, *, test: bool = False) -> Int[Array, ""]:
        del test
        return jax.random.randint(key, (), 1, 3)  # the action that opens the right door

    def reset(self, problem: Array, key: Array) -> tuple[None, Float[Array, " 1"]]:
        del problem, key
        return None, jnp.zeros(1)

    def step(self, problem: Array, state: None, action: Array, key: Array) -> tuple[None, rl.Step]:
        listens = action == 0
        true_hint = jnp.where(problem == 1, -1.0, 1.0)
        hint = jnp.where(jax.random.bernoulli(key, self.reliability), true_hint, -true_hint)
        opened = jnp.where(action == problem, 1.0, -self.wrong_door_cost)
        reward = jnp.where(listens, -self.listening_cost, opened)
        observation = jnp.where(listens, hint, 0.0)[None]
        # An opened door ends nothing: the reward of a good guess later is worth a hint now.
        no = jnp.zeros((), bool)
        return None, rl.Step(observation, reward, terminated=no, truncated=no, regret=1 - reward)


if __name__ == "__main__":
    learning = rl.LearningConfig(
        updates=60, steps=20, batch=64, epochs=4, learning_rate=3e-3, entropy_weight=0.02
    )
    agent = rl.AgentConfig(cell="gru", hidden_size=16, features=4, embedding_sizes=(16,), head_sizes=(32,))
    config = rl.Config(task=rl.make_task("two_doors", reliability=0.8), agent=agent, learning=learning)
    state, metrics = jax.jit(rl.make_train(config))(jax.random.key(0))
    for update in range(0, learning.updates, 10):
        print(f"update {update:2}: regret {metrics['cumulative_regret'][update]:5.1f}")
    print(f"regret in the end: {metrics['cumulative_regret'][-5:].mean():.1f}")
