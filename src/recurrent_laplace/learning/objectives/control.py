"""What objectives of control share: experience, value and belief terms of the loss, minibatches."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

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
    Metrics,
    Noise,
    minibatch_epochs,
)
from recurrent_laplace.learning.objectives.prediction import prediction_losses
from recurrent_laplace.learning.options import LearningConfig
from recurrent_laplace.learning.returns import advantages
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.learning.sharding import REPLICATED, SHARDED, SHARDED_SECOND, shard_over_mesh
from recurrent_laplace.models import Agent, Behaviour
from recurrent_laplace.tasks import AbstractControlTask
from recurrent_laplace.tasks.experience import Experience


class AbstractControlObjective(AbstractObjective):
    """Interface of an objective of control: recurrent actor-critic on whole sequences.

    A subclass implements `loss`; `replay_batch`, `value_loss` and `with_predictions` compute the parts that
    do not depend on the learner.
    """

    task: AbstractControlTask
    acts: ClassVar[bool] = True

    def check(self) -> None:
        if not isinstance(self.task, AbstractControlTask):
            raise ValueError(
                f"objective {self.name!r} learns tasks with actions; {self.task.name!r} is none: "
                f"use objective {self.task.objective!r}."
            )
        self.task.action_space.family(self.agent)

    def make_model(self, key: Array) -> Agent:
        return Agent.init(
            self.agent,
            self.posterior,
            observation_size=self.task.observation_size,
            actions=self.task.action_space,
            policy_input=self.task.policy_input,
            targets=self.task.targets(),
            key=key,
        )

    def gather(self, model: Agent, *, mesh: Mesh | None, key: Array) -> Any:
        return gather(model, self.task, self.learning, mesh=mesh, key=key)

    @property
    def passes(self) -> int:
        return self.learning.epochs

    @property
    def minibatches(self) -> int:
        return self.learning.minibatches

    def learn(
        self,
        step: GradientStep,
        model: Agent,
        optimizer: Any,
        batch: "Batch",
        *,
        variables: Any,
        key: Array,
    ) -> Learned:
        sizes = {"tasks": self.learning.batch, "epochs": self.passes, "minibatches": self.minibatches}
        learned = minibatch_epochs(step, model, optimizer, batch, **sizes, key=key)
        experience = batch.experience
        sums = {"return": experience.reward}
        if experience.regret is not None:
            sums["cumulative_regret"] = experience.regret
        totals = {name: jnp.mean(jnp.sum(values, axis=-1)) for name, values in sums.items()}
        return learned._replace(metrics=learned.metrics | totals, variables=variables)


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
    with_policy: bool = False,
    key: Array,
) -> Batch:
    """Sample problems, roll the agent out in them, and estimate advantages, sharded over `mesh`.

    With `with_policy`, the experience keeps the distributions that acted.
    """
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
                with_policy=with_policy,
                key=key,
            )
            return dataclasses.replace(experience, belief=None), experience.belief

        experience, beliefs = jax.vmap(act_in_task, out_axes=(0, 1))(problems, keys)
        discounts = config.discount * (1 - experience.episode_end.astype(experience.reward.dtype))
        advantage = jax.vmap(advantages, (0, 0, 0, None))(
            experience.reward, discounts, experience.value, config.trace_decay
        )
        return jax.lax.stop_gradient(Batch(experience, advantage, beliefs))

    out_specs = Batch.by_axis(SHARDED, SHARDED_SECOND)
    act = shard_over_mesh(act, mesh, (REPLICATED, SHARDED, SHARDED), out_specs)
    return act(agent, problems, jax.random.split(key_rollout, config.batch))


class BatchReplay(NamedTuple):
    """An agent on the inputs of a batch: its behaviour, the terms of its beliefs, and the inputs of heads."""

    behaviour: Behaviour
    terms: BeliefTerms
    z: Float[Array, "S B T F"]
    embedded: Float[Array, "B T E"]
    context: Float[Array, "B T C"] | None


def replay_batch(
    agent: Agent, batch: Batch, config: LearningConfig, *, key: Array, noise: Noise | None = None
) -> BatchReplay:
    """Unroll an agent along a batch, and sample its beliefs."""
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
    return BatchReplay(agent.behave(z, context), terms, z, embedded, context)


def value_loss(behaviour: Behaviour, batch: Batch) -> Float[Array, ""]:
    """Half the mean squared error of the values, whose targets are those of the advantages."""
    target = batch.advantage + batch.experience.value[..., :-1]
    return 0.5 * jnp.mean((behaviour.value - target) ** 2)


def with_predictions(
    loss: Float[Array, ""],
    metrics: Metrics,
    agent: Agent,
    replay: BatchReplay,
    experience: Experience,
    config: LearningConfig,
) -> tuple[Float[Array, ""], Metrics]:
    """Add the weighted losses of an agent's predictive heads to its loss and metrics."""
    losses = prediction_losses(agent, replay.z, replay.embedded, replay.context, experience)
    for name, loss_of_target in losses.items():
        loss = loss + getattr(config, f"{name}_weight") * loss_of_target
        metrics = metrics | {f"{name}_loss": loss_of_target}
    return loss, metrics
