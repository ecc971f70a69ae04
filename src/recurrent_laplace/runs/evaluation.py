"""Evaluation of a run: a table, stored with the update and the checksum of the evaluated weights."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import polars as pl

from recurrent_laplace.evaluation import EvaluationConfig, evaluate
from recurrent_laplace.evaluation.evaluate import TEST_TASKS, check_fit
from recurrent_laplace.files import DamagedError
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_weights, per_seed
from recurrent_laplace.runs.oracles import oracle_table
from recurrent_laplace.runs.requirements import require_evaluation_memory
from recurrent_laplace.runs.tables import evaluation_frame, read_about, write_table
from recurrent_laplace.tasks import AbstractTask
from recurrent_laplace.tasks.held_out import LENGTHS

UPDATE, WEIGHTS = "recurrent-laplace.update", "recurrent-laplace.weights"
"""Metadata keys of an evaluation: the update and the checksum of the weights."""


class NewestModels(NamedTuple):
    """The newest models of a run, one for each seed."""

    update: int
    weights: str | None
    models: list[Agent | Regressor]


def evaluate_run(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path]:
    """Evaluate the newest checkpoint of a run, and store the table in its directory.

    Options other than the default have a file of their own, such as `evaluation-greedy.parquet`.
    """
    config.check()
    task = task or directory.run.config.task
    require_evaluation_memory(directory.run, task, config.tasks)
    return _evaluate(directory, _newest_models(directory), config, task)


def evaluate_with_oracle(
    directory: RunDirectory, config: EvaluationConfig, task: AbstractTask | None = None
) -> tuple[pl.DataFrame, Path, pl.DataFrame]:
    """Run `evaluate_run` and, in another thread, the exact-Bayes references on the same tasks."""
    config.check()
    task = task or directory.run.config.task
    require_evaluation_memory(directory.run, task, config.tasks)
    # Models that do not fit the task are refused before any file is written.
    newest = _newest_models(directory)
    check_fit(newest.models[0], task)
    with ThreadPoolExecutor(max_workers=1) as pool:
        exact = pool.submit(oracle_table, directory.folder, task, tasks=config.tasks)
        return *_evaluate(directory, newest, config, task), exact.result()


def evaluated_update(path: Path) -> int:
    """Number of updates of the weights that were evaluated."""
    return int(read_about(path)[UPDATE])


def evaluation_is_current(directory: RunDirectory) -> bool:
    """Whether an intact evaluation of the newest weights exists."""
    try:
        return directory.evaluation_path.is_file() and stale_evaluation(directory) is None
    except DamagedError:
        return False


def stale_evaluation(directory: RunDirectory) -> str | None:
    """Reason why an evaluation is not one of the newest weights; None if it is.

    Evaluations and checkpoints of version 0.1 do not record their weights, and count as current.
    """
    about = read_about(directory.evaluation_path)
    stored = directory.checkpoints.updates()
    # The checkpoints of a finished run may be gone.
    newest = directory.run.config.learning.updates if directory.is_finished else max(stored, default=None)
    if UPDATE not in about or newest is None:
        return None
    if about[UPDATE] != str(newest):
        return f"its evaluation is of update {about[UPDATE]}, its newest weights are of update {newest}"
    weights = directory.checkpoints.weights_digest(newest) if newest in stored else None
    if weights is not None and about.get(WEIGHTS, weights) != weights:
        return f"its evaluation is of other weights than those of update {newest}"
    return None


def _newest_models(directory: RunDirectory) -> NewestModels:
    update = directory.newest_update()
    models = per_seed(load_weights(directory, update), directory.run)
    return NewestModels(update, directory.checkpoints.weights_digest(update), models)


def _evaluate(
    directory: RunDirectory, newest: NewestModels, config: EvaluationConfig, task: AbstractTask
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
        for index, model in enumerate(newest.models)
    ]
    frame = pl.concat(frames)
    path = directory.path / f"{_file_name(run.config.task, task, config)}.parquet"
    about = {UPDATE: str(newest.update)}
    write_table(path, frame, about if newest.weights is None else about | {WEIGHTS: newest.weights})
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
