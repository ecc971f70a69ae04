"""Recurrent agent whose policy and value depend on its belief."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.models.actions import AbstractActionSpace, Discrete, as_action_space
from recurrent_laplace.models.config import PREDICTED, AgentConfig, PolicyInput
from recurrent_laplace.models.initialization import flax_initialized
from recurrent_laplace.models.layers import AbstractEmbedder, AbstractHead, Embedder, Head
from recurrent_laplace.models.policies import (
    POLICY_GAIN,
    AbstractPolicy,
    AbstractPolicyFamily,
    Averaging,
    Categorical,
    CategoricalFamily,
    GaussianHead,
)
from recurrent_laplace.models.posterior import make_memory
from recurrent_laplace.models.posterior_config import AbstractPosteriorConfig
from recurrent_laplace.posterior import AbstractLikelihood, AbstractPosterior, JointLikelihood, Predictor

OPTIONAL_IN_FILES = {"optional_in_files": True}
"""Metadata of a field that files of earlier versions lack; it is written only if it has a value."""


class Behaviour(eqx.Module):
    """Policy and value of an agent, averaged over samples from the belief.

    **Arguments:** `policy`, a distribution of actions or the logits of a categorical one, of shape
    `(*leading, A)`; `value` of shape `leading`.

    ```python
    behaviour = rl.Behaviour(jnp.zeros(4), jnp.zeros(()))
    behaviour.log_prob(jnp.array(2)), behaviour.entropy()  # -log(4), log(4)
    ```
    """

    policy: AbstractPolicy
    value: Float[Array, "*lead"]

    def __init__(self, policy: AbstractPolicy | Float[Array, "*lead A"], value: Float[Array, "*lead"]):
        self.policy = policy if isinstance(policy, AbstractPolicy) else Categorical(policy)
        self.value = value

    @property
    def logits(self) -> Any:
        """Logits of discrete actions."""
        assert isinstance(self.policy, Categorical), "continuous actions have no logits"
        return self.policy.logits

    def log_prob(self, choice: Array) -> Float[Array, "*lead"]:
        """Log-probability of discrete actions, or log-density of the actions of continuous choices."""
        return self.policy.log_prob(choice)

    def entropy(self) -> Float[Array, "*lead"]:
        """Entropy of the policy in nats."""
        return self.policy.entropy()


class Agent(eqx.Module):
    """Agent with embedders, a memory, a posterior over its features, and heads on samples from it.

    `Agent.init` makes one from a configuration.

    **Arguments:**

    - `observation_embedder`, `action_embedder`, `reward_embedder`: embedders of the observation, the previous
      action and the previous reward, whose outputs together are the input of the memory.
    - `posterior`: posterior over the features of the memory, which it contains.
    - `policy_head`, `value_head`: heads of the policy's parameters (logits of discrete actions, mean and
      log-stddev of continuous ones) and of the value.
    - `reward_head`: head of the reward of each action, or None.
    - `actions`: number of discrete actions, or 0.
    - `policy_input`: input of the heads: `"belief"`, `"belief_and_observation"` or `"belief_and_hidden"`.
    - `predictor`: predictive head of what follows each action, given the embedded observation, or None.
    - `continuous`: family of the policies of continuous actions, or None.

    ```python
    agent = rl.Agent.init(
        rl.AgentConfig(), rl.LaplaceConfig(),
        observation_size=10, actions=4, policy_input="belief_and_observation", key=jax.random.key(0),
    )
    x, embedded = agent.embed(jnp.ones(10), jnp.array(-1), jnp.array(0.0))
    state, belief = agent.posterior.update(agent.posterior.init(), x)
    behaviour = agent.behave(belief.sample(jax.random.key(1), (10,)), embedded)
    ```
    """

    observation_embedder: AbstractEmbedder
    action_embedder: AbstractEmbedder
    reward_embedder: AbstractEmbedder
    posterior: AbstractPosterior
    policy_head: AbstractHead | GaussianHead
    value_head: AbstractHead
    reward_head: AbstractHead | None
    actions: int = eqx.field(static=True)
    policy_input: PolicyInput = eqx.field(static=True)
    predictor: Predictor | None = eqx.field(default=None, metadata=OPTIONAL_IN_FILES)
    continuous: AbstractPolicyFamily | None = eqx.field(default=None, static=True, metadata=OPTIONAL_IN_FILES)

    @classmethod
    def init(
        cls,
        config: AgentConfig,
        posterior: AbstractPosteriorConfig,
        *,
        observation_size: int,
        actions: int | AbstractActionSpace,
        policy_input: PolicyInput,
        targets: Mapping[str, AbstractLikelihood] | None = None,
        key: Array,
    ) -> "Agent":
        """Initialise an agent.

        **Arguments:**

        - `config`: sizes of the network.
        - `posterior`: configuration of the posterior on its memory.
        - `observation_size`: length of an observation.
        - `actions`: number of discrete actions, or an action space, as `task.action_space`.
        - `policy_input`: input of the heads, unless `config.policy_input` overrides it.
        - `targets`: likelihoods of the reward and the next observation, as those of `task.targets()`; needed
          for `config.predict`.
        - `key`: random key for the initial weights.
        """
        if config.policy_input != "task":
            policy_input = config.policy_input
        space = as_action_space(actions)
        family = space.family(config)
        keys = iter(jax.random.split(key, 8))
        embedders = [
            Embedder.init(size, config.embedding_sizes, layer_norm=config.layer_norm, key=next(keys))
            for size in (observation_size, space.size, 1)
        ]
        embedding_size = config.embedding_sizes[-1]
        memory = make_memory(config, 3 * embedding_size, key=next(keys))
        context_size = {
            "belief": 0,
            "belief_and_observation": embedding_size,
            "belief_and_hidden": config.hidden_size,
        }[policy_input]

        def head(output_size: int, last_gain: float = 1.0) -> Head:
            return Head.init(
                config.features + context_size,
                config.head_sizes,
                output_size,
                layer_norm=config.layer_norm,
                last_gain=last_gain,
                key=next(keys),
            )

        agent = cls(
            *embedders,
            posterior=posterior.build(memory, key=next(keys)),
            policy_head=family.make_head(head),
            value_head=head(1),
            reward_head=head(space.count) if config.reward_model else None,
            actions=space.discrete_actions,
            policy_input=policy_input,
            predictor=_make_predictor(config, targets, space, key=jax.random.fold_in(key, 1)),
            continuous=None if space.discrete_actions else family,
        )
        if config.initialization == "pytorch":
            return agent
        agent = flax_initialized(agent, key=jax.random.fold_in(key, 0))
        return eqx.tree_at(
            lambda agent: family.network(agent.policy_head).mlp.layers[-1].weight,
            agent,
            replace_fn=lambda w: POLICY_GAIN * w,
        )

    @property
    def family(self) -> AbstractPolicyFamily:
        """Family of the agent's policies."""
        return CategoricalFamily(Discrete(self.actions)) if self.continuous is None else self.continuous

    @property
    def action_space(self) -> AbstractActionSpace:
        """Action space of the tasks that the agent acts in."""
        return self.family.space

    def embed(
        self, observation: Float[Array, "*lead O"], action: Array, reward: Float[Array, "*lead"]
    ) -> tuple[Float[Array, "*lead D"], Float[Array, "*lead E"]]:
        """Input of the memory, and the embedded observation, which is a part of it.

        `action` and `reward` are the previous ones; at the first step, `action_space.none` (-1 for discrete
        actions, NaN for continuous ones) and 0.
        """
        embedded = self.observation_embedder(observation)
        parts = (
            embedded,
            self.action_embedder(self.action_space.encode(action, embedded.dtype)),
            self.reward_embedder(reward[..., None]),
        )
        return jnp.concatenate(parts, axis=-1), embedded

    def head_context(
        self, observation: Float[Array, "*lead E"], hidden: Float[Array, "*lead H"]
    ) -> Float[Array, "*lead C"] | None:
        """Further input of the heads, by `policy_input`: embedded observation, hidden state or None."""
        match self.policy_input:
            case "belief":
                return None
            case "belief_and_observation":
                return observation
            case "belief_and_hidden":
                return hidden

    def queries(self, observation: Float[Array, "T O"], previous_action: Array) -> Float[Array, "T Q"]:
        """Queries that the inputs of an episode answer: the previous embedded observations and actions.

        The first input answers none. An `rl.LikelihoodPosterior` with the agent's predictor needs them.
        """
        if self.predictor is None:
            raise ValueError("queries need a predictor, and this agent has none: set AgentConfig.predict.")
        embedded = self.observation_embedder(observation[:-1])
        asked = self.action_space.query(self.predictor, embedded, previous_action[1:])
        return jnp.concatenate([jnp.full_like(asked[:1], jnp.nan), asked])

    def policy(
        self,
        z: Float[Array, "S *lead F"],
        context: Float[Array, "*lead C"] | None,
        *,
        policy: Averaging = "average",
    ) -> AbstractPolicy:
        """Policy, averaged over samples `z` from the belief.

        `policy="average"` averages logits, or means and variances; `"mixture"` averages probabilities.
        """
        return self.family.policy(self.policy_head(z, context), policy)

    def logits(
        self,
        z: Float[Array, "S *lead F"],
        context: Float[Array, "*lead C"] | None,
        *,
        policy: Averaging = "average",
    ) -> Float[Array, "*lead A"]:
        """Logits of the policy over discrete actions, averaged over samples `z` from the belief."""
        categorical = self.policy(z, context, policy=policy)
        assert isinstance(categorical, Categorical), "continuous actions have no logits"
        return categorical.logits

    def behave(
        self,
        z: Float[Array, "S *lead F"],
        context: Float[Array, "*lead C"] | None,
        *,
        policy: Averaging = "average",
    ) -> Behaviour:
        """Policy and value, averaged over samples `z` from the belief."""
        value = jnp.mean(self.value_head(z, context)[..., 0], axis=0)
        return Behaviour(self.policy(z, context, policy=policy), value)


def _make_predictor(
    config: AgentConfig,
    targets: Mapping[str, AbstractLikelihood] | None,
    space: AbstractActionSpace,
    *,
    key: Array,
) -> Predictor | None:
    """Initialise the predictive head of `config.predict`."""
    if not config.predict:
        return None
    if targets is None:
        raise ValueError("targets must be given to predict them, such as task.targets(); got None.")
    names = tuple(name for name in PREDICTED if name in config.predict)
    likelihood = JointLikelihood(names, tuple(targets[name] for name in names))
    # One output for each discrete action, or the action as a part of the context.
    actions = space.discrete_actions
    context_size = config.embedding_sizes[-1] + (0 if actions else space.size)
    head = Head.init(
        config.features + context_size,
        config.head_sizes,
        max(actions, 1) * likelihood.size,
        layer_norm=config.layer_norm,
        key=key,
    )
    return Predictor(head, likelihood, context_size=context_size, actions=actions)
