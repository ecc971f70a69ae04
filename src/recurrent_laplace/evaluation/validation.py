"""Tasks that scales of a belief are fitted on, or judged on, and what its beliefs say about them.

A regressor's belief predicts points of the function. An agent's is seen through a linear map from features to
the parameters of the problem, which is fitted on tasks of its own.
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
from recurrent_laplace.evaluation.calibration import effective_scales
from recurrent_laplace.evaluation.decoding import Ridge, Split, fit_ridge
from recurrent_laplace.evaluation.faithfulness import projected_variance
from recurrent_laplace.evaluation.lengths import TASKS_AT_ONCE
from recurrent_laplace.evaluation.regression import PREDICTIVE_SAMPLES
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.learning.config import LearningConfig
from recurrent_laplace.learning.rollout import rollout
from recurrent_laplace.models import Agent, PosteriorConfig, Prediction, Regressor
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.tasks import (
    AbstractBandit,
    AbstractControlTask,
    AbstractRegressionTask,
    AbstractTask,
    Gridworld,
)
from recurrent_laplace.tasks.base import Problem, split_like

VALIDATION_SEED = 60_601
"""Validation tasks are the same for every run, and none of them is a test task."""
DECODING, FITTING, JUDGING = range(3)
"""What tasks are for: each has a key of its own."""
FEWEST_TASKS = 16
"""With fewer, an interval over tasks says nothing."""
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
"""Of the central intervals whose coverage is judged."""
LEAST_VARIANCE = 1e-12

Criterion = Literal["likelihood", "coverage"]
"""What scales are fitted by."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationConfig:
    """Which scales of a Laplace posterior are fitted, and on what."""

    tasks: Annotated[int, tyro.conf.arg(name="calibrate-tasks")] = 128
    """Validation tasks that scales are fitted on; as many others fit the decoder, as many again judge."""
    scales: Annotated[
        tuple[Literal["prior_stddev", "damping_precision", "temperature", "forgetting"], ...],
        tyro.conf.arg(name="calibrate-scales"),
    ] = ()
    """Scales to fit; by default all that have an effect on the posterior."""
    by: Annotated[Criterion, tyro.conf.arg(name="calibrate-by")] = "likelihood"
    """What is to be best: the likelihood of what is so, or the coverage of intervals."""

    def check(self, task: AbstractTask, posterior: PosteriorConfig) -> None:
        """Refuse what can not be calibrated."""
        if posterior.kind != "laplace":
            raise ValueError(
                f"posterior must be 'laplace' to be calibrated, since no other is made of scales; "
                f"got {posterior.kind!r}."
            )
        if not isinstance(task, AbstractRegressionTask | Gridworld | AbstractBandit):
            raise ValueError(
                "task must be a regression, a gridworld or a bandit, whose parameters are known, "
                f"to be calibrated on; got {task.name!r}."
            )
        check_size("calibrate_tasks", self.tasks)
        if self.tasks < FEWEST_TASKS:
            raise ValueError(f"calibrate_tasks must be at least {FEWEST_TASKS}; got {self.tasks}.")
        for name in self.scales:
            check_choice("calibrate_scales", name, effective_scales(posterior.accumulate))
        check_choice("calibrate_by", self.by, tuple(LOSSES))

    def chosen(self, posterior: PosteriorConfig) -> tuple[str, ...]:
        """The scales that will be fitted."""
        return self.scales or effective_scales(posterior.accumulate)


class Judged(NamedTuple):
    """What beliefs said, beside what is so.

    - `nll`: negative log-likelihood in nats, of a predicted point, or of a parameter on average;
    - `mass` of the smallest central interval that holds the point, or each parameter.
    """

    nll: Float[Array, "N T"]
    mass: Float[Array, "N T P"]


class PredictedPoints(eqx.Module):
    """Beliefs of a regressor, judged by Gaussians with the mean and variance of all draws' predictions.

    So the spread of the draws counts, unlike in the average that the evaluation predicts with. The
    mixture of the draws itself would favour beliefs that are too wide: a few narrow components miss most
    of what a wide belief allows.
    """

    model: Regressor
    x: Float[Array, "N T X"]
    y: Float[Array, "N T Y"]

    def __call__(self, beliefs: AbstractGaussian) -> Judged:
        # The same noise for all scales: the loss of one is comparable with that of another.
        z = beliefs.sample(jax.random.key(0), (PREDICTIVE_SAMPLES,))
        means = self.model.prediction_head(z, self.model.input_embedder(self.x))
        mean, variance = jnp.mean(means, axis=0), self.model.variance() + jnp.var(means, axis=0, ddof=1)
        return Judged(-Prediction(mean, variance).log_prob(self.y), _mass(self.y - mean, variance))


class DecodedParameters(eqx.Module):
    """Beliefs of an agent, judged by what they claim of the problem's parameters through a linear map."""

    weight: Float[Array, "F P"]
    bias: Float[Array, " P"]
    parameters: Float[Array, "N P"]

    def __call__(self, beliefs: AbstractGaussian) -> Judged:
        error = self.parameters[:, None] - (beliefs.mean @ self.weight + self.bias)
        variance = jnp.maximum(projected_variance(beliefs, self.weight), LEAST_VARIANCE)
        nll = 0.5 * (jnp.log(2 * jnp.pi * variance) + error**2 / variance)
        return Judged(jnp.mean(nll, axis=-1), _mass(error, variance))


