"""Calibration of the scales of a posterior: validation tasks, and scores against ground truth.

A regressor's belief is scored by its predictions of the function. An agent's belief is scored through a
linear decoder from features to the parameters of the problem, which is fitted on separate tasks.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.scipy.special import erf
from jaxtyping import Array, Float

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.evaluation.play import memory_inputs
from recurrent_laplace.evaluation.regression import PREDICTIVE_SAMPLES
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.lookup import with_lookup
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.models import AbstractPosteriorConfig, Agent, Prediction, Regressor
from recurrent_laplace.models.posterior_config import check_calibrated
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.scoring.decoding import Ridge, Split, fit_ridge, projected_variance
from recurrent_laplace.tasks import (
    AbstractControlTask,
    AbstractRegressionTask,
    AbstractTask,
    require_support,
)
from recurrent_laplace.tasks.base import split_like
from recurrent_laplace.tasks.held_out import TASKS_AT_ONCE

VALIDATION_SEED = 60_601
"""Seed of the validation tasks, which are the same for every run and disjoint from the test tasks."""
DECODING, FITTING, JUDGING = range(3)
"""Splits of the validation tasks."""
FEWEST_TASKS = 16
"""Fewest tasks for a meaningful confidence interval."""
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Nominal levels of the central intervals."""
LEAST_VARIANCE = 1e-12
"""Lower limit of decoded variances."""

Criterion = Literal["likelihood", "coverage"]
"""Criterion that the scales optimise."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """Options of the calibration of a posterior."""

    tasks: Annotated[int, tyro.conf.arg(name="calibrate-tasks")] = 128
    """Validation tasks for the scales; as many each for the decoder and for held-out scores."""
    scales: Annotated[
        tuple[Literal["prior_stddev", "damping_precision", "temperature", "forgetting"], ...],
        tyro.conf.arg(name="calibrate-scales", help_behavior_hint=""),
    ] = ()
    """Scales to fit; by default all that affect the posterior."""
    by: Annotated[Criterion, tyro.conf.arg(name="calibrate-by")] = "likelihood"
    """Criterion: likelihood of the ground truth, or coverage of intervals."""

    def check(self, task: AbstractTask, posterior: AbstractPosteriorConfig) -> None:
        """Raise if the task or the posterior cannot be calibrated."""
        check_calibrated(posterior)
        if not isinstance(task, AbstractRegressionTask):
            require_support(task, "parameters", verb="calibration")
        check_size("calibrate_tasks", self.tasks)
        if self.tasks < FEWEST_TASKS:
            raise ValueError(f"calibrate_tasks must be at least {FEWEST_TASKS}; got {self.tasks}.")
        for name in self.scales:
            check_choice("calibrate_scales", name, posterior.effective_scales)
        check_choice("calibrate_by", self.by, tuple(LOSSES))

    def chosen(self, posterior: AbstractPosteriorConfig) -> tuple[str, ...]:
        """Names of the scales to fit."""
        return self.scales or posterior.effective_scales


class BeliefScores(NamedTuple):
    """Scores of beliefs against ground truth.

    - `nll`: negative log-likelihood in nats of a point, or averaged over parameters;
    - `mass`: probability of the smallest central interval that contains the point, or each parameter.
    """

    nll: Float[Array, "N T"]
    mass: Float[Array, "N T P"]


class PredictedPoints(eqx.Module):
    """Scores of a regressor's beliefs: Gaussians with the moments of the samples' predictions.

    Their variance includes the spread of the samples, unlike that of the average in `evaluate`. The
    mixture of the samples would favour beliefs that are too wide, since few narrow components miss most
    of a wide belief.
    """

    model: Regressor
    x: Float[Array, "N T X"]
    y: Float[Array, "N T Y"]

    def __call__(self, beliefs: AbstractGaussian) -> BeliefScores:
        # Common noise makes the losses of different scales comparable.
        z = beliefs.sample(jax.random.key(0), (PREDICTIVE_SAMPLES,))
        means = self.model.prediction_head(z, self.model.input_embedder(self.x))
        mean, variance = jnp.mean(means, axis=0), self.model.variance() + jnp.var(means, axis=0, ddof=1)
        return BeliefScores(-Prediction(mean, variance).log_prob(self.y), _mass(self.y - mean, variance))


class DecodedParameters(eqx.Module):
    """Scores of an agent's beliefs: linearly decoded beliefs over the problem's parameters."""

    weight: Float[Array, "F P"]
    bias: Float[Array, " P"]
    parameters: Float[Array, "N P"]

    def __call__(self, beliefs: AbstractGaussian) -> BeliefScores:
        error = self.parameters[:, None] - (beliefs.mean @ self.weight + self.bias)
        variance = jnp.maximum(projected_variance(beliefs, self.weight), LEAST_VARIANCE)
        nll = 0.5 * (jnp.log(2 * jnp.pi * variance) + error**2 / variance)
        return BeliefScores(jnp.mean(nll, axis=-1), _mass(error, variance))


class Validation(NamedTuple):
    """Inputs of the memory in validation tasks, and the scores of the beliefs along them."""

    inputs: Float[Array, "N T D"]
    judge: PredictedPoints | DecodedParameters


def make_validation(
    model: Agent | Regressor, task: AbstractTask, learning: LearningConfig, *, tasks: int
) -> tuple[Validation, Validation]:
    """Sample tasks of the training length to fit on, and held-out ones.

    An agent acts itself, with its current posterior.
    """
    if isinstance(model, Regressor):
        assert isinstance(task, AbstractRegressionTask)

        def make(split: int) -> Validation:
            inputs, x, y = _observe(model, task, learning.steps, tasks, _key(split))
            return Validation(inputs, PredictedPoints(model, x, y))
    else:
        assert isinstance(task, AbstractControlTask)
        _, means, parameters = _play(model, task, learning, split_like(_key(DECODING), tasks))
        decoder = fit_decoder(np.asarray(means, float), np.asarray(parameters, float))

        def make(split: int) -> Validation:
            inputs, _, parameters = _play(model, task, learning, split_like(_key(split), tasks))
            judge = DecodedParameters(jnp.asarray(decoder.weight), jnp.asarray(decoder.bias), parameters)
            return Validation(inputs, judge)

    return make(FITTING), make(JUDGING)


def mean_nll(judge: PredictedPoints | DecodedParameters, beliefs: AbstractGaussian) -> Float[Array, ""]:
    """Mean negative log-likelihood over steps, tasks and parameters."""
    return jnp.mean(judge(beliefs).nll)


def coverage_distance(
    judge: PredictedPoints | DecodedParameters, beliefs: AbstractGaussian
) -> Float[Array, ""]:
    """Mean squared difference between coverages and their nominal levels."""
    mass = judge(beliefs).mass
    rates = jnp.stack([jnp.mean(mass <= level) for level in LEVELS])
    return jnp.mean((rates - jnp.array(LEVELS)) ** 2)


LOSSES: dict[str, Callable[..., Float[Array, ""]]] = {"likelihood": mean_nll, "coverage": coverage_distance}
"""Loss of each criterion."""


def judge_posterior(posterior: AbstractPosterior, validation: Validation) -> dict[str, np.ndarray]:
    """Scores of each task: `nll`, and the fraction of intervals with the ground truth, `coverage_50` etc."""
    nll, mass = (np.asarray(score, float) for score in _judge(posterior, *validation))
    rates = {f"coverage_{level * 100:.0f}": np.mean(mass <= level, axis=(1, 2)) for level in LEVELS}
    return {**rates, "nll": nll.mean(axis=1)}


def fit_decoder(means: Float[np.ndarray, "N T F"], parameters: Float[np.ndarray, "N P"]) -> Ridge:
    """Fit a linear map from the beliefs' means to parameters; a quarter of the tasks selects the penalty."""
    count = 3 * len(means) // 4
    targets = np.repeat(parameters[:, None], means.shape[1], axis=1)
    return fit_ridge(*(Split(array[:count], array[count:], array[:0]) for array in (means, targets)))


