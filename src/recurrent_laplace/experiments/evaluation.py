"""Evaluation of a run: its table, stored and printed."""

import dataclasses
from pathlib import Path

import polars as pl
from rich.table import Table

from recurrent_laplace.evaluation import EvaluationConfig, evaluate
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.experiments.models import load_state, per_seed
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import evaluation_frame, write_table
from recurrent_laplace.files import StorageError
from recurrent_laplace.tasks import AbstractTask

COLUMNS = ((0, 1, 5, 10, 20, 50, 100, 200), (1, 10, 50, 100, 200), (1, 50, 200))
"""Lengths to print, for wide and for narrow terminals."""


def evaluate_run(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path]:
    """Test the newest state of a run, and store the table in its directory.

    What is not the default has its own file: `evaluation-greedy.parquet`, say.
    """
    config.check()
    run = directory.run
    task = run.config.task if task is None else task
    there = directory.checkpoints.updates()
    if not there:
        raise StorageError(f"{directory.path} has no checkpoint yet: train it first.")
    model = load_state(directory, there[-1]).model
    frames = [
        evaluation_frame(
            run.id,
            run.configuration,
            run.seed + index,
            LENGTHS,
            evaluate(one, task, run.config.learning, config),
        )
        for index, one in enumerate(per_seed(model, run))
    ]
    frame = pl.concat(frames)
    path = directory.path / f"{_file_name(run.config.task, task, config)}.parquet"
    write_table(path, frame)
    return frame, path


def summary(frame: pl.DataFrame) -> dict[tuple[str, int], Interval]:
    """For each metric and length, the mean over tasks with its interval.

    Tasks are the units: the seeds of a run share them, so a task's value is its mean over seeds.
    """
    by_task = frame.group_by("metric", "t", "task").agg(pl.col("value").mean())
    result = {}
    for (metric, t), group in by_task.group_by("metric", "t"):
        values = group["value"].drop_nulls().to_numpy()
        if len(values):
            result[str(metric), int(str(t))] = mean_interval(values)
    return result


def summary_table(frame: pl.DataFrame, width: int) -> Table:
    """The summary to print: metrics in rows, and as many lengths in columns as fit into `width`."""
    cells = summary(frame)
    lengths = next((some for some in COLUMNS if 28 + 17 * len(some) <= width), COLUMNS[-1])
    table = Table(
        "metric", *(f"t = {t}" for t in lengths), title="mean ± half of the 99% interval over tasks"
    )
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for metric in frame["metric"].unique(maintain_order=True):
        table.add_row(metric, *(_cell(cells.get((metric, t))) for t in lengths))
    return table


def _cell(interval: Interval | None) -> str:
    if interval is None:
        return "-"
    if interval.units == 1:
        return f"{interval.mean:.3g}"
    return f"{interval.mean:.3g} ± {interval.high - interval.mean:.2g}"


def _file_name(own: AbstractTask, task: AbstractTask, config: EvaluationConfig) -> str:
    parts = ["evaluation"]
    if task != own:
        changed = [
            f"{field.name}-{getattr(task, field.name)}"
            for field in dataclasses.fields(task)
            if type(task) is not type(own) or getattr(task, field.name) != getattr(own, field.name)
        ]
        parts += [task.name] * (type(task) is not type(own)) + changed
    if config.tasks != TEST_TASKS:
        parts.append(f"{config.tasks}-tasks")
    if config.greedy:
        parts.append("greedy")
    return "-".join(parts)
