"""Recurrent V-MPO (Song et al., 2019) with a KL penalty between consecutive beliefs.

The paper's control bound extends that of MPO, which V-MPO optimises on policy. The E-step turns advantages
into weights `psi ~ exp(A / eta)` of the better half of the actions; the M-step maximises the weighted
likelihood of these actions, under a bound of the KL from the policy that acted. The temperature eta and the
multiplier of each bound are dual variables: each minimises its own loss,

    eta eps + eta log mean exp(A / eta)    and    alpha (eps - KL).
"""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float

from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.objectives.base import GradientStep, Learned, LossOutput, Noise, Schedule
from recurrent_laplace.learning.objectives.control import (
    AbstractControlObjective,
    Batch,
    gather,
    replay_batch,
    value_loss,
    with_predictions,
)
from recurrent_laplace.models import Agent


class Duals(NamedTuple):
    """Logarithms of the dual variables."""

    log_temperature: Float[Array, ""]
    log_multipliers: Float[Array, " K"]
    """One for each bound of the policy's KL."""


class DualState(NamedTuple):
    """Dual variables, and the state of their optimiser."""

    duals: Duals
    optimizer: Any


class WeightedBatch(NamedTuple):
    """Batch with the result of the E-step: weights of the log-likelihoods, and the multipliers.

    Weights average to 1 over a minibatch, so that a loss of some of its tasks is a mean, as that of all.
    Multipliers are the same at every step; they have the batch's axes so as to be sharded with it.
    """

    batch: Batch
    weight: Float[Array, "B T"]
    multiplier: Float[Array, "B T K"]

    @staticmethod
    def by_axis(first: Any, second: Any) -> "WeightedBatch":
        """Batch of `first` for leaves whose batch axis is the first, and `second` where it is the second."""
        return WeightedBatch(Batch.by_axis(first, second), first, first)


