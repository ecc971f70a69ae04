"""Interface of an objective: experience, loss, and gradient steps on a batch."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int

from recurrent_laplace.learning.options import LearningConfig
from recurrent_laplace.models import AbstractPosteriorConfig, AgentConfig
from recurrent_laplace.tasks import AbstractTask

Model = Any
"""`Agent`, `Regressor`, or the model of a custom objective."""
Batch = Any
"""Pytree with leading axes of tasks and time, and a method `by_axis` (see `AbstractObjective.gather`)."""
Noise = Float[Array, "S B T F"]
"""Standard normal numbers that perturb S samples of each belief."""
Metrics = dict[str, Float[Array, ""]]
LossOutput = tuple[Float[Array, ""], tuple[Metrics, Bool[Array, ""]]]
"""The loss, and a pair of metrics to log and whether all beliefs are finite."""


class Schedule(NamedTuple):
    """Position in training: the index of this update, and the number of all updates."""

    update: Int[Array, ""]
    updates: Int[Array, ""] | int

    def interpolate(self, first: float, last: float | None, *, reached_by_last: bool) -> Array | float:
        """Linear interpolation from `first` to `last`; constant if `last` is None.

        `last` is the value of the last update if `reached_by_last`, of the one after it otherwise.
        """
        if last is None:
            return first
        length = self.updates - 1 if reached_by_last else self.updates
        return first + jnp.minimum(self.update / jnp.maximum(length, 1), 1.0) * (last - first)


class Learned(NamedTuple):
    """Weights and optimiser state after gradient steps, metrics, and which quantities are finite.

    `variables` are those of the objective (see `AbstractObjective.init_variables`).
    """

    model: Model
    optimizer: Any
    metrics: Metrics
    finite: Bool[Array, " W"]
    variables: Any = None


GradientStep = Callable[..., Learned]
"""`step(model, optimizer, batch, key=...)`: one gradient step on a batch, or on a minibatch of it."""


@dataclasses.dataclass(frozen=True)
class AbstractObjective(abc.ABC):
    """Interface of an objective: the loss that training minimises, and the experience it is computed from.

    `Train` splits keys, takes gradients, shards batches and applies the optimiser; an objective does the
    rest. To add one, implement the abstract methods and call `rl.register_objective`.

    **Arguments:** the four sections of an `rl.Config`: `task`, `agent`, `posterior` and `learning`.

    ```python
    learning = rl.LearningConfig(batch=8, steps=10)
    objective = rl.Config(task=rl.TwoArmBandit(), learning=learning).objective  # an `rl.PPO`
    model = objective.make_model(jax.random.key(0))
    batch = objective.gather(model, mesh=None, key=jax.random.key(1))
    ```
    """

    task: AbstractTask
    agent: AgentConfig
    posterior: AbstractPosteriorConfig
    learning: LearningConfig

    name: ClassVar[str]
    """Name in configurations and on the command line."""
    acts: ClassVar[bool]
    """Whether experience comes from acting."""
    inactive: ClassVar[tuple[str, ...]] = ()
    """Options of `learning`, of other objectives, that have no effect in this one."""

    @abc.abstractmethod
    def check(self) -> None:
        """Refuse tasks and options that this objective cannot learn."""

    @abc.abstractmethod
    def make_model(self, key: Array) -> Model:
        """Initialise a model."""

    def init_variables(self) -> Any:
        """Initial variables that `learn` updates beside the weights, such as dual variables; None without."""
        return None

    @abc.abstractmethod
    def gather(self, model: Model, *, mesh: Mesh | None, key: Array) -> Batch:
        """Gather experience in newly sampled problems, with leading axes of tasks and time.

        Each device of `mesh` holds a shard of the tasks. The batch has a static method
        `by_axis(first, second)`: the same structure with `first` for leaves whose batch axis is the first,
        and `second` where it is the second.
        """

    @abc.abstractmethod
    def loss(
        self, model: Model, batch: Batch, schedule: Schedule, *, key: Array, noise: Noise | None = None
    ) -> LossOutput:
        """Loss of a batch, a mean over its tasks; `noise` is that of `key`, if already sampled."""

    @property
    def passes(self) -> int:
        """Passes over each batch."""
        return 1

    @property
    def minibatches(self) -> int:
        """Minibatches per pass."""
        return 1

    def learn(
        self, step: GradientStep, model: Model, optimizer: Any, batch: Batch, *, variables: Any, key: Array
    ) -> Learned:
        """Make gradient steps on a batch; by default one, on all of it, with the same `variables`."""
        return step(model, optimizer, batch, key=key)._replace(variables=variables)


def minibatch_epochs(
    step: GradientStep,
    model: Model,
    optimizer: Any,
    batch: Batch,
    *,
    tasks: int,
    epochs: int,
    minibatches: int,
    key: Array,
) -> Learned:
    """Make `epochs` passes over a batch of `tasks`, each over shuffled minibatches of whole tasks."""

    def epoch(carry: tuple[Model, Any], key: Array) -> Any:
        key_order, key = jax.random.split(key)
        orders = jnp.arange(tasks)[None]
        if minibatches > 1:
            orders = jax.random.permutation(key_order, tasks).reshape(minibatches, -1)

        def on_minibatch(carry: tuple[Model, Any], inputs: tuple[Array, Array]) -> Any:
            (model, optimizer), (order, key) = carry, inputs
            minibatch = jax.tree.map(lambda leaf: leaf[order], batch) if minibatches > 1 else batch
            model, optimizer, metrics, finite, _ = step(model, optimizer, minibatch, key=key)
            return (model, optimizer), (metrics, finite)

        return jax.lax.scan(on_minibatch, carry, (orders, jax.random.split(key, len(orders))))

    (model, optimizer), (metrics, finite) = jax.lax.scan(
        epoch, (model, optimizer), jax.random.split(key, epochs)
    )
    return Learned(model, optimizer, jax.tree.map(jnp.mean, metrics), jnp.all(finite, axis=(0, 1)))
