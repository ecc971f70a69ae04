"""Tables as a whole reproduction would leave them, with curves that are known."""

import dataclasses
import itertools
import math
from typing import Any

from support.synthetic import synthetic_frames, synthetic_run

from recurrent_laplace.report.frames import Frames

METHODS = ("rnn", "vrnn", "stationary", "precision", "mean_and_precision")
TASKS = ("regression", "bandit", "gridworld")


def level(method: str, covariance: str | None) -> float:
    """A number that tells a variant apart."""
    return METHODS.index(method) + (0.4 if covariance == "dense" else 0.0)


def cross_entropy(method: str, covariance: str | None, seed: int, t: int) -> float:
    return 1.5 + 0.1 * level(method, covariance) - 0.4 * math.log1p(min(t, 50)) + 0.02 * seed + 0.001 * t


def _tests(task: str, method: str, covariance: str | None) -> dict[str, Any]:
    own = level(method, covariance)
    curves: dict[str, Any] = {
        "entropy": lambda seed, t: None if method == "rnn" else 20 - own - 2 * math.log1p(t) + 0.1 * seed,
        "kl": lambda seed, t: None if method == "rnn" or t == 0 else (1 + own) * math.exp(0.05 * seed) / t,
    }
    if task == "regression":
        curves["cross_entropy"] = lambda seed, t: cross_entropy(method, covariance, seed, t)
    else:
        curves["cumulative_regret"] = lambda seed, t: (3 + own + 0.3 * seed) * math.sqrt(t)
        curves["return"] = lambda seed, t: 0.4 * t - own + 0.1 * seed
    return curves


def _training(task: str, method: str, covariance: str | None, start: float) -> dict[str, Any]:
    own = level(method, covariance)
    if task == "regression":
        return {"squared_error": lambda seed, u: (1 + 0.1 * own + 0.02 * seed) / (1 + start + u)}
    return {"return": lambda seed, u: 20 - own + 0.3 * seed - 15 / (1 + start + u / 4)}


def paper_run(task: str, method: str, covariance: str | None, origin: str = "scratch", **columns: Any):
    """One run with the curves of its variant."""
    updates = columns.pop("updates", 40)
    if origin != "scratch":
        columns.setdefault("snapshot", 0.5 if origin == "finetuned" else 1.0)
        updates = round(updates * (1 - columns["snapshot"]))
    if method == "stationary":
        columns.setdefault("window", "10")
    start = 0.0 if origin == "scratch" else 5.0
    return synthetic_run(
        task=task,
        method=method,
        covariance=covariance,
        origin=origin,
        updates=updates,
        update_seconds=columns.pop("update_seconds", 0.1 * (1 + level(method, covariance))),
        tests=_tests(task, method, covariance),
        training=_training(task, method, covariance, start),
        **columns,
    )


def paper_frames(seeds: int = 5, unusual: str = "<script>alert(1)</script>") -> Frames:
    """Everything that the figures show, and ablations; one run has an `unusual` name."""
    runs = []
    for task, method in itertools.product(TASKS, METHODS):
        for covariance in (None,) if method == "rnn" else ("diagonal", "dense"):
            runs.append(paper_run(task, method, covariance))
            if method == "rnn":
                continue
            runs.append(paper_run(task, method, covariance, samples=5, update_seconds=0.9))
            for snapshot in (0.5, 0.75):
                runs.append(paper_run(task, method, covariance, "finetuned", snapshot=snapshot))
            runs.append(paper_run(task, method, covariance, "posthoc"))
    for beta, window, features in ((1.0, "1", 16), (1e-4, "1", 16), (1e-2, "10", 16), (1e-2, "1", 32)):
        runs.append(
            paper_run("regression", "precision", "diagonal", beta=beta, window=window, features=features)
        )
    runs[0]["columns"]["run"] = unusual
    frames = synthetic_frames(*runs, seeds=seeds, tasks=2)
    # Tests of figures add the table of exact Bayes themselves.
    left_out = {"gridworld-point-ffffffffffff": "interrupted"}
    return dataclasses.replace(frames, left_out=left_out, oracle=frames.oracle.clear())
