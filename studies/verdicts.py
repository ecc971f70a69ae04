"""Error rates of verdicts, simulated where a claim is exactly at its margin.

    python studies/verdicts.py --repetitions 20000

At the margin, a comparison that closes closes wrongly: neither verdict is right, and each must be rare. A
repetition has 20 seeds with up to three looks. Values are `offset + seed + task + residual`, each normal with
a standard deviation of its own unless said otherwise; task effects are those of a difference between two runs
on the same tasks. The last row judges claim T6 from whole tables.

The first table compares two ways to combine the errors over seeds and tasks: the frequency of false
rejections relative to the level of the test.
"""

import argparse
import collections
import time
from collections.abc import Callable, Iterator

import numpy as np
import polars as pl
from scipy.special import stdtrit

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.report.claims import CLAIMS, judge
from recurrent_laplace.report.claims.closing import close
from recurrent_laplace.report.claims.comparison import (
    AbstractComparison,
    MeanComparison,
    Region,
    ShareComparison,
    SpreadComparison,
)
from recurrent_laplace.report.claims.looks import LEVEL, LOOKS
from recurrent_laplace.report.claims.samples import Sample
from recurrent_laplace.report.frames import MEMORYLESS, RUNS_SCHEMA, TESTS_SCHEMA, Frames
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, METRICS_SCHEMA

SEEDS, TASKS = LOOKS[-1], 128
MARGIN = 1.0

Draw = Callable[[np.random.Generator, int], np.ndarray]
"""Samples of effects with mean 0 and standard deviation 1."""


def normal(rng: np.random.Generator, count: int) -> np.ndarray:
    """Normal effects."""
    return rng.standard_normal(count)


def heavy(rng: np.random.Generator, count: int) -> np.ndarray:
    """Student effects with three degrees of freedom."""
    return rng.standard_t(3, count) / np.sqrt(3)


def skewed(rng: np.random.Generator, count: int) -> np.ndarray:
    """Exponential effects: few seeds are much better than the others."""
    return rng.exponential(size=count) - 1


def two_kinds(rng: np.random.Generator, count: int) -> np.ndarray:
    """Effects of agents of which a fifth have not learned."""
    return 0.9 * np.where(rng.random(count) < 0.2, -2.0, 0.5) + np.sqrt(1 - 0.81) * rng.standard_normal(count)


def sample(
    rng: np.random.Generator, offset: float, seed: float, task: float, residual: float, draw: Draw = normal
) -> Sample:
    """Values by seed and task."""
    tasks = TASKS if task or residual else 1
    values = offset + seed * draw(rng, SEEDS)[:, None] + task * rng.standard_normal(tasks)
    values = values + residual * rng.standard_normal((SEEDS, tasks))
    return Sample(dict(enumerate(values)))


def means(
    offset: float, region: Region, count: int = 1, **scales: float | Draw
) -> Callable[[np.random.Generator], list[AbstractComparison]]:
    """Comparisons of `count` means that are all at the same offset."""

    def make(rng: np.random.Generator) -> list[AbstractComparison]:
        samples = [sample(rng, offset, **scales) for _ in range(count)]  # pyright: ignore[reportArgumentType]
        return [MeanComparison("", values, region, "") for values in samples]

    return make


def share(rng: np.random.Generator) -> list[AbstractComparison]:
    """A share of 0.75, with four methods."""
    repetitions = {seed: (rng.random(4) < 0.75).tolist() for seed in range(SEEDS)}
    return [ShareComparison("", repetitions, Region(0.25, 0.75), frozenset())]


def spread(rng: np.random.Generator) -> list[AbstractComparison]:
    """Standard deviations whose ratio is the margin."""
    first, second = sample(rng, 0, 0.4, 0, 0), sample(rng, 0, 1, 0, 0)
    return [SpreadComparison("", first, second, Region(high=0.4, par=(0.4, 2.5)))]


STRICT, AT_LEAST = Region.above(0, MARGIN), Region(low=-MARGIN)
SCENARIOS: dict[str, Callable[[np.random.Generator], list[AbstractComparison]]] = {
    "above, at the upper margin": means(MARGIN, STRICT, seed=1, task=3, residual=3),
    "above, at the lower margin": means(-MARGIN, STRICT, seed=1, task=3, residual=3),
    "at least, one metric per seed": means(-MARGIN, AT_LEAST, seed=1, task=0, residual=0),
    "at least, seeds and tasks": means(-MARGIN, AT_LEAST, seed=1, task=3, residual=3),
    "at least, tasks alone": means(-MARGIN, AT_LEAST, seed=0, task=5, residual=0),
    "at least, 6 comparisons": means(-MARGIN, AT_LEAST, 6, seed=1, task=3, residual=3),
    "at least, 24 comparisons, few task errors": means(-MARGIN, AT_LEAST, 24, seed=1, task=3, residual=0),
    "at least, 24 comparisons": means(-MARGIN, AT_LEAST, 24, seed=1, task=3, residual=3),
    "within, at one margin": means(MARGIN, Region(-MARGIN, MARGIN), seed=0.3, task=1, residual=1),
    "share of 0.75 (T5)": share,
    "spread at its margin (T1)": spread,
    "at least, heavy tails (t, 3)": means(-MARGIN, AT_LEAST, seed=1, task=0, residual=0, draw=heavy),
    "at least, a fifth unlearned": means(-MARGIN, AT_LEAST, seed=1, task=0, residual=0, draw=two_kinds),
    "at least, exponential": means(-MARGIN, AT_LEAST, seed=1, task=0, residual=0, draw=skewed),
}
"""Simulated comparisons of a claim; the last three are not normal."""


