"""A task from outside of the package: a prize behind one of two doors, and a voice that names one of them.

A problem is the probability that the voice names the right door: high for a friend, low for a liar. It is
hidden from the agent, which has to infer it from the outcomes of earlier doors.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

import recurrent_laplace as rl
from recurrent_laplace.errors import check_number


class Round(eqx.Module):
    """One prize: which door the voice names, and whether that is true."""

    named: Int[Array, ""]
    true: Bool[Array, ""]


@rl.register_task(parameters=lambda task, problem: problem[None])  # the parameters of a problem, as a vector
@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoDoors(rl.AbstractControlTask):
    """Find out whether to trust a voice that names one of two doors."""

    name: ClassVar[str] = "two_doors"
    policy_input: ClassVar = "belief_and_observation"

    reliability: float = 0.8
    """Chance that a friend tells the truth, and that a liar does not."""

    def check(self) -> None:
        check_number("reliability", self.reliability, least=0.5, most=1)

    @property
    def action_space(self) -> rl.Discrete:
        return rl.Discrete(2)

    @property
    def observation_size(self) -> int:
        return 2

    def sample(self, key: Array, *, test: bool = False) -> Float[Array, ""]:
        del test  # the same distribution as in training
        return jnp.where(jax.random.bernoulli(key), self.reliability, 1 - self.reliability)

    def reset(self, problem: Array, key: Array) -> tuple[Round, Float[Array, " 2"]]:
        key_named, key_true = jax.random.split(key)
        now = Round(jax.random.randint(key_named, (), 0, 2), jax.random.bernoulli(key_true, problem))
        return now, jax.nn.one_hot(now.named, 2)

    def step(self, problem: Array, state: Round, action: Array, key: Array) -> tuple[Round, rl.Step]:
        trusts = action == state.named
        reward = (trusts == state.true).astype(float)
        regret = self.reliability - jnp.where(trusts, problem, 1 - problem)
        following, observation = self.reset(problem, key)
        yes, no = jnp.ones((), bool), jnp.zeros((), bool)  # a door is an episode, as a bandit's pull
        return following, rl.Step(observation, reward, terminated=yes, truncated=no, regret=regret)


if __name__ == "__main__":
    agent = rl.AgentConfig(cell="gru", hidden_size=32, features=8, embedding_sizes=(32,), head_sizes=(64,))
    learning = rl.LearningConfig(
        updates=60, steps=20, batch=64, epochs=4, learning_rate=5e-3, entropy_weight=0.05
    )
    config = rl.Config(task=rl.make_task("two_doors", reliability=0.8), agent=agent, learning=learning)
    # A seed can be slow to learn to use its memory: three seeds in one program, and their median.
    train = jax.jit(jax.vmap(rl.make_train(config)))
    _, metrics = train(jax.random.split(jax.random.key(0), 3))
    regret = jnp.median(metrics["cumulative_regret"], axis=0)
    for update in range(0, learning.updates, 20):
        print(f"update {update:2}: regret {regret[update]:.2f}")
    print(f"regret of 20 doors: {regret[0]:.2f} at first, {regret[-1]:.2f} in the end")
