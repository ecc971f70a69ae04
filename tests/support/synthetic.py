"""Tables of runs that were never made, with curves that are known."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.report.frames import MEMORYLESS, RUNS_SCHEMA, Frames, evaluation_by_seed
from recurrent_laplace.runs.oracles import training_id
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, METRICS_SCHEMA
from recurrent_laplace.tasks.held_out import LENGTHS

Curve = Callable[[int, int], float | None]
"""From seed and t (or update) to a value."""

DEFAULTS: dict[str, Any] = {
    "task": "gridworld",
    "origin": "scratch",
    "snapshot": None,
    "parent": None,
    "method": "rnn",
    "covariance": None,
    "window": "1",
    "features": 16,
    "beta": 1e-2,
    "samples": 1,
    "acting_samples": 1,
    "arm": "written",
    "updates": 40,
    "steps": 50,
    "seed": 0,
    "parameters": 1000,
    "update_seconds": 0.1,
    "began": "2026-01-01T00:00:00+00:00",
}


EXACT_RETURN, MEMORYLESS_RETURN = 0.2, 0.05
"""Returns per step of exact Bayes and of the best memoryless walk."""


def exact_regret(t: int) -> float:
    """Cumulative regret of exact Bayes."""
    return 0.3 * t**0.5


def synthetic_run(
    *, tests: Mapping[str, Curve] | None = None, training: Mapping[str, Curve] | None = None, **columns: Any
) -> dict[str, Any]:
    """A run with these columns, and these curves of test metrics and training metrics."""
    return {"columns": DEFAULTS | columns, "tests": tests or {}, "training": training or {}}


def synthetic_frames(*runs: dict[str, Any], seeds: int = 5, tasks: int = 4) -> Frames:
    """Frames as `load_frames` would make them; every test task has the curve's own value."""
    rows, metrics, evaluations = [], [], []
    for number, run in enumerate(runs):
        columns = run["columns"]
        name = columns.get("run", f"{columns['task']}-{columns['method']}-{number:012x}")
        arm = None if columns["method"] == "rnn" and columns["task"] != "regression" else columns["arm"]
        own = {"run": name, "path": name, "configuration": name[-12:], "seeds": seeds, "arm": arm}
        rows.append({"task_id": columns["task"]} | columns | own)
        for metric, curve in run["training"].items():
            metrics += [
                {"run": name, "seed": seed, "update": update, "metric": metric, "value": curve(seed, update)}
                for seed in range(seeds)
                for update in range(1, columns["updates"] + 1)
            ]
        for metric, curve in run["tests"].items():
            evaluations += [
                {
                    "run": name,
                    "configuration": name[-12:],
                    "seed": seed,
                    "task": task,
                    "t": t,
                    "metric": metric,
                    "value": curve(seed, t),
                }
                for seed in range(seeds)
                for task in range(tasks)
                for t in LENGTHS
            ]
    return Frames(
        runs=pl.DataFrame(rows, schema=RUNS_SCHEMA),
        metrics=pl.DataFrame(metrics, schema=METRICS_SCHEMA),
        evaluation=evaluation_by_seed(pl.DataFrame(evaluations, schema=EVALUATION_SCHEMA)),
        left_out={},
        provenance={row["run"]: [] for row in rows},
        oracle=synthetic_oracle(rows),
    )


def synthetic_oracle(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Exact Bayes on the control tasks of the runs, in tests and in training, and the memoryless walk."""
    made = []
    for task in sorted({row["task"] for row in rows} - {"regression"}):
        lengths = {task: LENGTHS} | {training_id(task, n): (n,) for n in {row["steps"] for row in rows}}
        for configuration, times in lengths.items():
            for t in times:
                values = {
                    (EXACT, "return"): EXACT_RETURN * t,
                    (EXACT, "cumulative_regret"): exact_regret(t),
                    (MEMORYLESS, "return"): MEMORYLESS_RETURN * t,
                }
                made += [
                    {
                        "run": run,
                        "configuration": configuration,
                        "seed": 0,
                        "task": 0,
                        "t": t,
                        "metric": metric,
                        "value": value,
                    }
                    for (run, metric), value in values.items()
                ]
    return pl.DataFrame(made, schema=EVALUATION_SCHEMA)
