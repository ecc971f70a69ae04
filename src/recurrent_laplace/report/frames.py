"""Tables of finished runs, from which figures and claims are made."""

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl

from recurrent_laplace.files import StorageError
from recurrent_laplace.report.arms import arm_of
from recurrent_laplace.report.commands import preset_of
from recurrent_laplace.report.work import core_hours, work_of
from recurrent_laplace.runs.config import Run, task_id
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.estimate import parameters
from recurrent_laplace.runs.evaluation import not_finite, stale_evaluation
from recurrent_laplace.runs.provenance import read_sessions
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, METRICS_SCHEMA, read_table

RUNS_SCHEMA = {
    "run": pl.String,
    "path": pl.String,
    "configuration": pl.String,
    "task": pl.String,
    "task_id": pl.String,  # name and hash of the parameters
    "origin": pl.String,  # scratch, finetuned, posthoc or calibrated
    "snapshot": pl.Float64,  # fraction of the parent's updates; null from scratch
    "parent": pl.String,
    "method": pl.String,  # rnn, vrnn, stationary, precision or mean_and_precision
    "covariance": pl.String,  # diagonal or dense; null for the RNN
    "window": pl.String,
    "features": pl.Int64,
    "beta": pl.Float64,
    "samples": pl.Int64,  # samples in the loss
    "acting_samples": pl.Int64,
    "arm": pl.String,  # released or written; null for runs of both
    "updates": pl.Int64,
    "steps": pl.Int64,  # steps per task in training: the cut-off
    "seed": pl.Int64,
    "seeds": pl.Int64,
    "parameters": pl.Int64,
    "update_seconds": pl.Float64,
    "began": pl.String,
    "seconds": pl.Float64,  # of all attempts, from the start of each to the end of its evaluation
    "cores": pl.Int64,  # that the processes of the run could use
    "commit": pl.String,
}

TESTS_SCHEMA = {
    "run": pl.String,
    "configuration": pl.String,
    "seed": pl.Int64,
    "t": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,  # mean over test tasks
    "by_task": pl.List(pl.Float32),  # values in the order of test tasks; null for metrics that need no pairs
}
PAIRED_METRICS = ("cross_entropy", "squared_error", "entropy", "kl", "return", "cumulative_regret")
"""Test metrics whose values are kept for each test task, since claims compare runs task by task."""
MEMORYLESS = "memoryless walk"
"""Name in `oracle` of the best memoryless agent of the gridworld."""


@dataclasses.dataclass(frozen=True)
class Frames:
    """Tables of the finished runs of a directory.

    - `runs`: a row per run, with the columns of `RUNS_SCHEMA`;
    - `metrics`: training metrics, `run, seed, update, metric, value`;
    - `evaluation`: test metrics, with the columns of `TESTS_SCHEMA`;
    - `left_out`: runs that cannot be reported on, with the reason, and runs with values that are not finite;
    - `provenance`: the recorded sessions of each run;
    - `folder`: directory that `path` of the runs is relative to; None if the tables are not from a directory;
    - `oracle`: performance of exact Bayes on the tasks of the runs, if added by `with_oracles`; columns as in
      files of evaluations, with the name of the reference as `run` and the identity of the task as
      `configuration`;
    - `judged`: whether claims are judged; not for runs of preset smoke, which learn nothing;
    - `configured`: the configuration of each run;
    - `left_out_hours`: core-hours of the runs that are left out.
    """

    runs: pl.DataFrame
    metrics: pl.DataFrame
    evaluation: pl.DataFrame
    left_out: dict[str, str]
    provenance: dict[str, list[dict[str, Any]]]
    folder: Path | None = None
    oracle: pl.DataFrame = dataclasses.field(default_factory=lambda: pl.DataFrame(schema=EVALUATION_SCHEMA))
    judged: bool = True
    configured: dict[str, Run] = dataclasses.field(default_factory=dict)
    left_out_hours: float = 0.0

    def training(self, metric: str, **chosen: Any) -> pl.DataFrame:
        """Training metric of the selected runs, joined with all columns of `runs`."""
        runs = select(self.runs, **chosen)
        rows = self.metrics.filter(pl.col("metric") == metric)
        return rows.join(runs.drop("seed"), on="run", how="inner")

    def tests(self, metric: str, **chosen: Any) -> pl.DataFrame:
        """Test metric of the selected runs: a row per seed and t, joined with all columns of `runs`."""
        runs = select(self.runs, **chosen)
        rows = self.evaluation.filter(
            (pl.col("metric") == metric) & pl.col("run").is_in(runs["run"].implode())
        )
        joined = rows.drop_nulls("value").join(runs.drop("seed"), on="run", how="inner")
        return joined.drop("configuration_right").sort("run", "seed", "t")


def evaluation_by_seed(evaluation: pl.DataFrame) -> pl.DataFrame:
    """Rows of an evaluation by test task as rows of `TESTS_SCHEMA`.

    The mean is null for a metric that is missing for all tasks, as the entropy of a point is, and NaN for one
    that is not finite for some: the mean of the others would be of easier tasks.
    """
    keys = ["run", "configuration", "seed", "t", "metric"]
    tasks = pl.col("value").cast(pl.Float32).alias("by_task")
    is_known = (
        pl.col("value").is_finite().all(ignore_nulls=False) | pl.col("value").is_null().all()
    ).fill_null(False)
    mean = pl.when(is_known).then(pl.col("value").mean()).otherwise(float("nan")).alias("value")
    table = evaluation.sort("task").group_by(keys, maintain_order=True).agg(mean, tasks)
    kept = pl.when(pl.col("metric").is_in(PAIRED_METRICS)).then("by_task").alias("by_task")
    return table.with_columns(kept).select(list(TESTS_SCHEMA)).cast(pl.Schema(TESTS_SCHEMA))


