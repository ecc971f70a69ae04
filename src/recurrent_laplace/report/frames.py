"""Run directories in, tables out: all that figures and claims are made from."""

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl

from recurrent_laplace.experiments.config import Run, task_id
from recurrent_laplace.experiments.estimate import parameters
from recurrent_laplace.experiments.provenance import read_sessions
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import EVALUATION_SCHEMA, METRICS_SCHEMA, read_table
from recurrent_laplace.files import StorageError

RUNS_SCHEMA = {
    "run": pl.String,
    "path": pl.String,
    "configuration": pl.String,
    "task": pl.String,
    "task_id": pl.String,  # the name, and the hash of the parameters
    "origin": pl.String,  # scratch, finetuned, posthoc or calibrated
    "snapshot": pl.Float64,  # share of the parent's updates; null from scratch
    "parent": pl.String,
    "method": pl.String,  # rnn, vrnn, stationary, precision or mean_and_precision
    "covariance": pl.String,  # diagonal or dense; null for the RNN
    "window": pl.String,
    "features": pl.Int64,
    "beta": pl.Float64,
    "samples": pl.Int64,  # draws in the loss
    "updates": pl.Int64,
    "steps": pl.Int64,  # length of a task in training: the cut-off
    "seed": pl.Int64,
    "seeds": pl.Int64,
    "parameters": pl.Int64,
    "update_seconds": pl.Float64,
    "began": pl.String,
}


@dataclasses.dataclass(frozen=True)
class Frames:
    """The finished runs of a directory.

    - `runs`: a row each, with the columns of `RUNS_SCHEMA`;
    - `metrics`: training, `run, seed, update, metric, value`;
    - `evaluation`: tests, `run, configuration, seed, task, t, metric, value`;
    - `unfinished`: runs that are there and are not finished, with their status;
    - `provenance`: for each run, the sessions of work on it;
    - `folder`: where `path` of the runs begins; None for tables that came from elsewhere;
    - `oracle`: what exact Bayes reaches on the tasks of the runs, if it was added (`with_oracles`); as in
      `evaluation`, with the name of the reference for `run` and the identity of the task for `configuration`.
    """

    runs: pl.DataFrame
    metrics: pl.DataFrame
    evaluation: pl.DataFrame
    unfinished: dict[str, str]
    provenance: dict[str, list[dict[str, Any]]]
    folder: Path | None = None
    oracle: pl.DataFrame = dataclasses.field(default_factory=lambda: pl.DataFrame(schema=EVALUATION_SCHEMA))

    def training(self, metric: str, **chosen: Any) -> pl.DataFrame:
        """A training metric of chosen runs, beside all columns of the runs."""
        runs = select(self.runs, **chosen)
        rows = self.metrics.filter(pl.col("metric") == metric)
        return rows.join(runs.drop("seed"), on="run", how="inner")

    def tests(self, metric: str, **chosen: Any) -> pl.DataFrame:
        """A test metric of chosen runs: a row per seed and t, the mean over test tasks in `value`."""
        runs = select(self.runs, **chosen)
        rows = self.evaluation.filter(pl.col("metric") == metric)
        means = rows.group_by("run", "seed", "t").agg(pl.col("value").mean()).sort("run", "seed", "t")
        return means.drop_nulls("value").join(runs.drop("seed"), on="run", how="inner")


def select(runs: pl.DataFrame, **chosen: Any) -> pl.DataFrame:
    """The runs whose columns have these values; a tuple allows several, None asks for null."""
    for column, value in chosen.items():
        if value is None:
            runs = runs.filter(pl.col(column).is_null())
        elif isinstance(value, tuple):
            runs = runs.filter(pl.col(column).is_in(value))
        else:
            runs = runs.filter(pl.col(column) == value)
    return runs


def load_frames(folder: Path) -> Frames:
    """Everything that the finished runs anywhere under `folder` have left."""
    if not folder.is_dir():
        raise StorageError(f"there is no directory {folder}.")
    rows, metrics, evaluations = [], [], []
    unfinished, provenance = {}, {}
    parents = {}
    directories = [RunDirectory.open(file.parent) for file in sorted(folder.rglob("config.toml"))]
    for directory in directories:
        parents[directory.run.id] = directory.run
    for directory in directories:
        status = directory.status
        if status is None or status.word != "finished" or not directory.evaluation_path.exists():
            unfinished[directory.run.id] = "not begun" if status is None else status.word
            continue
        sessions = read_sessions(directory.provenance_path)
        provenance[directory.run.id] = sessions
        rows.append(_row(directory, folder, parents, sessions))
        if directory.run.config.learning.updates:
            metrics.append(read_table(directory.metrics_path, METRICS_SCHEMA))
        evaluations.append(read_table(directory.evaluation_path, EVALUATION_SCHEMA))
    if not rows:
        raise StorageError(f"{folder} has no finished run to report on.")
    return Frames(
        runs=pl.DataFrame(rows, schema=RUNS_SCHEMA),
        metrics=pl.concat([pl.DataFrame(schema=METRICS_SCHEMA), *metrics]),
        evaluation=pl.concat(evaluations),
        unfinished=unfinished,
        provenance=provenance,
        folder=folder,
    )


def method_of(run: Run) -> str:
    """The name of a method: its colour."""
    posterior = run.config.posterior
    match posterior.kind:
        case "point":
            return "rnn"
        case "variational":
            return "vrnn"
        case _:
            return "stationary" if posterior.accumulate == "none" else posterior.accumulate


def _row(
    directory: RunDirectory, folder: Path, parents: dict[str, Run], sessions: list[dict[str, Any]]
) -> dict[str, Any]:
    run = directory.run
    learning, posterior = run.config.learning, run.config.posterior
    origin, snapshot = "scratch", None
    if run.parent is not None:
        origin = "finetuned" if learning.updates else "posthoc"
        origin = origin if run.calibration is None else "calibrated"
        parent = parents.get(run.parent.run)
        if parent is not None:
            snapshot = run.parent.snapshot / max(parent.config.learning.updates, 1)
    seconds = [session["update_seconds"] for session in sessions if session.get("update_seconds")]
    return {
        "run": run.id,
        "path": str(directory.path.relative_to(folder)),
        "configuration": run.configuration,
        "task": run.config.task.name,
        "task_id": task_id(run.config.task),
        "origin": origin,
        "snapshot": snapshot,
        "parent": None if run.parent is None else run.parent.run,
        "method": method_of(run),
        "covariance": None if posterior.kind == "point" else posterior.covariance,
        "window": str(posterior.window),
        "features": run.config.agent.features,
        "beta": learning.beta,
        "samples": learning.training_samples,
        "updates": learning.updates,
        "steps": learning.steps,
        "seed": run.seed,
        "seeds": run.seeds,
        "parameters": parameters(run),
        "update_seconds": min(seconds, default=None),
        "began": sessions[0]["began"] if sessions else None,
    }
