"""Evaluation of a run: its table, stored."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from recurrent_laplace.evaluation import EvaluationConfig, evaluate
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.experiments.models import load_state, per_seed
from recurrent_laplace.experiments.oracles import oracle_table
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import evaluation_frame, write_table
from recurrent_laplace.files import StorageError
from recurrent_laplace.tasks import AbstractTask


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


def evaluate_beside_oracle(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path, pl.DataFrame]:
    """`evaluate_run`, and what exact Bayes reaches on the same tasks, which another core works out."""
    config.check()
    task = directory.run.config.task if task is None else task
    with ThreadPoolExecutor(max_workers=1) as beside:
        exact = beside.submit(oracle_table, directory.folder, task, tasks=config.tasks)
        return *evaluate_run(directory, config, task), exact.result()


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