def select(runs: pl.DataFrame, **chosen: Any) -> pl.DataFrame:
    """Runs whose columns have these values; a tuple allows several, None selects null."""
    for column, value in chosen.items():
        if value is None:
            runs = runs.filter(pl.col(column).is_null())
        elif isinstance(value, tuple):
            runs = runs.filter(pl.col(column).is_in(value))
        else:
            runs = runs.filter(pl.col(column) == value)
    return runs


def load_frames(folder: Path) -> Frames:
    """Load the tables of all finished runs under `folder`."""
    if not folder.is_dir():
        raise StorageError(f"there is no directory {folder}.")
    rows, metrics, evaluations = [], [], []
    left_out, provenance, configured = {}, {}, {}
    directories: list[RunDirectory] = []
    for file in sorted(folder.rglob("config.toml")):
        try:
            directories.append(RunDirectory.open(file.parent))
        except StorageError as problem:
            left_out[file.parent.name] = str(problem)
    parents = {directory.run.id: directory.run for directory in directories}
    for directory in directories:
        try:
            if (reason := _exclusion_reason(directory)) is not None:
                left_out[directory.run.id] = reason
                continue
            sessions = read_sessions(directory.provenance_path)
            row = _row(directory, folder, parents, sessions)
            table = read_table(directory.evaluation_path, EVALUATION_SCHEMA)
            evaluation = evaluation_by_seed(table)
            if directory.run.config.learning.updates:
                metrics.append(read_table(directory.metrics_path, METRICS_SCHEMA))
        except StorageError as problem:
            left_out[directory.run.id] = str(problem)
            continue
        if (problem := not_finite(table)) is not None:
            left_out[directory.run.id] = f"only what is not finite: {problem}"
        provenance[directory.run.id] = sessions
        configured[directory.run.id] = directory.run
        rows.append(row)
        evaluations.append(evaluation)
    if not rows:
        reasons = "".join(f" {run}: {reason}" for run, reason in list(left_out.items())[:1])
        raise StorageError(f"{folder} has no finished run to report on.{reasons}")
    return Frames(
        runs=pl.DataFrame(rows, schema=RUNS_SCHEMA),
        metrics=pl.concat([pl.DataFrame(schema=METRICS_SCHEMA), *metrics]),
        evaluation=pl.concat(evaluations),
        left_out=left_out,
        provenance=provenance,
        folder=folder,
        judged=preset_of(folder) != "smoke",
        configured=configured,
        left_out_hours=sum(core_hours(each) for each in directories if each.run.id in left_out),
    )


def _exclusion_reason(directory: RunDirectory) -> str | None:
    """Reason why a run cannot be reported on; None if it can."""
    status = directory.status
    if status is None:
        return "not begun"
    if status.state != "finished":
        return status.state
    evaluate = f"recurrent-laplace evaluate {directory.path}"
    if not directory.evaluation_path.exists():
        return f"not evaluated: run {evaluate}"
    stale = stale_evaluation(directory)
    return None if stale is None else f"{stale}: run {evaluate}"


def _row(
    directory: RunDirectory, folder: Path, parents: dict[str, Run], sessions: list[dict[str, Any]]
) -> dict[str, Any]:
    run = directory.run
    learning, posterior = run.config.learning, run.config.posterior
    window = run.tables()["posterior"].get("window")
    origin, snapshot = "scratch", None
    if run.parent is not None:
        origin = "finetuned" if learning.updates else "posthoc"
        origin = origin if run.calibration is None else "calibrated"
        parent = parents.get(run.parent.run)
        if parent is not None:
            snapshot = run.parent.snapshot / max(parent.config.learning.updates, 1)
    seconds = [session["update_seconds"] for session in sessions if session.get("update_seconds")]
    work = work_of(directory, sessions)
    return {
        "run": run.id,
        "path": str(directory.path.relative_to(folder)),
        "configuration": run.configuration,
        "task": run.config.task.name,
        "task_id": task_id(run.config.task),
        "origin": origin,
        "snapshot": snapshot,
        "parent": None if run.parent is None else run.parent.run,
        "method": posterior.method,
        "covariance": posterior.family,
        "window": None if window is None else str(window),
        "features": run.config.agent.features,
        "beta": learning.beta,
        "samples": learning.training_samples,
        "acting_samples": learning.acting_samples,
        "arm": arm_of(run),
        "updates": learning.updates,
        "steps": learning.steps,
        "seed": run.seed,
        "seeds": run.seeds,
        "parameters": parameters(run),
        "update_seconds": min(seconds, default=None),
        "began": sessions[0].get("began") if sessions else None,
        "seconds": work.seconds,
        "cores": work.cores,
        "commit": next((session["commit"] for session in reversed(sessions) if session.get("commit")), None),
    }