def outcome(comparisons: list[AbstractComparison]) -> str:
    """Verdict of a claim with these comparisons."""
    states = {closed.state for closed in close(comparisons)}
    for state in ("fails", "open", "on par"):
        if state in states:
            return state
    return "holds"


def tables(rng: np.random.Generator) -> Frames:
    """Tables of claim T6 in which each post-hoc return is less than its RNN's by exactly the margin."""
    runs, tests, oracle = [], [], []
    for task, steps in (("bandit", 50), ("gridworld", 100)):
        exact = 20.0
        for run, metric, value in (
            (EXACT, "return", exact),
            (EXACT, "cumulative_regret", 5.0),
            (MEMORYLESS, "return", 5.0),
        ):
            oracle.append((run, task, 0, 0, steps, metric, value))
        parent = f"{task}-rnn"
        base = exact + rng.normal(0, 0.3, (SEEDS, 1)) + rng.normal(0, 4, (1, TASKS))
        for method in ("rnn", "vrnn", "stationary", "precision"):
            name = f"{task}-{method}"
            posthoc = method != "rnn"
            runs.append(
                {
                    "run": name,
                    "configuration": name,
                    "task": task,
                    "task_id": task,
                    "origin": "posthoc" if posthoc else "scratch",
                    "snapshot": 1.0 if posthoc else None,
                    "parent": parent if posthoc else None,
                    "method": method,
                    "covariance": "diagonal" if posthoc else None,
                    "window": "10" if method == "stationary" else "1",
                    "arm": "written" if posthoc else None,
                    "beta": 0.01,
                    "samples": 1,
                    "acting_samples": 1,
                    "features": 16,
                    "updates": 0 if posthoc else 40,
                    "steps": steps,
                    "seed": 0,
                    "seeds": SEEDS,
                }
            )
            returns = base - 0.02 * exact * posthoc + rng.normal(0, 0.3, (SEEDS, 1)) * posthoc
            returns = returns + rng.normal(0, 2, (SEEDS, TASKS))
            for metric, values in (("return", returns), ("cumulative_regret", np.full((SEEDS, 1), 5.0))):
                tests += [
                    (name, name, seed, steps, metric, row.mean(), row) for seed, row in enumerate(values)
                ]
    return Frames(
        pl.DataFrame(runs, schema=RUNS_SCHEMA),
        pl.DataFrame(schema=METRICS_SCHEMA),
        pl.DataFrame(tests, schema=TESTS_SCHEMA, orient="row"),
        {},
        {},
        oracle=pl.DataFrame(oracle, schema=EVALUATION_SCHEMA, orient="row"),
    )


def whole_claim(rng: np.random.Generator) -> str:
    """Verdict on claim T6 in words of a comparison."""
    (claim,) = (claim for claim in CLAIMS if claim.id == "T6")
    verdicts = {verdict.column: verdict for verdict in judge(tables(rng), [claim])}
    words = {"reproduced": "holds", "not reproduced": "fails", "not decided": "open"}
    return words[verdicts["written"].verdict]


def rows(repetitions: int) -> Iterator[tuple[str, int, collections.Counter[str]]]:
    """Outcomes of each scenario."""
    for name, make in SCENARIOS.items():
        rng = np.random.default_rng(0)
        # The work of a repetition is that of its comparisons.
        count = max(repetitions // len(make(rng)), 1000)
        yield name, count, collections.Counter(outcome(make(rng)) for _ in range(count))
    rng, count = np.random.default_rng(1), max(repetitions // 10, 100)
    yield (
        "claim T6, all six at the margin",
        count,
        collections.Counter(whole_claim(rng) for _ in range(count)),
    )


def tails(samples: int) -> Iterator[str]:
    """Rows of the second table: how often one-sided tests at an edge reject, relative to their level.

    Means and variances over seeds and tasks are independent and sampled from their distributions.
    """
    rng = np.random.default_rng(0)
    for seeds in LOOKS[:2]:
        for ratio in (0.3, 1.0, 3.0):
            seed_variance = rng.chisquare(seeds - 1, samples) / (seeds - 1) / seeds
            task_variance = ratio**2 / seeds * rng.chisquare(TASKS - 1, samples) / (TASKS - 1)
            mean = rng.normal(0, np.sqrt((1 + ratio**2) / seeds), samples)
            cells = []
            for level in (LEVEL, LEVEL / 6, LEVEL / 24):
                total = seed_variance + task_variance
                freedom = total**2 / (seed_variance**2 / (seeds - 1) + task_variance**2 / (TASKS - 1))
                pooled = stdtrit(freedom, 1 - level) * np.sqrt(total)
                halves = stdtrit(seeds - 1, 1 - level) ** 2 * seed_variance
                halves = np.sqrt(halves + stdtrit(TASKS - 1, 1 - level) ** 2 * task_variance)
                cells += [f"{np.mean(mean > half) / level:.2f}" for half in (pooled, halves)]
            yield f"| {seeds} | {ratio:g} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20_000)
    options = parser.parse_args()
    print("| seeds | tasks / seeds | Satterthwaite | quadrature | /6 | /6 | /24 | /24 |")
    print("|---|---|---|---|---|---|---|---|")
    for row in tails(50 * options.repetitions):
        print(row, flush=True)
    print("\n| scenario | repetitions | reproduced | not reproduced | both | on par | open |")
    print("|---|---|---|---|---|---|---|")
    began = time.monotonic()
    for name, count, counts in rows(options.repetitions):
        holds, fails, par, still = (counts[state] / count for state in ("holds", "fails", "on par", "open"))
        # A claim that is on par on either side of its margin is not wrong there.
        shares = f"{holds:.2%} | {fails:.2%} | {holds + fails:.2%} | {par:.2%} | {still:.2%}"
        print(f"| {name} | {count:,} | {shares} |", flush=True)
    print(f"\n{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
