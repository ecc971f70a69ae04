"""What the systems of `peers.py` share: the request, the clock, and the file of results. Needs no package."""

import dataclasses
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STEPS = 100
"""Steps per task."""
TEST_SEED = 1_000_000
"""Added to the seed of a training for its test tasks."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """One training: a system with its settings, a seed, and the seconds that it may take."""

    system: str
    settings: dict[str, Any]
    seed: int
    seconds: float
    """Training time, from the start of the process; evaluation does not count."""
    every: float
    """Training time between evaluations."""
    tasks: int
    """Test tasks of each evaluation."""


class Curve:
    """Return on test tasks against seconds of training."""

    def __init__(self, request: Request, began: float):
        self.request = request
        self.points: list[tuple[float, int, float]] = []
        self._began = began
        self._paused = 0.0
        self._next = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the process was started, imports and compilation included, evaluation excluded."""
        return time.time() - self._began - self._paused

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.seconds >= self.request.seconds

    def measure(self, steps: int, evaluate: Callable[[int], float], *, last: bool = False) -> None:
        """Evaluate if it is time to, or at the end, after so many steps of experience.

        `evaluate(seed)` is the mean return of the training policy in `tasks` test tasks of 100 steps.
        """
        start, seconds = time.time(), self.seconds
        if seconds < self._next and not last:
            return
        value = float(evaluate(TEST_SEED * (1 + self.request.seed) + len(self.points)))
        self.points.append((round(seconds, 2), int(steps), round(value, 4)))
        print(f"{seconds:7.1f} s  {steps:9d} steps  return {value:.2f}", flush=True)
        while self._next <= seconds:
            self._next += self.request.every
        self._paused += time.time() - start


def run(train: Callable[[Request, Curve], None], packages: Sequence[str]) -> None:
    """Train as the file of the first argument asks, and write the second; the third is the starting time."""
    source, target, began = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    request = Request(**json.loads(source.read_text()))
    curve = Curve(request, began)
    train(request, curve)
    versions = {name: importlib.metadata.version(name) for name in packages}
    result = {"request": dataclasses.asdict(request), "points": curve.points, "versions": versions}
    unfinished = target.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(result, indent=1))
    os.replace(unfinished, target)
