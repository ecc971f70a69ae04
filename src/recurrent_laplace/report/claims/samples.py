"""Values of a metric by seed and test task, and the configurations that they are from."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from recurrent_laplace.report.claims.looks import LOOKS


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """Values by seed, each an array over test tasks or a single number; NaN where a seed has none.

    Seeds are paired, and so are test tasks, which are the same for all runs: fewer are a prefix of more.
    """

    values: Mapping[int, np.ndarray]
    configurations: frozenset[str] = frozenset()

    @staticmethod
    def of(values: "Sample | Mapping[int, float]") -> "Sample":
        """Sample with one number per seed."""
        if isinstance(values, Sample):
            return values
        return Sample({seed: np.array([value], float) for seed, value in values.items()})

    @property
    def seeds(self) -> list[int]:
        """Seeds in order; a look takes the first of them."""
        return sorted(self.values)

    @property
    def lost(self) -> list[int]:
        """Seeds without a finite value."""
        return [seed for seed in self.seeds if not np.isfinite(self.values[seed]).all()]

    def array(self, count: int) -> np.ndarray:
        """Values of the first `count` seeds, one row for each."""
        rows = [self.values[seed] for seed in self.seeds[:count]]
        tasks = min(map(len, rows))
        return np.stack([row[:tasks] for row in rows])

    def level(self) -> float:
        """Mean of the finite values of the first look, for margins, which must not change with more seeds."""
        means = [self.values[seed].mean() for seed in self.seeds[: LOOKS[0]]]
        finite = [mean for mean in means if np.isfinite(mean)]
        return float(np.mean(finite)) if finite else float("nan")

    def __sub__(self, other: "Sample") -> "Sample":
        """Differences for the seeds and tasks that both have."""
        return _combined((self, other), lambda rows: rows[0] - rows[1])

    def __mul__(self, factor: float) -> "Sample":
        return Sample({seed: factor * row for seed, row in self.values.items()}, self.configurations)

    @staticmethod
    def average(samples: Iterable["Sample"]) -> "Sample":
        """Means of several samples, for the seeds and tasks that all have."""
        return _combined(tuple(samples), lambda rows: np.mean(rows, axis=0))

    @staticmethod
    def pooled(samples: Iterable["Sample"]) -> "Sample":
        """Means by seed over the samples that have the seed."""
        samples = tuple(samples)
        values = {
            seed: np.mean([sample.values[seed].mean() for sample in samples if seed in sample.values])
            for seed in sorted({seed for sample in samples for seed in sample.values})
        }
        return Sample({seed: np.array([value]) for seed, value in values.items()}, _configurations(samples))


def _combined(samples: Sequence[Sample], combine: Callable[[list[np.ndarray]], np.ndarray]) -> Sample:
    seeds = set.intersection(*(set(sample.values) for sample in samples))
    values = {}
    for seed in sorted(seeds):
        rows = [sample.values[seed] for sample in samples]
        tasks = min(map(len, rows))
        values[seed] = combine([row[:tasks] for row in rows])
    return Sample(values, _configurations(samples))


def _configurations(samples: Sequence[Sample]) -> frozenset[str]:
    return frozenset().union(*(sample.configurations for sample in samples))