class VMPO(AbstractControlObjective):
    """Recurrent V-MPO with a KL penalty between consecutive beliefs.

    Like PPO, it makes `epochs` passes over each batch; the bounds hold between the policy that acted and
    those of later passes. It has no entropy bonus: `entropy_weight` and `clip` have no effect.

    **Arguments:** the four sections of an `rl.Config`: `task`, `agent`, `posterior` and `learning`.

    ```python
    learning = rl.LearningConfig(objective="vmpo", epochs=4, policy_kl_bound=0.01)
    train = rl.make_train(rl.Config(task=rl.TwoArmBandit(), learning=learning))
    ```
    """

    name: ClassVar[str] = "vmpo"
    inactive: ClassVar[tuple[str, ...]] = ("clip", "entropy_weight", "final_entropy_weight")

    def check(self) -> None:
        super().check()
        if self.learning.acting_policy == "mixture" and not self.task.action_space.discrete_actions:
            raise ValueError(
                "acting_policy must be 'average' for objective 'vmpo' with continuous actions, since the KL "
                "from a mixture of Gaussians has no closed form; got 'mixture'."
            )

    def init_variables(self) -> DualState:
        bounds = len(self.bounds)
        duals = Duals(jnp.zeros(()), jnp.zeros(bounds))
        return DualState(duals, self.dual_optimizer.init(duals))

    @property
    def bounds(self) -> dict[str, float]:
        """Bounds of the parts of the policy's KL, by the names of the parts."""
        names = self.task.action_space.family(self.agent).kl_names
        # Discrete actions have one part, to which the first bound applies.
        bounds = (self.learning.policy_kl_bound, self.learning.policy_stddev_kl_bound)[: len(names)]
        return dict(zip(names, bounds, strict=True))

    @property
    def dual_optimizer(self) -> optax.GradientTransformation:
        """Optimiser of the dual variables."""
        return optax.adam(self.learning.dual_learning_rate)

    def gather(self, model: Agent, *, mesh: Mesh | None, key: Array) -> Batch:
        return gather(model, self.task, self.learning, mesh=mesh, with_policy=True, key=key)

    def learn(
        self,
        step: GradientStep,
        model: Agent,
        optimizer: Any,
        batch: Batch,
        *,
        variables: DualState,
        key: Array,
    ) -> Learned:
        def dual_step(model: Agent, state: tuple[Any, DualState], batch: Batch, *, key: Array) -> Learned:
            optimizer, dual_state = state
            learned = step(model, optimizer, self.weigh(batch, dual_state.duals), key=key)
            dual_state = self.update_duals(dual_state, batch.advantage, learned.metrics)
            return learned._replace(optimizer=(learned.optimizer, dual_state))

        learned = super().learn(dual_step, model, (optimizer, variables), batch, variables=None, key=key)
        optimizer, variables = learned.optimizer
        duals = variables.duals
        metrics = learned.metrics | {"temperature": jnp.exp(duals.log_temperature)}
        for name, log_multiplier in zip(self.bounds, duals.log_multipliers, strict=True):
            metrics[f"{name}_multiplier"] = jnp.exp(log_multiplier)
        return learned._replace(optimizer=optimizer, metrics=metrics, variables=variables)

    def weigh(self, batch: Batch, duals: Duals) -> WeightedBatch:
        """E-step: weights of the actions of a minibatch."""
        weight = jnp.exp(log_weights(batch.advantage, duals.log_temperature))
        multiplier = jnp.broadcast_to(
            jnp.exp(duals.log_multipliers), (*weight.shape, len(duals.log_multipliers))
        )
        return jax.lax.stop_gradient(WeightedBatch(batch, weight, multiplier))

    def update_duals(
        self, state: DualState, advantage: Float[Array, "B T"], metrics: dict[str, Array]
    ) -> DualState:
        """Gradient step on the losses of the dual variables, with the KL before the step on the weights."""
        kl = jnp.stack([metrics[name] for name in self.bounds])
        excess = kl - jnp.asarray(list(self.bounds.values()), kl.dtype)

        def loss(duals: Duals) -> Float[Array, ""]:
            temperature = temperature_loss(duals.log_temperature, advantage, self.learning.temperature_bound)
            return temperature - jnp.sum(jnp.exp(duals.log_multipliers) * excess)

        changes, optimizer = self.dual_optimizer.update(jax.grad(loss)(state.duals), state.optimizer)
        duals = optax.apply_updates(state.duals, changes)
        assert isinstance(duals, Duals)
        return DualState(duals, optimizer)

    def loss(
        self,
        model: Agent,
        batch: WeightedBatch,
        schedule: Schedule,
        *,
        key: Array,
        noise: Noise | None = None,
    ) -> LossOutput:
        """M-step: weighted negative log-likelihood, policy KL, value loss and KL between beliefs."""
        del schedule
        learning, experience = self.learning, batch.batch.experience
        model = with_lookup(model, self.task, learning.lookup)
        replay = replay_batch(model, batch.batch, learning, key=key, noise=noise)
        behaviour, terms = replay.behaviour, replay.terms
        assert experience.policy is not None
        policy_loss = -jnp.mean(batch.weight * behaviour.log_prob(experience.chosen))
        parts = experience.policy.kl_parts(behaviour.policy)
        penalty = jnp.mean(jnp.sum(batch.multiplier * jnp.stack(parts, axis=-1), axis=-1))
        loss_of_value = value_loss(behaviour, batch.batch)
        loss = (
            learning.policy_weight * (policy_loss + penalty)
            + learning.value_weight * loss_of_value
            + terms.penalty(learning.beta)
        )
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": loss_of_value,
            "policy_entropy": jnp.mean(behaviour.entropy()),
            **{name: jnp.mean(part) for name, part in zip(self.bounds, parts, strict=True)},
            **terms.metrics(),
        }
        loss, metrics = with_predictions(loss, metrics, model, replay, experience, learning)
        return loss, (metrics, terms.finite)


def log_weights(advantage: Float[Array, "B T"], log_temperature: Float[Array, ""]) -> Float[Array, "B T"]:
    """Logarithms of the weights of actions: softmax over the better half, zero for others, with mean 1."""
    scaled = jnp.where(is_better_half(advantage), advantage * jnp.exp(-log_temperature), -jnp.inf)
    return scaled - jax.nn.logsumexp(scaled) + jnp.log(advantage.size)


def temperature_loss(
    log_temperature: Float[Array, ""], advantage: Float[Array, "B T"], bound: float
) -> Float[Array, ""]:
    """Dual loss of the temperature: `eta bound + eta log mean exp(A / eta)`, a mean over the better half."""
    better = is_better_half(advantage)
    temperature = jnp.exp(log_temperature)
    log_sum = jax.nn.logsumexp(advantage / temperature, where=better)
    return temperature * (bound + log_sum - jnp.log(jnp.sum(better)))


def is_better_half(advantage: Float[Array, "B T"]) -> Array:
    """Whether each advantage is at least the median."""
    return advantage >= jnp.median(advantage)
