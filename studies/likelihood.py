"""Curvature of the likelihood and of the recurrence on one regressor: the tables of docs/lab/likelihood.md.

    python studies/likelihood.py [--updates 4000] [--functions 128] [--seed 0]

Trains an RNN on regression with the sizes of the preset `laptop`, then gives it posteriors without training
it again. The scales of each are fitted on other functions. Prints Markdown.
"""

import argparse
import dataclasses
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float

import recurrent_laplace as rl

STEPS = (1, 5, 10, 20, 50, 100)
RANKED = (5, 10, 20, 50)
QUERIES = 64
"""Predicted points of each function."""
NOISE = jnp.exp(jnp.linspace(-4.0, 1.0, 51))
"""Standard deviations of the noise that are tried."""
CONSTANT = "none (constant variance)"
"""Row of a belief without width."""


class Functions(NamedTuple):
    """Observed pairs of functions, inputs of the memory, and points to predict."""

    inputs: Float[Array, "N T D"]
    x: Float[Array, "N T X"]
    query: Float[Array, "N Q X"]
    target: Float[Array, "N Q Y"]


def sample(
    model: rl.Regressor, task: rl.Regression, count: int, key: Array, points: int = QUERIES
) -> Functions:
    """Functions that the model has not seen."""

    @eqx.filter_jit
    def make(keys: Array) -> Functions:
        def one(key: Array) -> Functions:
            key_problem, key_pairs, key_queries = jax.random.split(key, 3)
            problem = task.sample(key_problem)
            x, y = task.pairs(problem, key_pairs, max(STEPS))
            return Functions(model.embed(x, y), x, *task.queries(problem, key_queries, points))

        return jax.vmap(one)(keys)

    return make(jax.random.split(key, count))


