"""The regression bound: next-step prediction with a KL penalty between consecutive beliefs."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float

from recurrent_laplace.gaussians import AbstractBelief, PointBelief
from recurrent_laplace.learning.beliefs import BeliefTerms, sample_belief
from recurrent_laplace.learning.objectives.base import AbstractObjective, LossOutput, Noise, Schedule
from recurrent_laplace.learning.options import LearningConfig
from recurrent_laplace.learning.sharding import SHARDED, shard_over_mesh
from recurrent_laplace.models import Regressor
from recurrent_laplace.models.regressor import LEAST_STDDEV
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.tasks import AbstractRegressionTask


class RegressionBound(AbstractObjective):
    """Evidence lower bound of next-step prediction."""

    task: AbstractRegressionTask
    name: ClassVar[str] = "regression"
    acts: ClassVar[bool] = False

    def check(self) -> None:
        if not isinstance(self.task, AbstractRegressionTask):
            raise ValueError(
                f"objective {self.name!r} learns regression tasks; {self.task.name!r} is none: "
                f"use objective {self.task.objective!r}."
            )
        if self.learning.steps < 2:
            raise ValueError(f"steps must be at least 2 to learn from pairs; got {self.learning.steps}.")

    def make_model(self, key: Array) -> Regressor:
        x, y = jax.eval_shape(lambda k: self.task.pairs(self.task.sample(k), k, 1), key)
        return Regressor.init(
            self.agent,
            self.posterior,
            input_size=x.shape[-1],
            output_size=y.shape[-1],
            least_stddev=max(self.learning.predictive_floor, LEAST_STDDEV),
            key=key,
        )

    def gather(self, model: Regressor, *, mesh: Mesh | None, key: Array) -> "Pairs":
        del model
        batch, steps = self.learning.batch, self.learning.steps
        return sample_pairs(self.task, batch=batch, steps=steps, mesh=mesh, key=key)

    def loss(
        self, model: Regressor, batch: "Pairs", schedule: Schedule, *, key: Array, noise: Noise | None = None
    ) -> LossOutput:
        del schedule
        return regression_loss(model, batch, self.learning, key=key, noise=noise)


class Pairs(NamedTuple):
    """Inputs and outputs of a batch of tasks."""

    x: Float[Array, "B T X"]
    y: Float[Array, "B T Y"]

    @staticmethod
    def by_axis(first: Any, second: Any) -> "Pairs":
        """Pairs of `first`: the batch axis of both leaves is the first."""
        del second
        return Pairs(first, first)


def sample_pairs(
    task: AbstractRegressionTask, *, batch: int, steps: int, mesh: Mesh | None = None, key: Array
) -> Pairs:
    """Sample problems and the first `steps` pairs of each, sharded over `mesh`."""
    key_problem, key_pairs = jax.random.split(key)
    sample = shard_over_mesh(jax.vmap(task.sample), mesh, in_specs=(SHARDED,))
    problems = sample(jax.random.split(key_problem, batch))
    pairs = jax.vmap(lambda problem, k: task.pairs(problem, k, steps))
    pairs = shard_over_mesh(pairs, mesh, in_specs=(SHARDED, SHARDED))
    return Pairs(*pairs(problems, jax.random.split(key_pairs, batch)))


def regression_loss(
    model: Regressor, pairs: Pairs, config: LearningConfig, *, key: Array, noise: Noise | None = None
) -> LossOutput:
    """Negative bound per step: `-E_{z ~ q_t} log p(y_{t+1} | x_{t+1}, z) + beta KL(q_t || q_{t-1})`.

    The belief before any pair predicts the first. Also returns metrics to log, and whether all beliefs are
    finite.
    """
    posterior = model.posterior
    inputs = model.embed(pairs.x[:, :-1], pairs.y[:, :-1])
    inference = jax.vmap(posterior.infer)(inputs)
    beliefs = inference.belief
    terms = BeliefTerms.of(posterior, beliefs, inference.info, config)
    batch = pairs.x.shape[0]
    first = jax.tree.map(
        lambda leaf: jnp.broadcast_to(leaf, (batch, 1, *leaf.shape)), first_belief(posterior)
    )
    predicting = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), first, beliefs)
    z = sample_belief(predicting, config.training_samples, key=key, noise=noise)
    prediction = model.predict(z, pairs.x)
    cross_entropy = -jnp.mean(prediction.log_prob(pairs.y))
    loss = cross_entropy + terms.penalty(config.beta)
    metrics = {
        "cross_entropy": cross_entropy,
        "squared_error": jnp.mean((prediction.mean - pairs.y) ** 2),
        "predictive_stddev": jnp.mean(jnp.sqrt(prediction.variance)),
        **terms.metrics(),
    }
    return loss, (metrics, terms.finite)


def first_belief(posterior: AbstractPosterior) -> AbstractBelief:
    """Belief before any pair: q_0, or a point at the features of the initial carry."""
    if posterior.has_density:
        return posterior.prior()
    return PointBelief(posterior.memory.read(posterior.memory.init()))