def _mass(error: Array, variance: Array) -> Array:
    """Probability of the smallest central interval of a normal that contains the error."""
    return erf(jnp.abs(error) / jnp.sqrt(2 * variance))


def _key(split: int) -> Array:
    return jax.random.fold_in(jax.random.key(VALIDATION_SEED), split)


@eqx.filter_jit
def _observe(
    model: Regressor, task: AbstractRegressionTask, steps: int, tasks: int, key: Array
) -> tuple[Float[Array, "N T D"], Float[Array, "N T X"], Float[Array, "N T Y"]]:
    """Inputs of observed pairs, and points to predict."""
    key_problem, key_pairs, key_queries = (split_like(k, tasks) for k in jax.random.split(key, 3))
    problems = jax.vmap(task.sample)(key_problem)
    pairs = jax.vmap(lambda problem, key: task.pairs(problem, key, steps))(problems, key_pairs)
    # One query per belief, anywhere in the domain.
    queries = jax.vmap(lambda problem, key: task.queries(problem, key, steps))(problems, key_queries)
    return model.embed(*pairs), *queries


@eqx.filter_jit
def _play(
    agent: Agent, task: AbstractControlTask, learning: LearningConfig, keys: Array
) -> tuple[Float[Array, "N T D"], Float[Array, "N T F"], Float[Array, "N P"]]:
    """Inputs, means of beliefs, and parameters of the problems."""
    parameters = require_support(task, "parameters", verb="calibration")

    def play_one(key: Array) -> tuple[Array, Array, Array]:
        key_problem, key_play = jax.random.split(key)
        problem = task.sample(key_problem)
        experience, _ = rollout(
            with_lookup(agent, task, learning.lookup),
            task,
            problem,
            steps=learning.steps,
            samples=learning.acting_samples,
            policy=learning.acting_policy,
            key=key_play,
        )
        inputs, _ = memory_inputs(agent, experience)
        return inputs, agent.posterior.unroll(inputs).mean, parameters(task, problem)

    return jax.lax.map(play_one, keys, batch_size=min(len(keys), TASKS_AT_ONCE))


@eqx.filter_jit
def _judge(posterior: AbstractPosterior, inputs: Array, judge: Any) -> BeliefScores:
    return judge(jax.vmap(posterior.unroll)(inputs))