def moments(
    predictor: rl.Predictor, beliefs: rl.AbstractGaussian, functions: Functions
) -> tuple[Float[Array, "N L Q"], Float[Array, "N L Q"]]:
    """Squared error and variance under the belief of the linearised prediction of each point."""
    at = beliefs[:, jnp.array(STEPS) - 1]
    noise = jnp.exp(2 * predictor.likelihood.log_stddev[0])

    def of_point(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        query, target = pair
        queries = jnp.broadcast_to(query[:, None], (*at.mean.shape[:-1], query.shape[-1]))
        predictive = predictor.predict(at, queries)
        error = (predictive.mean() - target[:, None])[..., 0]
        return error**2, predictive.variance()[..., 0] - noise

    points = jax.lax.map(of_point, (functions.query.swapaxes(0, 1), functions.target.swapaxes(0, 1)))
    return tuple(jnp.moveaxis(array, 0, -1) for array in points)


def nll(error: Array, variance: Array, noise: Array | float) -> Float[Array, "N L Q"]:
    """Negative log-likelihood of each point, with a standard deviation of the noise."""
    total = variance + noise**2
    return 0.5 * (error / total + jnp.log(2 * jnp.pi * total))


def losses(predictor: rl.Predictor, beliefs: rl.AbstractGaussian, functions: Functions) -> Float[Array, " S"]:
    """Mean negative log-likelihood for each level of noise in `NOISE`."""
    error, variance = moments(predictor, beliefs, functions)
    return jax.lax.map(lambda noise: jnp.mean(nll(error, variance, noise)), NOISE)


def fitted(posterior, predictor: rl.Predictor, functions: Functions) -> tuple[object, float]:
    """The posterior with fitted scales, and the fitted noise, both by the likelihood of points."""

    def loss(beliefs: rl.AbstractGaussian) -> Array:
        return jnp.min(losses(predictor, beliefs, functions))

    queries = None if posterior.query_size is None else functions.x
    best = rl.calibrate(posterior, functions.inputs, loss, queries=queries).posterior
    return best, best_noise(best, predictor, functions)


def constant(memory: rl.Memory, predictor: rl.Predictor, functions: Functions) -> tuple[object, float]:
    """A belief without width, and the best noise."""
    posterior = rl.LaplacePosterior(memory, prior_stddev=1e-4, covariance="diagonal")
    return posterior, best_noise(posterior, predictor, functions)


def best_noise(posterior, predictor: rl.Predictor, functions: Functions) -> float:
    """Level of noise with the largest likelihood."""
    found = eqx.filter_jit(losses)(predictor, beliefs_of(posterior, functions), functions)
    return float(NOISE[int(jnp.argmin(found))])


def beliefs_of(posterior, functions: Functions) -> rl.AbstractGaussian:
    """Beliefs along the inputs of the functions."""
    queries = None if posterior.query_size is None else functions.x
    unroll = eqx.filter_jit(jax.vmap(lambda x, q: posterior.unroll(x, queries=q)))
    return unroll(functions.inputs, queries)


def row(name: str, posterior, noise: float, predictor: rl.Predictor, functions: Functions) -> str:
    """Row of the table."""
    beliefs = beliefs_of(posterior, functions)
    error, variance = (np.asarray(array) for array in eqx.filter_jit(moments)(predictor, beliefs, functions))
    scores = np.asarray(nll(error, variance, noise)).mean(axis=(0, 2))
    columns = [] if name == CONSTANT else [STEPS.index(t) for t in RANKED]
    ranks = [
        scipy.stats.spearmanr(error[:, column].ravel(), variance[:, column].ravel()).statistic
        for column in columns
    ]
    cells = [", ".join(f"{value:.2f}" for value in values) or "-" for values in (scores, ranks)]
    return f"| {name} | {cells[0]} | {cells[1]} |"


def main() -> None:
    """Train, fit and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--functions", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    agent = rl.AgentConfig(hidden_size=64, features=32, embedding_sizes=(64,), head_sizes=(128, 64))
    learning = rl.LearningConfig(
        updates=options.updates, steps=50, batch=64, learning_rate=3e-3, final_learning_rate=0.0
    )
    task = rl.Regression()
    config = rl.Config(task=task, agent=agent, posterior=rl.PointConfig(), learning=learning)
    start = time.perf_counter()
    state, _ = jax.block_until_ready(rl.make_train(config)(jax.random.key(options.seed)))
    model = state.model
    seconds = time.perf_counter() - start
    print(f"trained for {options.updates} updates in {seconds:.0f} s", flush=True)
    memory, predictor = model.posterior.memory, model.predictor
    posteriors = {
        "likelihood, accumulated": rl.LikelihoodPosterior(memory, predictor),
        "likelihood, relinearised": rl.LikelihoodPosterior(memory, predictor, accumulate="none", window=None),
        "likelihood, diagonal": rl.LikelihoodPosterior(memory, predictor, covariance="diagonal"),
        "paper, dense, sum of precisions": rl.LaplacePosterior(memory),
        CONSTANT: None,
    }
    key_fit, *key_tests = jax.random.split(jax.random.key(1000 + options.seed), 3)
    fitting = sample(model, task, options.functions // 2, key_fit, points=16)
    tests = {
        "observed on the interval": sample(model, task, options.functions, key_tests[0]),
        "observed in strips": sample(
            model, dataclasses.replace(task, inputs="strips"), options.functions, key_tests[1]
        ),
    }
    found = {}
    for name, posterior in posteriors.items():
        start = time.perf_counter()
        if posterior is None:
            found[name] = constant(memory, predictor, fitting)
        else:
            found[name] = fitted(posterior, predictor, fitting)
        print(f"{name}: fitted in {time.perf_counter() - start:.0f} s", flush=True)
    for title, functions in tests.items():
        print(f"\n## {title}\n\n| curvature | NLL at t = {', '.join(map(str, STEPS))} |", end="")
        print(f" rank correlation at t = {', '.join(map(str, RANKED))} |\n|---|---|---|")
        for name, (posterior, noise) in found.items():
            print(row(name, posterior, noise, predictor, functions), flush=True)
        beliefs = beliefs_of(found[CONSTANT][0], functions)
        error, _ = eqx.filter_jit(moments)(predictor, beliefs, functions)
        rmse = np.sqrt(np.asarray(error).mean(axis=(0, 2)))
        print(f"\nRMSE at the same t: {', '.join(f'{value:.2f}' for value in rmse)}")
    print("\nScales:\n")
    for name, (posterior, noise) in found.items():
        print(f"- {name}: noise {noise:.3f}, {posterior.scales}")


if __name__ == "__main__":
    main()
