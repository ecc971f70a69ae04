"""A regressor on fixed test functions."""

import dataclasses

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


@eqx.filter_jit
def evaluate_regression(
    model: Regressor, task: AbstractRegressionTask, *, tasks: int, samples: int = PREDICTIVE_SAMPLES
) -> Table:
    """Predict `tasks` test functions after each of `LENGTHS` observed pairs.

    At t: `cross_entropy`, `squared_error`, coverages and `calibration_error` at `QUERIES` points of
    the whole domain, `disagreement` of the draws, and `entropy` and `kl` of the belief. The Fourier
    task gives all of it twice: observed on the whole interval, and (`_strips`, `_gaps`) in three strips.
    """
    if not isinstance(task, Regression):
        return _evaluate(model, task, tasks, samples)
    whole = _evaluate(model, dataclasses.replace(task, inputs="interval"), tasks, samples)
    strips = _evaluate(model, dataclasses.replace(task, inputs="strips"), tasks, samples, outside=True)
    return {**whole, **strips}


def _evaluate(
    model: Regressor, task: AbstractRegressionTask, tasks: int, samples: int, outside: bool = False
) -> Table:
    posterior = model.posterior

    def one(keys: tuple[Array, Array]) -> Table:
        key_problem, key_pairs = keys
        key_pairs, key_queries, key_draws = jax.random.split(key_pairs, 3)
        problem = task.sample(key_problem, test=True)
        x, y = task.pairs(problem, key_pairs, max(LENGTHS))
        beliefs = posterior.unroll(model.embed(x, y))
        known = _at_lengths(first_belief(posterior), beliefs)
        query_x, query_y = task.queries(problem, key_queries, QUERIES)

        def predict(belief: AbstractBelief, key: Array) -> tuple[Prediction, Array]:
            z = draw(belief, samples, key=key)[:, None]
            means = model.prediction_head(z, model.input_embedder(query_x))
            return model.predict(z, query_x), jnp.std(means, axis=0)

        prediction, disagreement = jax.vmap(predict)(known, jax.random.split(key_draws, len(LENGTHS)))
        scores = _scores(prediction, query_y)
        scores["disagreement"] = jnp.mean(disagreement, axis=-1)
        if not isinstance(beliefs, AbstractGaussian):
            scores["disagreement"] = jnp.full_like(scores["disagreement"], jnp.nan)
        everywhere = jnp.ones(QUERIES)
        statistics = _belief_statistics(model, beliefs)
        if not outside:
            return {**_averaged(scores, everywhere), **statistics}
        gap = 1.0 - _in_strips(query_x[:, 0])
        return {
            **_suffixed(_averaged(scores, everywhere), "_strips"),
            **_suffixed(_averaged(scores, gap), "_gaps"),
            **_suffixed(statistics, "_strips"),
        }

    return jax.lax.map(one, test_keys(tasks), batch_size=min(tasks, TASKS_AT_ONCE))


def _at_lengths(first: AbstractBelief, beliefs: AbstractBelief) -> AbstractBelief:
    known = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, beliefs)
    return known[jnp.array(LENGTHS)]


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
