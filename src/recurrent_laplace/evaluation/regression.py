"""A regressor on fixed test functions."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.evaluation.lengths import LENGTHS, TASKS_AT_ONCE, at_lengths, test_keys
from recurrent_laplace.gaussians import AbstractBelief, AbstractGaussian
from recurrent_laplace.learning.beliefs import draw
from recurrent_laplace.learning.elbo import first_belief
from recurrent_laplace.models import Prediction, Regressor
from recurrent_laplace.tasks import AbstractRegressionTask, Regression
from recurrent_laplace.tasks.regression import STRIPS

PREDICTIVE_SAMPLES = 30
"""Draws from the belief behind a prediction: the paper's."""

QUERIES = 64
"""Points of each function that are predicted."""

LEVELS = tuple(level / 10 for level in range(1, 10))
"""Nominal levels of the central intervals whose coverage is checked."""


AnyBelief = TypeVar("AnyBelief")


class Predicted(NamedTuple):
    """What a predictor says of N queries after each of L `LENGTHS` observed pairs."""

    prediction: Prediction
    """With the leading axes L, N."""
    scores: dict[str, Float[Array, "L N"]]
    """Further numbers of each query."""
    statistics: dict[str, Float[Array, " L"]]
    """Numbers of the belief itself."""


Predictor = Callable[[Float[Array, "T X"], Float[Array, "T Y"], Float[Array, "N X"], Array], Predicted]
"""From the observed pairs, the inputs of the queries, and a key."""


@eqx.filter_jit
def evaluate_regression(
    model: Regressor, task: AbstractRegressionTask, *, tasks: int, samples: int = PREDICTIVE_SAMPLES
) -> Table:
    """Predict `tasks` test functions after each of `LENGTHS` observed pairs.

    At t: `cross_entropy`, `squared_error`, coverages and `calibration_error` at `QUERIES` points of
    the whole domain, `disagreement` of the draws, and `entropy` and `kl` of the belief. The Fourier
    task gives all of it twice: observed on the whole interval, and (`_strips`, `_gaps`) in three strips.
    """
    posterior = model.posterior

    def predict(x: Array, y: Array, query_x: Array, key: Array) -> Predicted:
        beliefs = posterior.unroll(model.embed(x, y))

        def at(belief: AbstractBelief, key: Array) -> tuple[Prediction, Array]:
            z = draw(belief, samples, key=key)[:, None]
            means = model.prediction_head(z, model.input_embedder(query_x))
            return model.predict(z, query_x), jnp.std(means, axis=0)

        known = beliefs_at_lengths(first_belief(posterior), beliefs)
        prediction, stddev = jax.vmap(at)(known, jax.random.split(key, len(LENGTHS)))
        disagreement = jnp.mean(stddev, axis=-1)
        if not isinstance(beliefs, AbstractGaussian):
            disagreement = jnp.full_like(disagreement, jnp.nan)
        return Predicted(prediction, {"disagreement": disagreement}, _belief_statistics(model, beliefs))

    return score_predictor(predict, task, tasks=tasks)


def score_predictor(predict: Predictor, task: AbstractRegressionTask, *, tasks: int) -> Table:
    """The scores of any predictor on the test functions."""
    if not isinstance(task, Regression):
        return _score(predict, task, tasks)
    whole = _score(predict, dataclasses.replace(task, inputs="interval"), tasks)
    strips = _score(predict, dataclasses.replace(task, inputs="strips"), tasks, outside=True)
    return {**whole, **strips}


def beliefs_at_lengths(first: AnyBelief, beliefs: AnyBelief) -> AnyBelief:
    """Of beliefs after 1 .. T pairs, those after `LENGTHS`; `first` is that of length 0."""
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b])[jnp.array(LENGTHS)], first, beliefs)


def _score(predict: Predictor, task: AbstractRegressionTask, tasks: int, outside: bool = False) -> Table:
    def one(keys: tuple[Array, Array]) -> Table:
        key_problem, key_pairs = keys
        key_pairs, key_queries, key_draws = jax.random.split(key_pairs, 3)
        problem = task.sample(key_problem, test=True)
        x, y = task.pairs(problem, key_pairs, max(LENGTHS))
        query_x, query_y = task.queries(problem, key_queries, QUERIES)
        prediction, others, statistics = predict(x, y, query_x, key_draws)
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

    return jax.lax.map(one, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))


def _scores(prediction: Prediction, y: Float[Array, "N Y"]) -> dict[str, Float[Array, "L N"]]:
    """Of each query; `pit_*` is the share of the predictive mass on the way to the outcome."""
    error = y - prediction.mean
    # The smallest central interval that holds the outcome has this mass.
    mass = jnp.mean(jnp.abs(2 * norm.cdf(error / jnp.sqrt(prediction.variance)) - 1), axis=-1)
    return {
        "cross_entropy": -prediction.log_prob(y),
        "squared_error": jnp.mean(error**2, axis=-1),
        "mass": mass,
    }


def _averaged(scores: dict[str, Array], weight: Float[Array, " N"]) -> dict[str, Float[Array, " L"]]:
    """Means over the queries, and coverage in place of mass."""
    weight = weight / jnp.sum(weight)
    result = {name: score @ weight for name, score in scores.items() if name != "mass"}
    covered = {level: (scores["mass"] <= level) @ weight for level in LEVELS}
    result["coverage_50"], result["coverage_90"] = covered[0.5], covered[0.9]
    result["calibration_error"] = jnp.mean(
        jnp.stack([jnp.abs(share - level) for level, share in covered.items()]), axis=0
    )
    return result


def _belief_statistics(model: Regressor, beliefs: AbstractBelief) -> dict[str, Float[Array, " L"]]:
    if not isinstance(beliefs, AbstractGaussian):
        nothing = jnp.full(len(LENGTHS), jnp.nan)
        return {"entropy": nothing, "kl": nothing}
    return {
        "entropy": at_lengths(beliefs.entropy(), first=model.posterior.prior().entropy()),
        "kl": at_lengths(model.posterior.consecutive_kl(beliefs)),
    }


def _suffixed(table: dict[str, Array], suffix: str) -> dict[str, Array]:
    return {name + suffix: column for name, column in table.items()}


def _in_strips(x: Float[Array, " N"]) -> Float[Array, " N"]:
    inside = [(x >= low) & (x <= high) for low, high in STRIPS]
    return jnp.any(jnp.stack(inside), axis=0).astype(x.dtype)
