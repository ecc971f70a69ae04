"""The rule of `faithfulness` applied to the exact belief, before and after 2026-11-19.

    python studies/rule.py [--tasks 512] [--steps 60]

A walker searches goals on the gridworld. Its exact belief about the goal is judged by the measures of the
rule in several encodings, and so are controls whose uncertainty is wrong: the first tables of
docs/lab/beliefs.md. Prints Markdown.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import spearmanr

import recurrent_laplace as rl
from recurrent_laplace.evaluation.faithfulness.measures import CONSTANT, coverage, rank_agreement
from recurrent_laplace.oracles import make_oracle, make_references
from recurrent_laplace.scoring.decoding import Ridge, Split, fit_beliefs, fit_ridge, split_tasks
from recurrent_laplace.tasks import require_support

LEVELS = (0.5, 0.9)
SAMPLES = 8
"""Samples of each belief that fit a decoder, as in `faithfulness`."""


def walk(tasks: int, steps: int):
    """Exact beliefs of a walker, with their entropies and the goals."""
    task = rl.Gridworld()
    oracle = make_oracle(task, test=False, steps=steps)
    parameters = require_support(task, "parameters", verb="this study")

    def episode(key):
        key_problem, key_reset, key_steps = jax.random.split(key, 3)
        problem = task.sample(key_problem)
        walker = make_references(task, test=False, steps=steps)["greedy"](problem)
        world, observation = task.reset(problem, key_reset)

        def step(carry, key):
            world, belief, observation = carry
            action = walker.act(belief, observation, key)
            world, outcome = task.step(problem, world, action, key)
            updated = oracle.update(belief, observation, action, outcome)
            return (world, updated, outcome.observation), (oracle.read(belief), observation)

        start = (world, oracle.init(observation), observation)
        return jax.lax.scan(step, start, jax.random.split(key_steps, steps))[1], parameters(task, problem)

    (read, observed), goals = jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), tasks))
    return oracle.targets(np.asarray(read), np.asarray(observed)), np.asarray(goals, float)


def spearman(entropy: np.ndarray, exact: np.ndarray) -> float:
    """The earlier rank agreement: Spearman's correlation at each step, averaged over steps."""
    pairs = [(a, b) for a, b in zip(entropy.T, exact.T, strict=True) if np.ptp(b) > CONSTANT]
    found = [0.0 if np.ptp(a) <= CONSTANT else spearmanr(a, b)[0] for a, b in pairs]
    return float(np.mean(found))


def encodings(belief: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> dict[str, rl.AbstractGaussian]:
    """The exact belief as Gaussians, and controls."""
    tiles = belief.shape[-1]
    covariance = belief[..., None] * np.eye(tiles) - belief[..., :, None] * belief[..., None, :]
    precision = np.linalg.inv(covariance + 1e-6 * np.eye(tiles))
    one_hot = rl.DenseGaussian(jnp.asarray(belief), jnp.asarray(np.linalg.cholesky(precision)))

    def moments(variance: np.ndarray) -> rl.DiagonalGaussian:
        return rl.DiagonalGaussian(jnp.asarray(mean), jnp.asarray(1 / np.maximum(variance, 1e-9)))

    return {
        "exact: goal as a one-hot vector, mean and covariance": one_hot,
        "exact: row and column, mean and variance": moments(variance),
        "control: a point mass at the exact mean": moments(np.zeros_like(variance)),
        "control: the average variance of the step": moments(
            np.broadcast_to(variance.mean(axis=0), variance.shape)
        ),
        "control: the variance of another task": moments(np.roll(variance, 1, axis=0)),
    }


def judged(
    beliefs: rl.AbstractGaussian, goals: np.ndarray, entropy: np.ndarray, variance: np.ndarray
) -> list:
    """Earlier and present rank agreement and coverages of the test tasks."""
    test, fitting = split_tasks(goals).test, len(goals) - len(split_tasks(goals).test)
    samples = np.moveaxis(np.asarray(beliefs.sample(jax.random.key(0), (SAMPLES,))), 0, 2)
    known = Split(samples[: len(goals) // 2], samples[len(goals) // 2 : fitting], samples[:0])
    mean = split_tasks(np.asarray(beliefs.mean, float))
    targets = split_tasks(np.repeat(goals[:, None], samples.shape[1], axis=1))
    held_out, exact = beliefs[fitting:], variance[fitting:]
    decoders = {"linear": fit_ridge(mean, targets), "chosen": fit_beliefs(mean, known, targets)}
    rates = []
    for decoder in decoders.values():
        moments = decoder.moments(held_out, key=jax.random.key(1))
        error = test[:, None] - np.asarray(moments.mean, float)
        stddev = np.sqrt(np.maximum(np.asarray(moments.variance, float), 0))
        rates.append(coverage(error[exact > CONSTANT], stddev[exact > CONSTANT], LEVELS))
    earlier = spearman(np.asarray(held_out.entropy(), float), entropy[fitting:])
    present = rank_agreement((stddev**2).sum(axis=-1), exact.sum(axis=-1))
    kind = "linear" if isinstance(decoders["chosen"], Ridge) else "network"
    return [earlier, *rates[0], present, *rates[1], kind]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=512)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    targets, goals = walk(options.tasks, options.steps)
    belief, mean, variance = targets.belief, targets.mean, targets.variance
    entropy = -np.sum(belief * np.log(np.where(belief > 0, belief, 1)), axis=-1)
    random = np.random.default_rng(0)
    print(
        "| noise added to the exact entropy, nats | Spearman (earlier) | Somers' D (present) |\n|---|---|---|"
    )
    for stddev in (0.0, 1e-6, 0.05, 0.2):
        noisy = entropy + stddev * random.normal(size=entropy.shape)
        print(f"| {stddev:g} | {spearman(noisy, entropy):.2f} | {rank_agreement(noisy, entropy):.2f} |")
    columns = "rank, 50%, 90%"
    print(f"\n| belief | earlier: {columns} | present: {columns} | decoder |\n|---|---|---|---|")
    error = (split_tasks(goals).test[:, None] - split_tasks(mean).test)[split_tasks(variance).test > CONSTANT]
    stddev = np.sqrt(split_tasks(variance).test[split_tasks(variance).test > CONSTANT])
    exact = ", ".join(f"{rate:.2f}" for rate in coverage(error, stddev, LEVELS))
    print(f"| to be met | 0.5, {exact} | 0.5, {exact} | |")
    for name, beliefs in encodings(belief, mean, variance).items():
        *numbers, kind = judged(beliefs, goals, entropy, variance)
        shown = [", ".join(f"{number:.2f}" for number in part) for part in (numbers[:3], numbers[3:])]
        print(f"| {name} | {shown[0]} | {shown[1]} | {kind} |", flush=True)


if __name__ == "__main__":
    main()
