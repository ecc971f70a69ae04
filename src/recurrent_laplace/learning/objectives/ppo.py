"""Recurrent PPO with a KL penalty between consecutive beliefs: the control bound."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractBelief
from recurrent_laplace.learning.beliefs import BeliefTerms, sample_belief
from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.objectives.base import (
    AbstractObjective,
    GradientStep,
    Learned,
    LossOutput,
    Noise,
    Schedule,
    minibatch_epochs,
)
from recurrent_laplace.learning.objectives.prediction import prediction_losses
from recurrent_laplace.learning.options import LearningConfig
from recurrent_laplace.learning.returns import advantages
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.learning.sharding import REPLICATED, SHARDED, SHARDED_SECOND, shard_over_mesh
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.experience import Experience


class PPO(AbstractObjective):
    """Recurrent proximal policy optimisation with a KL penalty between consecutive beliefs.

    **Arguments:** the four sections of an `rl.Config`: `task`, `agent`, `posterior` and `learning`.

    ```python
    learning = rl.LearningConfig(objective="ppo", epochs=4, minibatches=2)
    objective = rl.Config(task=rl.TwoArmBandit(), learning=learning).objective
    objective.passes, objective.minibatches  # (4, 2)
    ```
    """

    task: AbstractControlTask
    name: ClassVar[str] = "ppo"
    acts: ClassVar[bool] = True

    def check(self) -> None:
        if not isinstance(self.task, AbstractControlTask):
            raise ValueError(
                f"objective {self.name!r} learns tasks with actions; {self.task.name!r} is none: "
                f"use objective {self.task.objective!r}."
            )

    def make_model(self, key: Array) -> Agent:
        return Agent.init(
            self.agent,
            self.posterior,
            observation_size=self.task.observation_size,
            actions=self.task.actions,
            policy_input=self.task.policy_input,
            targets=self.task.targets(),
            key=key,
        )

    def gather(self, model: Agent, *, mesh: Mesh | None, key: Array) -> "Batch":
        return gather(model, self.task, self.learning, mesh=mesh, key=key)

    def loss(
        self, model: Agent, batch: "Batch", schedule: Schedule, *, key: Array, noise: Noise | None = None
    ) -> LossOutput:
        learning = self.learning
        weight = schedule.interpolate(
            learning.entropy_weight, learning.final_entropy_weight, reached_by_last=True
        )
        model = with_lookup(model, self.task, learning.lookup)
        return control_loss(model, batch, learning, entropy_weight=weight, key=key, noise=noise)

    @property
    def passes(self) -> int:
        return self.learning.epochs

    @property
    def minibatches(self) -> int:
        return self.learning.minibatches

    def learn(
        self, step: GradientStep, model: Agent, optimizer: Any, batch: "Batch", *, key: Array
    ) -> Learned:
        sizes = {"tasks": self.learning.batch, "epochs": self.passes, "minibatches": self.minibatches}
        learned = minibatch_epochs(step, model, optimizer, batch, **sizes, key=key)
        experience = batch.experience
        sums = {"return": experience.reward}
        if experience.regret is not None:
            sums["cumulative_regret"] = experience.regret
        totals = {name: jnp.mean(jnp.sum(values, axis=-1)) for name, values in sums.items()}
        return learned._replace(metrics=learned.metrics | totals)


class Batch(NamedTuple):
    """Experience of a batch of tasks, and the advantage of each action.

    `beliefs` are those that acted, one more than steps, if the loss can reuse them. Time is their first axis
    and tasks are the second, as the rollout leaves them: to transpose them all would move half a gigabyte.
    """

    experience: Experience
    advantage: Float[Array, "B T"]
    beliefs: AbstractBelief | None = None

    @staticmethod
    def by_axis(first: Any, second: Any) -> "Batch":
        """Batch of `first` for leaves whose batch axis is the first, and `second` where it is the second."""
        return Batch(first, first, second)


def gather(
    agent: Agent,
    task: AbstractControlTask,
    config: LearningConfig,
    *,
    mesh: Mesh | None = None,
    key: Array,
) -> Batch:
    """Sample problems, roll the agent out in them, and estimate advantages, sharded over `mesh`."""
    key_problem, key_rollout = jax.random.split(key)
    sample = shard_over_mesh(jax.vmap(task.sample), mesh, in_specs=(SHARDED,))
    problems = sample(jax.random.split(key_problem, config.batch))

    def act(agent, problems, keys):
        agent = with_lookup(agent, task, config.lookup)

        def act_in_task(problem, key):
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

        experience, beliefs = jax.vmap(act_in_task, out_axes=(0, 1))(problems, keys)
        discounts = config.discount * (1 - experience.episode_end.astype(experience.reward.dtype))
        advantage = jax.vmap(advantages, (0, 0, 0, None))(
            experience.reward, discounts, experience.value, config.trace_decay
        )
        return jax.lax.stop_gradient(Batch(experience, advantage, beliefs))

    out_specs = Batch.by_axis(SHARDED, SHARDED_SECOND)
    act = shard_over_mesh(act, mesh, (REPLICATED, SHARDED, SHARDED), out_specs)
    return act(agent, problems, jax.random.split(key_rollout, config.batch))


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
    inputs, embedded = agent.embed(
        experience.observation, experience.previous_action, experience.previous_reward
    )
    if batch.beliefs is None:
        inference = jax.vmap(agent.posterior.infer)(inputs)
    else:
        # Transposed here, for the tasks of this chunk only; the barrier keeps XLA from transposing every
        # product with them instead.
        acted = jax.lax.optimization_barrier(
            jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:-1], 1, 0), batch.beliefs)
        )
        inference = jax.vmap(lambda x, acted: agent.posterior.infer(x, reuse=acted))(inputs, acted)
    beliefs = inference.belief
    terms = BeliefTerms.of(agent.posterior, beliefs, inference.info, config)
    context = agent.head_context(embedded, inference.trace.hidden)
    z = sample_belief(beliefs, config.training_samples, key=key, noise=noise)
    behaviour = agent.behave(z, context)

    ratio = jnp.exp(behaviour.log_prob(experience.action) - experience.log_prob)
    policy_loss = -jnp.mean(clipped_objective(ratio, batch.advantage, config.clip))
    target = batch.advantage + experience.value[..., :-1]
    value_loss = 0.5 * jnp.mean((behaviour.value - target) ** 2)
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
    for name, loss_of_target in prediction_losses(agent, z, embedded, context, experience).items():
        loss = loss + getattr(config, f"{name}_weight") * loss_of_target
        metrics[f"{name}_loss"] = loss_of_target
    return loss, (metrics, terms.finite)


def clipped_objective(
    ratio: Float[Array, "..."], advantage: Float[Array, "..."], clip: float
) -> Float[Array, "..."]:
    """PPO's clipped surrogate: no gain from moving the ratio further than `clip` from 1."""
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)
