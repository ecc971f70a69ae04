"""The control bound: recurrent PPO, and the KL between consecutive beliefs."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.learning.beliefs import BeliefTerms, draw
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.returns import advantages
from recurrent_laplace.learning.rollout import Experience, rollout
from recurrent_laplace.learning.sharding import COPIED, SHARED, SHARED_SECOND, on_shares
from recurrent_laplace.learning.tables import with_tables
from recurrent_laplace.models import Agent
from recurrent_laplace.models.agent import Behaviour
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.base import Alphabet


class Batch(eqx.Module):
    """Experience of a batch of tasks, and the advantage of each action.

    `beliefs`: those that acted, where they are of use, one more than there are steps. Time is their first
    axis and tasks are the second, as acting leaves them: all of them are half a gigabyte to turn around.
    """

    experience: Experience
    advantage: Float[Array, "B T"]
    beliefs: AbstractBelief | None = None

    @staticmethod
    def of_each(first: Any, second: Any) -> "Batch":
        """Something for each part: `first` where tasks are the first axis, `second` where the second."""
        return Batch(first, first, second)


def gather(
    agent: Agent,
    task: AbstractControlTask,
    config: LearningConfig,
    *,
    mesh: Mesh | None = None,
    key: Array,
) -> Batch:
    """Fresh problems, the agent's experience in them, and its advantages.

    Each device of `mesh` has its share of the tasks.
    """
    key_problem, key_rollout = jax.random.split(key)
    sample = on_shares(jax.vmap(task.sample), mesh, given=(SHARED,))
    problems = sample(jax.random.split(key_problem, config.batch))

    def play(agent, problems, keys):
        def play_one(problem, key):
            experience, _ = rollout(
                agent,
                task,
                problem,
                steps=config.steps,
                samples=config.acting_samples,
                policy=config.acting_policy,
                with_beliefs=config.one_step,
                key=key,
            )
            return eqx.tree_at(lambda e: e.belief, experience, None), experience.belief

        experience, beliefs = jax.vmap(play_one, out_axes=(0, 1))(problems, keys)
        discounts = config.discount * (1 - experience.episode_end.astype(experience.reward.dtype))
        advantage = jax.vmap(advantages, (0, 0, 0, None))(
            experience.reward, discounts, experience.value, config.trace_decay
        )
        return jax.lax.stop_gradient(Batch(experience, advantage, beliefs))

    play = on_shares(play, mesh, (COPIED, SHARED, SHARED), Batch.of_each(SHARED, SHARED_SECOND))
    return play(agent, problems, jax.random.split(key_rollout, config.batch))


def control_loss(
    agent: Agent,
    batch: Batch,
    config: LearningConfig,
    *,
    alphabet: Alphabet | None = None,
    entropy_weight: Float[Array, ""] | float,
    key: Array,
    noise: Float[Array, "S B T F"] | None = None,
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Array]]:
    """The negative bound per step, the numbers to log, and whether all beliefs were finite.

    `alphabet`: of the task, where it has one.
    """
    then = batch.experience
    agent = with_tables(agent, alphabet)
    inputs, embedded = agent.embed(then.observation, then.previous_action, then.previous_reward)
    if batch.beliefs is None:
        trace, beliefs, info = jax.vmap(agent.posterior.unroll_trace)(inputs)
    else:
        # Turned around here, for as many tasks as this loss is of; behind the barrier, so that XLA does not
        # turn around every product with them instead.
        known = jax.lax.optimization_barrier(
            jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:-1], 1, 0), batch.beliefs)
        )
        trace, beliefs, info = jax.vmap(agent.posterior.unroll_again)(inputs, known)
    terms = BeliefTerms.of(agent.posterior, beliefs, info)
    hidden = jax.vmap(jax.vmap(agent.posterior.memory.cell.hidden))(trace.carries)
    seen = agent.seen(embedded, hidden)
    z = draw(beliefs, config.training_samples, key=key, noise=noise)
    behaviour = agent.behave(z, seen)

    ratio = jnp.exp(behaviour.log_prob(then.action) - then.log_prob)
    policy_loss = -jnp.mean(clipped_objective(ratio, batch.advantage, config.clip))
    value_loss = _value_loss(behaviour, batch)
    policy_entropy = jnp.mean(behaviour.entropy())
    loss = (
        config.policy_weight * policy_loss
        + config.value_weight * value_loss
        - entropy_weight * policy_entropy
        + terms.penalty(config.beta)
    )
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "policy_entropy": policy_entropy,
        "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip),
        **terms.metrics(),
    }
    if agent.reward_head is not None:
        logits = jnp.mean(agent.reward_head(z, seen), axis=0)
        chosen = jnp.take_along_axis(logits, then.action[..., None], axis=-1)[..., 0]
        reward_loss = jnp.mean(optax.sigmoid_binary_cross_entropy(chosen, then.reward))
        loss = loss + config.reward_weight * reward_loss
        metrics["reward_loss"] = reward_loss
    return loss, (metrics, terms.finite)


def clipped_objective(
    ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float
) -> Float[Array, "..."]:
    """PPO's pessimistic objective: no gain from moving the ratio further than `clip` from 1."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def _value_loss(behaviour: Behaviour, batch: Batch) -> Float[Array, ""]:
    target = batch.advantage + batch.experience.value[..., :-1]
    return 0.5 * jnp.mean((behaviour.value - target) ** 2)
