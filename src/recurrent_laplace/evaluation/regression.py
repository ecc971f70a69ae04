"""Evaluation of a regressor on fixed test functions."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.learning.beliefs import sample_belief
from recurrent_laplace.learning.objectives.regression import first_belief
from recurrent_laplace.models import Prediction, Regressor
from recurrent_laplace.tasks import AbstractRegressionTask, Regression
from recurrent_laplace.tasks.held_out import LENGTHS, TASKS_AT_ONCE, at_lengths, test_keys
from recurrent_laplace.tasks.regression import STRIPS

PREDICTIVE_SAMPLES = 30
"""Samples from the belief per prediction, as in the paper."""

QUERIES = 64
"""Queries per function."""

LEVELS = tuple(level / 10 for level in range(1, 10))
"""Nominal levels of the central intervals in `calibration_error`."""

AnyBelief = TypeVar("AnyBelief")


class Predicted(NamedTuple):
    """Predictions for N queries after each of L `LENGTHS` observed pairs."""

    prediction: Prediction
    """Predictive distribution, with leading axes L, N."""
    scores: dict[str, Float[Array, "L N"]]
    """Further scores of each query."""
    statistics: dict[str, Float[Array, " L"]]
    """Statistics of the belief."""


Predictor = Callable[[Float[Array, "T X"], Float[Array, "T Y"], Float[Array, "N X"], Array], Predicted]
"""Function of the observed pairs, the inputs of the queries, and a key."""


def predictive_samples(training_samples: int) -> int:
    """Samples of a test prediction: none for a model that was trained at the mean of its belief."""
    return PREDICTIVE_SAMPLES if training_samples else 0


@eqx.filter_jit
def evaluate_regression(
    model: Regressor, task: AbstractRegressionTask, *, tasks: int, samples: int = PREDICTIVE_SAMPLES
) -> Table:
    """Predict `tasks` test functions after each of `LENGTHS` observed pairs.

    Columns at length t: `cross_entropy`, `squared_error`, coverages and `calibration_error` at `QUERIES`
    points of the whole domain, `disagreement` of the samples, and `entropy` and `kl` of the belief. The
    Fourier task has two sets: observed on the whole interval, and in three strips (`_strips`, `_gaps`).
    """
    posterior = model.posterior

    def predict(x: Array, y: Array, query_x: Array, key: Array) -> Predicted:
        beliefs = posterior.unroll(model.embed(x, y))

        def predict_at(belief: AbstractBelief, key: Array) -> tuple[Prediction, Array]:
            z = sample_belief(belief, samples, key=key)[:, None]
            means = model.prediction_head(z, model.input_embedder(query_x))
            return model.predict(z, query_x), jnp.std(means, axis=0)

        keys = jax.random.split(key, len(LENGTHS))
        prediction, stddev = jax.vmap(predict_at)(beliefs_at_lengths(first_belief(posterior), beliefs), keys)
        disagreement = jnp.mean(stddev, axis=-1)
        if samples == 0 or not isinstance(beliefs, AbstractGaussian):
            disagreement = jnp.full_like(disagreement, jnp.nan)
        return Predicted(prediction, {"disagreement": disagreement}, _belief_statistics(model, beliefs))

    return score_predictor(predict, task, tasks=tasks)


def score_predictor(predict: Predictor, task: AbstractRegressionTask, *, tasks: int) -> Table:
    """Score a predictor on the test functions."""
    if not isinstance(task, Regression):
        return _score(predict, task, tasks)
    whole = _score(predict, dataclasses.replace(task, inputs="interval"), tasks)
    strips = _score(predict, dataclasses.replace(task, inputs="strips"), tasks, outside=True)
    return {**whole, **strips}


def beliefs_at_lengths(first: AnyBelief, beliefs: AnyBelief) -> AnyBelief:
    """Select the beliefs after `LENGTHS` pairs from those after 1 .. T; `first` has seen none."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b])[jnp.array(LENGTHS)], first, beliefs)


def _score(predict: Predictor, task: AbstractRegressionTask, tasks: int, outside: bool = False) -> Table:
    def score_task(keys: tuple[Array, Array]) -> Table:
        key_problem, key_pairs = keys
        key_pairs, key_queries, key_samples = jax.random.split(key_pairs, 3)
        problem = task.sample(key_problem, test=True)
        x, y = task.pairs(problem, key_pairs, max(LENGTHS))
        query_x, query_y = task.queries(problem, key_queries, QUERIES)
        prediction, others, statistics = predict(x, y, query_x, key_samples)
        scores = {**_scores(prediction, query_y), **others}
        everywhere = jnp.ones(QUERIES)
        if not outside:
            return {**_averaged(scores, everywhere), **statistics}
        gap = 1.0 - _in_strips(query_x[:, 0])
        return {
            **_suffixed(_averaged(scores, everywhere), "_strips"),
            **_suffixed(_averaged(scores, gap), "_gaps"),
            **_suffixed(statistics, "_strips"),
        }

    return jax.lax.map(score_task, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))


def _scores(prediction: Prediction, y: Float[Array, "N Y"]) -> dict[str, Float[Array, "L N"]]:
    """Scores of each query; `mass` is the probability of the smallest central interval with the outcome."""
    error = y - prediction.mean
    mass = jnp.mean(jnp.abs(2 * norm.cdf(error / jnp.sqrt(prediction.variance)) - 1), axis=-1)
    return {
        "cross_entropy": -prediction.log_prob(y),
        "squared_error": jnp.mean(error**2, axis=-1),
        "mass": mass,
    }


def _averaged(scores: dict[str, Array], weight: Float[Array, " N"]) -> dict[str, Float[Array, " L"]]:
    """Average over the queries, with coverages instead of `mass`."""
    weight = weight / jnp.sum(weight)
    result = {name: score @ weight for name, score in scores.items() if name != "mass"}
    covered = {level: (scores["mass"] <= level) @ weight for level in LEVELS}
    result["coverage_50"], result["coverage_90"] = covered[0.5], covered[0.9]
    errors = [jnp.abs(coverage - level) for level, coverage in covered.items()]
    result["calibration_error"] = jnp.mean(jnp.stack(errors), axis=0)
    return result


def _belief_statistics(model: Regressor, beliefs: AbstractBelief) -> dict[str, Float[Array, " L"]]:
    if not isinstance(beliefs, AbstractGaussian):
        return dict.fromkeys(("entropy", "kl"), jnp.full(len(LENGTHS), jnp.nan))
    return {
        "entropy": at_lengths(beliefs.entropy(), first=model.posterior.prior().entropy()),
        "kl": at_lengths(model.posterior.consecutive_kl(beliefs)),
    }


def _suffixed(table: dict[str, Array], suffix: str) -> dict[str, Array]:
    return {name + suffix: column for name, column in table.items()}


def _in_strips(x: Float[Array, " N"]) -> Float[Array, " N"]:
    inside = [(x >= low) & (x <= high) for low, high in STRIPS]
    return jnp.any(jnp.stack(inside), axis=0).astype(x.dtype)
