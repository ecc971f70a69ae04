"""Agents in a task whose inputs are few: each is embedded once, not at every step.

An embedded input goes through weights that are the same at every step: those of the memory, and those of
the heads' first layers. So it is enough to send every letter of the task's alphabet through embedders
and weights, and to look the results up. A look-up is the product with a one-hot row: the gradient of
that is a product too, and the recurrence sees nothing but a memory with other, fewer inputs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.cells import AbstractGatedCell
from recurrent_laplace.models import Agent
from recurrent_laplace.models.mlp import Head, Look
from recurrent_laplace.tasks.base import Alphabet


class Speller(eqx.Module):
    """Which of a few letters an input is, one-hot: NaN where it is none of them, so that it is noticed."""

    letters: Float[Array, "N I"]

    def __call__(self, x: Float[Array, "*lead I"]) -> Float[Array, "*lead N"]:
        dtype = self.letters.dtype
        same = jnp.all(x[..., None, :].astype(dtype) == self.letters, axis=-1)
        return jnp.where(jnp.any(same, axis=-1, keepdims=True), same.astype(dtype), jnp.nan)


class TableHead(eqx.Module):
    """A head that has looked at every letter."""

    head: Head
    looks: Look

    def __call__(
        self, z: Float[Array, "*lead F"], seen: Float[Array, "*some N"] | None = None
    ) -> Float[Array, "*lead M"]:
        """`seen`: a letter, one-hot; it broadcasts against the leading axes of `z`."""
        assert seen is not None
        return self.head.after_look(z, jax.tree.map(lambda rows: seen @ rows, self.looks))


def with_tables(agent: Agent, alphabet: Alphabet | None) -> Agent:
    """The same agent, made for inputs of an alphabet: it spells its inputs where it embedded them.

    Without an alphabet, or with one that is too long for tables to pay, it stays as it is. To be called
    where the agent is used, so that gradients go through the tables to the weights that made them.
    """
    memory = agent.posterior.memory
    if alphabet is None or memory.below or not isinstance(memory.cell, AbstractGatedCell):
        return agent
    embedders = (agent.observation_embedder, agent.action_embedder, agent.reward_embedder)
    # Before the first step there is no action, and the reward is zero.
    actions = np.eye(agent.actions + 1, agent.actions)
    rewards = np.union1d(alphabet.rewards, 0.0)[:, None]
    letters = [
        jnp.asarray(np.unique(few, axis=0), memory.dtype) for few in (alphabet.observations, actions, rewards)
    ]
    if sum(len(few) for few in letters) > memory.cell.weight_ih.shape[1]:
        return agent
    embedded = [embed(few) for embed, few in zip(embedders, letters, strict=True)]
    weights = jnp.split(memory.cell.weight_ih, len(embedded), axis=1)
    weight_ih = jnp.concatenate(
        [weight @ few.T for weight, few in zip(weights, embedded, strict=True)], axis=1
    )
    agent = eqx.tree_at(
        lambda a: (a.observation_embedder, a.action_embedder, a.reward_embedder, a.posterior.memory.cell),
        agent,
        (*map(Speller, letters), memory.cell.with_input_weights(weight_ih)),
    )
    if agent.policy_input != "belief_and_observation":
        return agent
    heads = lambda a: [h for h in (a.policy_head, a.value_head, a.reward_head) if h is not None]  # noqa: E731
    return eqx.tree_at(heads, agent, [TableHead(head, head.look(embedded[0])) for head in heads(agent)])