class Validation(NamedTuple):
    """What a memory got in some tasks, and the judge of beliefs along it."""

    inputs: Float[Array, "N T D"]
    judge: PredictedPoints | DecodedParameters


def make_validation(
    model: Agent | Regressor, task: AbstractTask, learning: LearningConfig, *, tasks: int
) -> tuple[Validation, Validation]:
    """Tasks to fit on and tasks to judge on, as long as those of training.

    An agent's histories are its own, under the posterior that it has here.
    """
    if isinstance(model, Regressor):
        assert isinstance(task, AbstractRegressionTask)

        def made(part: int) -> Validation:
            inputs, x, y = _observe(model, task, learning.steps, tasks, _key(part))
            return Validation(inputs, PredictedPoints(model, x, y))
    else:
        assert isinstance(task, AbstractControlTask)
        _, means, parameters = _play(model, task, learning, split_like(_key(DECODING), tasks))
        decoder = fit_decoder(np.asarray(means, float), np.asarray(parameters, float))

        def made(part: int) -> Validation:
            inputs, _, parameters = _play(model, task, learning, split_like(_key(part), tasks))
            judge = DecodedParameters(jnp.asarray(decoder.weight), jnp.asarray(decoder.bias), parameters)
            return Validation(inputs, judge)

    return made(FITTING), made(JUDGING)


def mean_nll(judge: PredictedPoints | DecodedParameters, beliefs: AbstractGaussian) -> Float[Array, ""]:
    """Over steps, tasks and parameters: least for scales of the best likelihood."""
    return jnp.mean(judge(beliefs).nll)


def coverage_distance(
    judge: PredictedPoints | DecodedParameters, beliefs: AbstractGaussian
) -> Float[Array, ""]:
    """Mean squared distance of coverages from their levels: zero for scales that are right on average."""
    mass = judge(beliefs).mass
    rates = jnp.stack([jnp.mean(mass <= level) for level in LEVELS])
    return jnp.mean((rates - jnp.array(LEVELS)) ** 2)


LOSSES: dict[str, Callable[..., Float[Array, ""]]] = {"likelihood": mean_nll, "coverage": coverage_distance}
"""What is least for the best scales, by criterion."""


def judge_posterior(posterior: AbstractPosterior, validation: Validation) -> dict[str, np.ndarray]:
    """For each task: `nll`, and `coverage_50` and so on, the share of intervals that hold what is so."""
    nll, mass = (np.asarray(each, float) for each in _judge(posterior, *validation))
    rates = {f"coverage_{level * 100:.0f}": np.mean(mass <= level, axis=(1, 2)) for level in LEVELS}
    return {**rates, "nll": nll.mean(axis=1)}


def fit_decoder(means: Float[np.ndarray, "N T F"], parameters: Float[np.ndarray, "N P"]) -> Ridge:
    """The linear map from means of beliefs to parameters; a quarter of the tasks chooses its penalty."""
    most = 3 * len(means) // 4
    targets = np.repeat(parameters[:, None], means.shape[1], axis=1)
    return fit_ridge(*(Split(each[:most], each[most:], each[:0]) for each in (means, targets)))


def parameters_of(task: AbstractTask, problem: Problem) -> Float[Array, " P"]:
    """What is hidden in a problem: the goal's row and column, or the chance of each arm."""
    return problem.goal.astype(float) if isinstance(task, Gridworld) else problem


def _mass(error: Array, variance: Array) -> Array:
    """Of the central interval of a normal that just holds the error."""
    return erf(jnp.abs(error) / jnp.sqrt(2 * variance))


def _key(part: int) -> Array:
    return jax.random.fold_in(jax.random.key(VALIDATION_SEED), part)


@eqx.filter_jit
def _observe(
    model: Regressor, task: AbstractRegressionTask, steps: int, tasks: int, key: Array
) -> tuple[Float[Array, "N T D"], Float[Array, "N T X"], Float[Array, "N T Y"]]:
    """Inputs of pairs, and points to predict."""
    key_problem, key_pairs, key_queries = (split_like(one, tasks) for one in jax.random.split(key, 3))
    problems = jax.vmap(task.sample)(key_problem)
    pairs = jax.vmap(lambda problem, key: task.pairs(problem, key, steps))(problems, key_pairs)
    # A point of its own for each belief, anywhere in the domain.
    queries = jax.vmap(lambda problem, key: task.queries(problem, key, steps))(problems, key_queries)
    return model.embed(*pairs), *queries


@eqx.filter_jit
def _play(
    agent: Agent, task: AbstractControlTask, learning: LearningConfig, keys: Array
) -> tuple[Float[Array, "N T D"], Float[Array, "N T F"], Float[Array, "N P"]]:
    """Inputs, means of beliefs, and the parameters of problems."""

    def one(key: Array) -> tuple[Array, Array, Array]:
        key_problem, key_play = jax.random.split(key)
        problem = task.sample(key_problem)
        experience, _ = rollout(
            agent,
            task,
            problem,
            steps=learning.steps,
            samples=learning.acting_samples,
            policy=learning.acting_policy,
            key=key_play,
        )
        inputs, _ = agent.embed(
            experience.observation, experience.previous_action, experience.previous_reward
        )
        return inputs, agent.posterior.unroll(inputs).mean, parameters_of(task, problem)

    return jax.lax.map(one, keys, batch_size=min(len(keys), TASKS_AT_ONCE))


@eqx.filter_jit
def _judge(posterior: AbstractPosterior, inputs: Array, judge: Any) -> Judged:
    return judge(jax.vmap(posterior.unroll)(inputs))
