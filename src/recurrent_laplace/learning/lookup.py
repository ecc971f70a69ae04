"""Look-up of embedded inputs, for tasks with few observations and rewards.

An embedded input goes through weights that are the same at every step: the input weights of the memory, and
the first layers of the heads. So every entry of the task's vocabulary is embedded and projected once, and
steps look the results up. A look-up is a product with a one-hot row, so gradients pass through it, and the
recurrence sees an ordinary memory with fewer inputs.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from recurrent_laplace.cells import AbstractGatedCell
from recurrent_laplace.models import Agent
from recurrent_laplace.models.layers import AbstractEmbedder, AbstractHead, Head, HeadContext
from recurrent_laplace.posterior import Predictor
from recurrent_laplace.tasks import AbstractControlTask, Vocabulary


class OneHotLookup(AbstractEmbedder):
    """One-hot index of an input among the entries of a vocabulary; NaN for an input that is not listed."""

    entries: Float[Array, "N I"]

    @property
    def input_size(self) -> int:
        return self.entries.shape[1]

    def __call__(self, x: Float[Array, "*lead I"]) -> Float[Array, "*lead N"]:
        dtype = self.entries.dtype
        same = jnp.all(x[..., None, :].astype(dtype) == self.entries, axis=-1)
        return jnp.where(jnp.any(same, axis=-1, keepdims=True), same.astype(dtype), jnp.nan)


class LookupHead(AbstractHead):
    """Head whose first layer has been applied to every entry of the vocabulary."""

    head: Head
    contexts: HeadContext

    def __call__(
        self, z: Float[Array, "*lead F"], context: Float[Array, "*some N"] | None = None
    ) -> Float[Array, "*out M"]:
        """Outputs for features `z` and a one-hot `context`, which broadcasts against `z`."""
        assert context is not None
        return self.head.apply_with(z, jax.tree.map(lambda rows: context @ rows, self.contexts))


def with_lookup(agent: Agent, task: AbstractControlTask, enabled: bool) -> Agent:
    """Agent with look-ups instead of embedders, if `enabled` and the task has a vocabulary.

    Call it inside the differentiated function: gradients go through the tables to the weights.
    """
    vocabulary = task.vocabulary() if enabled else None
    return agent if vocabulary is None else look_up(agent, vocabulary)


def look_up(agent: Agent, vocabulary: Vocabulary) -> Agent:
    """Agent with look-ups of a vocabulary instead of embedders.

    The agent is returned unchanged where look-ups do not pay: for a long vocabulary, a memory of several
    layers, or continuous actions.
    """
    memory = agent.posterior.memory
    if memory.below or agent.actions == 0 or not isinstance(memory.cell, AbstractGatedCell):
        return agent
    embedders = (agent.observation_embedder, agent.action_embedder, agent.reward_embedder)
    # Before the first step there is no action, and the reward is zero.
    actions = np.eye(agent.actions + 1, agent.actions)
    rewards = np.union1d(vocabulary.rewards, 0.0)[:, None]
    entries = [
        jnp.asarray(np.unique(rows, axis=0), memory.dtype)
        for rows in (vocabulary.observations, actions, rewards)
    ]
    if sum(len(rows) for rows in entries) > memory.cell.weight_ih.shape[1]:
        return agent
    embedded = [embed(rows) for embed, rows in zip(embedders, entries, strict=True)]
    weights = jnp.split(memory.cell.weight_ih, len(embedded), axis=1)
    weight_ih = jnp.concatenate(
        [weight @ rows.T for weight, rows in zip(weights, embedded, strict=True)], axis=1
    )
    agent = eqx.tree_at(
        lambda a: (a.observation_embedder, a.action_embedder, a.reward_embedder, a.posterior.memory.cell),
        agent,
        (*map(OneHotLookup, entries), memory.cell.with_input_weights(weight_ih)),
    )
    if agent.predictor is not None:
        predictor, head = agent.predictor, agent.predictor.head
        assert isinstance(head, Head)
        looked_up = Predictor(
            LookupHead(head, head.project(embedded[0])),
            predictor.likelihood,
            context_size=len(entries[0]),
            actions=predictor.actions,
        )
        agent = eqx.tree_at(lambda a: a.predictor, agent, looked_up)
    if agent.policy_input != "belief_and_observation":
        return agent
    heads = lambda a: [h for h in (a.policy_head, a.value_head, a.reward_head) if h is not None]  # noqa: E731
    return eqx.tree_at(heads, agent, [LookupHead(head, head.project(embedded[0])) for head in heads(agent)])
