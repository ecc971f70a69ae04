"""Performance of exact Bayes on the tasks of the reported runs."""

import dataclasses
from collections.abc import Callable

import numpy as np
import polars as pl

from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.oracles import memoryless_return
from recurrent_laplace.report.frames import MEMORYLESS, Frames
from recurrent_laplace.report.selection import cutoff_of
from recurrent_laplace.runs.config import task_id
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.oracles import oracle_table, training_id, training_table
from recurrent_laplace.runs.tables import evaluation_frame
from recurrent_laplace.tasks import Gridworld
from recurrent_laplace.tasks.held_out import LENGTHS

ProgressCallback = Callable[[str], None]
"""Receives one line of progress."""


def with_oracles(frames: Frames, progress: ProgressCallback = lambda text: None) -> Frames:
    """Add the tables of exact Bayes to frames: one per task, and one per training length.

    Tables that are not yet stored next to the runs are computed and stored there.
    """
    if frames.folder is None:
        return frames
    tables = [frames.oracle]
    for row in frames.runs.unique("task_id", keep="first", maintain_order=True).iter_rows(named=True):
        progress(f"exact Bayes on {row['task'].replace('_', ' ')}")
        directory = RunDirectory.open(frames.folder / row["path"])
        task = directory.run.config.task
        # Exact Bayes and the agents play the same test tasks.
        runs = frames.runs.filter(pl.col("task_id") == row["task_id"])["run"].implode()
        tests = frames.evaluation.filter(pl.col("run").is_in(runs))["by_task"].list.len()
        tasks = max([TEST_TASKS, *tests.drop_nulls().to_list()])
        tables.append(oracle_table(directory.folder, task, tasks=tasks))
        if isinstance(task, Gridworld):
            tables.append(_memoryless_table(task))
        trained = frames.runs.filter((pl.col("task_id") == row["task_id"]) & (pl.col("updates") > 0))
        tables += [
            training_table(directory.folder, task, steps=steps) for steps in trained["steps"].unique().sort()
        ]
    return dataclasses.replace(frames, oracle=pl.concat(tables))


def _memoryless_table(task: Gridworld) -> pl.DataFrame:
    """Expected return of the best memoryless walk, exact and the same for every test task."""
    values = np.array([[memoryless_return(task, steps=steps) if steps else 0.0 for steps in LENGTHS]])
    return evaluation_frame(MEMORYLESS, task_id(task), 0, LENGTHS, {"return": values})


def exact_tests(frames: Frames, runs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Test performance of exact Bayes on the commonest task of these runs: rows of `t, value`."""
    return _means(frames, metric, _commonest(runs))


def exact_training(frames: Frames, runs: pl.DataFrame, metric: str) -> float | None:
    """Performance of exact Bayes on the commonest training task of these runs; None if unknown."""
    steps = cutoff_of(runs)
    if steps is None:
        return None
    rows = _means(frames, metric, training_id(_commonest(runs), steps))
    return None if rows.is_empty() else rows["value"][0]


def _means(frames: Frames, metric: str, configuration: str) -> pl.DataFrame:
    rows = frames.oracle.filter(
        (pl.col("run") == EXACT) & (pl.col("metric") == metric) & (pl.col("configuration") == configuration)
    )
    return rows.drop_nulls("value").group_by("t").agg(pl.col("value").mean()).sort("t")


def _commonest(runs: pl.DataFrame) -> str:
    """Identity of the commonest task; empty if none is known."""
    known = runs["task_id"].drop_nulls().mode()
    return "" if known.is_empty() else str(known.min())
