"""Small untrained agents and regressors."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import recurrent_laplace as rl


def small_config(hidden_size: int = 8, features: int = 4, **options: Any) -> rl.AgentConfig:
    """Configuration with one layer of `hidden_size` units in each embedder and head."""
    sizes = {"embedding_sizes": (hidden_size,), "head_sizes": (hidden_size,)}
    return rl.AgentConfig(hidden_size=hidden_size, features=features, **sizes, **options)


def randomized(model: Any, seed: int = 0) -> Any:
    """Model of the same shapes with normal weights, so that no policy is uniform and no norm the identity."""
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape)), model)


def small_agent(
    task: Any,
    posterior: Any,
    *,
    key: jax.Array,
    config: rl.AgentConfig | None = None,
    policy_input: str | None = None,
) -> rl.Agent:
    """Untrained agent with the shapes of a task, and its policy input unless another is given."""
    return rl.Agent.init(
        config or small_config(),
        posterior,
        observation_size=task.observation_size,
        actions=task.actions,
        policy_input=policy_input or task.policy_input,
        targets=task.targets(),
        key=key,
    )
