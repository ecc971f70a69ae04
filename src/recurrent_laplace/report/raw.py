"""Compact raw tables of a report: verdicts, runs, evaluation and training curves, as parquet files."""

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from recurrent_laplace.files import StorageError, storage_errors
from recurrent_laplace.report.claims import Gate, Verdict
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.panels import METRICS
from recurrent_laplace.runs.tables import write_table

FOLDER = "tables"
"""Name of the folder of the tables, in the directory of the runs."""
LIMIT = 5_000_000
"""Maximum size of all tables together, in bytes."""
POINTS = (120, 60, 30, 15)
"""Points per training curve; the first number for which the tables are below the limit."""

CONTENT = {
    "claims": "claims with their rules and verdicts, a row per column of verdicts",
    "gates": "what the agents have learned, a row per gate and column",
    "runs": "runs with their options, parameters, times and commits",
    "evaluation": "test metrics: mean over test tasks and its standard error, by run, seed and t",
    "training": "training metrics by run and seed, averaged over groups of consecutive updates",
}
"""Descriptions of the tables by name."""


def write_tables(
    frames: Frames, verdicts: Sequence[Verdict], gates: Sequence[Gate], folder: Path, limit: int = LIMIT
) -> list[Path]:
    """Write the tables to a folder, in the order of `CONTENT`; their total size is below `limit` bytes."""
    with storage_errors("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "claims": claims_table(verdicts),
        "gates": pl.DataFrame([vars(gate) for gate in gates], schema=GATES_SCHEMA),
        "runs": frames.runs.drop("path"),
        "evaluation": evaluation_table(frames),
    }
    paths = {name: folder / f"{name}.parquet" for name in CONTENT}
    for name, table in tables.items():
        write_table(paths[name], table)
    for points in POINTS:
        write_table(paths["training"], training_table(frames, points))
        if sum(path.stat().st_size for path in paths.values()) < limit:
            return list(paths.values())
    raise StorageError(f"the tables of {folder} are larger than {limit} bytes, with {points} points a curve.")


CLAIMS_SCHEMA = {
    "id": pl.String,
    "column": pl.String,
    "verdict": pl.String,
    "claim": pl.String,
    "rule": pl.String,
    "summary": pl.String,
    "evidence": pl.String,
    "figure": pl.Int64,
    "gate": pl.String,
    "open": pl.String,  # configurations, as a JSON list
}
GATES_SCHEMA = {"name": pl.String, "column": pl.String, "words": pl.String, "passed": pl.Boolean}


def claims_table(verdicts: Sequence[Verdict]) -> pl.DataFrame:
    """Verdicts with the columns of `CLAIMS_SCHEMA`."""
    rows = [vars(verdict) | {"open": json.dumps(verdict.open)} for verdict in verdicts]
    return pl.DataFrame(rows, schema=CLAIMS_SCHEMA)


def evaluation_table(frames: Frames) -> pl.DataFrame:
    """Means of test metrics over test tasks, with standard errors where values of tasks are kept."""
    tasks = pl.col("by_task").list
    error = (tasks.std() / tasks.len().sqrt()).cast(pl.Float32).alias("standard_error")
    columns = ("run", "seed", "t", "metric")
    table = frames.evaluation.drop_nulls("value")
    return table.select(*columns, pl.col("value").cast(pl.Float32), error).sort(columns)


def training_table(frames: Frames, points: int) -> pl.DataFrame:
    """Metrics of the figures in training, with at most `points` points a curve, each at its mean update."""
    curve = ["run", "seed", "metric"]
    rows = frames.metrics.filter(pl.col("metric").is_in(list(METRICS))).drop_nulls("value")
    first, last = pl.col("update").min().over("run"), pl.col("update").max().over("run")
    size = ((last - first + points) // points).alias("size")
    groups = rows.with_columns(((pl.col("update") - first) // size).alias("group"))
    means = groups.group_by(*curve, "group").agg(pl.col("update", "value").mean().cast(pl.Float32))
    return means.sort(*curve, "group").drop("group")
