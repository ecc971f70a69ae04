"""Recurrent PPO with a KL penalty between consecutive beliefs: the control bound."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.objectives.base import LossOutput, Noise, Schedule
from recurrent_laplace.learning.objectives.control import (
    AbstractControlObjective,
    Batch,
    replay_batch,
    value_loss,
    with_predictions,
)
from recurrent_laplace.learning.options import LearningConfig, VMPOOptions
from recurrent_laplace.models import Agent


class PPO(AbstractControlObjective):
    """Recurrent proximal policy optimisation with a KL penalty between consecutive beliefs.

    **Arguments:** the four sections of an `rl.Config`: `task`, `agent`, `posterior` and `learning`.

    ```python
    learning = rl.LearningConfig(objective="ppo", epochs=4, minibatches=2)
    objective = rl.Config(task=rl.TwoArmBandit(), learning=learning).objective
    objective.passes, objective.minibatches  # (4, 2)
    ```
    """

    name: ClassVar[str] = "ppo"
    inactive: ClassVar[tuple[str, ...]] = tuple(field.name for field in dataclasses.fields(VMPOOptions))

    def loss(
        self, model: Agent, batch: Batch, schedule: Schedule, *, key: Array, noise: Noise | None = None
    ) -> LossOutput:
        learning = self.learning
        weight = schedule.interpolate(
            learning.entropy_weight, learning.final_entropy_weight, reached_by_last=True
        )
        model = with_lookup(model, self.task, learning.lookup)
        return control_loss(model, batch, learning, entropy_weight=weight, key=key, noise=noise)


def control_loss(
    agent: Agent,
    batch: Batch,
    config: LearningConfig,
    *,
    entropy_weight: Float[Array, ""] | float,
    key: Array,
    noise: Noise | None = None,
) -> LossOutput:
    """Negative bound per step, metrics to log, and whether all beliefs are finite."""
    experience = batch.experience
    replay = replay_batch(agent, batch, config, key=key, noise=noise)
    behaviour, terms = replay.behaviour, replay.terms

    ratio = jnp.exp(behaviour.log_prob(experience.chosen) - experience.log_prob)
    policy_loss = -jnp.mean(clipped_objective(ratio, batch.advantage, config.clip))
    loss_of_value = value_loss(behaviour, batch)
    policy_entropy = jnp.mean(behaviour.entropy())
    loss = (
        config.policy_weight * policy_loss
        + config.value_weight * loss_of_value
        - entropy_weight * policy_entropy
        + terms.penalty(config.beta)
    )
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": loss_of_value,
        "policy_entropy": policy_entropy,
        "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > config.clip),
        **terms.metrics(),
    }
    loss, metrics = with_predictions(loss, metrics, agent, replay, experience, config)
    return loss, (metrics, terms.finite)


def clipped_objective(
    ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float
) -> Float[Array, "..."]:
    """PPO's clipped surrogate: no gain from moving the ratio further than `clip` from 1."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
