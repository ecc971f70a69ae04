"""An agent that acts on its belief."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from recurrent_laplace.models.config import AgentConfig, PosteriorConfig
from recurrent_laplace.models.mlp import Embedder, Head
from recurrent_laplace.models.posterior import make_memory, make_posterior
from recurrent_laplace.posterior import AbstractPosterior

POLICY_GAIN = 0.01
"""The first policy is close to uniform."""


class Behaviour(eqx.Module):
    """What the heads say, averaged over draws of the belief: action logits, and the value."""

    logits: Float[Array, "*lead A"]
    value: Float[Array, "*lead"]

    def log_prob(self, action: Int[Array, "*lead"]) -> Float[Array, "*lead"]:
        """Log-probability of an action."""
        log_probs = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Float[Array, "*lead"]:
        """Entropy of the policy in nats, exactly."""
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)


class Agent(eqx.Module):
    """Embedders, a memory, a posterior over its features, and heads on draws from it.

    ```python
    agent = rl.Agent.init(rl.AgentConfig(), rl.PosteriorConfig(kind="laplace"), observation_size=10,
                          actions=4, policy_input="belief_and_observation", key=jax.random.key(0))
    x, seen = agent.embed(observation, previous_action, previous_reward)
    ```
    """

    observation_embedder: Embedder
    action_embedder: Embedder
    reward_embedder: Embedder
    posterior: AbstractPosterior
    policy_head: Head
    value_head: Head
    reward_head: Head | None
    actions: int = eqx.field(static=True)
    policy_input: str = eqx.field(static=True)

    @classmethod
    def init(
        cls,
        config: AgentConfig,
        posterior: PosteriorConfig,
        *,
        observation_size: int,
        actions: int,
        policy_input: Literal["belief", "belief_and_observation", "belief_and_hidden"],
        key: Array,
    ) -> "Agent":
        """A freshly initialised agent; `policy_input` holds unless the configuration has its own."""
        if config.policy_input != "task":
            policy_input = config.policy_input
        keys = iter(jax.random.split(key, 8))
        embedders = [
            Embedder.init(size, config.embedding_sizes, layer_norm=config.layer_norm, key=next(keys))
            for size in (observation_size, actions, 1)
        ]
        embedding_size = config.embedding_sizes[-1]
        memory = make_memory(config, 3 * embedding_size, key=next(keys))
        seen = {
            "belief": 0,
            "belief_and_observation": embedding_size,
            "belief_and_hidden": config.hidden_size,
        }[policy_input]

        def head(output_size: int, last_gain: float = 1.0) -> Head:
            return Head.init(
                config.features + seen,
                config.head_sizes,
                output_size,
                layer_norm=config.layer_norm,
                last_gain=last_gain,
                key=next(keys),
            )

        return cls(
            *embedders,
            posterior=make_posterior(posterior, memory, key=next(keys)),
            policy_head=head(actions, POLICY_GAIN),
            value_head=head(1),
            reward_head=head(actions) if config.reward_model else None,
            actions=actions,
            policy_input=policy_input,
        )

    def embed(
        self, observation: Float[Array, "*lead O"], action: Int[Array, "*lead"], reward: Float[Array, "*lead"]
    ) -> tuple[Float[Array, "*lead D"], Float[Array, "*lead E"]]:
        """The memory's input, from observation, previous action (-1: none) and previous reward.

        The second result is the embedded observation alone.
        """
        seen = self.observation_embedder(observation)
        parts = (
            seen,
            self.action_embedder(jax.nn.one_hot(action, self.actions, dtype=seen.dtype)),
            self.reward_embedder(reward[..., None]),
        )
        return jnp.concatenate(parts, axis=-1), seen

    def seen(
        self, observation: Float[Array, "*lead E"], hidden: Float[Array, "*lead H"]
    ) -> Float[Array, "*lead C"] | None:
        """What the heads see beside the belief, of the embedded observation and the hidden state."""
        match self.policy_input:
            case "belief":
                return None
            case "belief_and_observation":
                return observation
            case _:
                return hidden

    def behave(
        self,
        z: Float[Array, "S *lead F"],
        seen: Float[Array, "*lead C"] | None,
        *,
        policy: Literal["average", "mixture"] = "average",
    ) -> Behaviour:
        """The policy and the value of draws from the belief.

        `policy="average"` averages logits, `"mixture"` probabilities.
        """
        logits = self.policy_head(z, seen)
        if policy == "mixture":
            logits = jax.nn.logsumexp(jax.nn.log_softmax(logits), axis=0) - jnp.log(z.shape[0])
        else:
            logits = jnp.mean(logits, axis=0)
        return Behaviour(logits, jnp.mean(self.value_head(z, seen)[..., 0], axis=0))
