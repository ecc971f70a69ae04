"""Evaluation of a run: its table, stored."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from recurrent_laplace.evaluation import EvaluationConfig, evaluate
from recurrent_laplace.evaluation.evaluate import TEST_TASKS, check_fit
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.experiments.models import load_state, per_seed
from recurrent_laplace.experiments.oracles import oracle_table
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import evaluation_frame, write_table
from recurrent_laplace.files import StorageError
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractTask


def evaluate_run(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path]:
    """Test the newest state of a run, and store the table in its directory.

    What is not the default has its own file: `evaluation-greedy.parquet`, say.
    """
    config.check()
    return _evaluate(directory, _newest_models(directory), config, task or directory.run.config.task)


def evaluate_beside_oracle(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path, pl.DataFrame]:
    """`evaluate_run`, and what exact Bayes reaches on the same tasks, which another core works out."""
    config.check()
    task = task or directory.run.config.task
    # What cannot be tested is refused before anything is begun that leaves a file.
    models = _newest_models(directory)
    check_fit(models[0], task)
    with ThreadPoolExecutor(max_workers=1) as beside:
        exact = beside.submit(oracle_table, directory.folder, task, tasks=config.tasks)
        return *_evaluate(directory, models, config, task), exact.result()


def _newest_models(directory: RunDirectory) -> list[Agent | Regressor]:
    """The model of each seed."""
    there = directory.checkpoints.updates()
    if not there:
        raise StorageError(f"{directory.path} has no checkpoint yet: train it first.")
    return per_seed(load_state(directory, there[-1]).model, directory.run)


def _evaluate(
    directory: RunDirectory, models: list[Agent | Regressor], config: EvaluationConfig, task: AbstractTask
) -> tuple[pl.DataFrame, Path]:
    run = directory.run
    frames = [
        evaluation_frame(
            run.id,
            run.configuration,
            run.seed + index,
            LENGTHS,
            evaluate(model, task, run.config.learning, config),
        )
        for index, model in enumerate(models)
    ]
    frame = pl.concat(frames)
    path = directory.path / f"{_file_name(run.config.task, task, config)}.parquet"
    write_table(path, frame)
    return frame, path


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
