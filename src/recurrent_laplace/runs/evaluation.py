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
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_weights, per_seed
from recurrent_laplace.runs.oracles import oracle_table
from recurrent_laplace.runs.requirements import require_evaluation_memory
from recurrent_laplace.runs.tables import evaluation_frame, read_about, write_table
from recurrent_laplace.tasks import AbstractTask
from recurrent_laplace.tasks.held_out import LENGTHS

UPDATE, WEIGHTS = "recurrent-laplace.update", "recurrent-laplace.weights"
"""Metadata keys of an evaluation: the update and the checksum of the weights."""
TASKS = "recurrent-laplace.tasks"
"""Metadata key of an evaluation: the number of test tasks."""


class StoredModels(NamedTuple):
    """Models of a run at a stored update, one for each seed."""

    update: int
    weights: str | None
    models: list[Agent | Regressor]


def evaluate_run(
    directory: RunDirectory,
    config: EvaluationConfig,
    task: AbstractTask | None = None,
    *,
    update: int | None = None,
    usual_tasks: int = TEST_TASKS,
) -> tuple[pl.DataFrame, Path]:
    """Evaluate a stored update of a run, the newest by default, and store the table in its directory.

    Options other than the default have a file of their own, such as `evaluation-greedy.parquet`, and so have
    updates before the end of training: `evaluation-update-150.parquet`. Other numbers of tasks than
    `usual_tasks` are in the name, too.
    """
    config.check()
    task = task or directory.run.config.task
    require_evaluation_memory(directory.run, task, config.tasks)
    return _evaluate(directory, _models(directory, update), config, task, update, usual_tasks)


def evaluate_missing(
    directory: RunDirectory, *, tasks: int = TEST_TASKS, with_snapshots: bool = False
) -> list[Path]:
    """Evaluate a run, and its snapshots on demand, unless intact tables of these weights and tasks exist."""
    config = EvaluationConfig(tasks=tasks)
    updates = directory.checkpoints.updates() if with_snapshots else [None]
    return [
        evaluate_run(directory, config, update=update, usual_tasks=tasks)[1]
        for update in updates
        if not evaluation_is_current(directory, update, tasks)
    ]


def evaluate_with_oracle(
    directory: RunDirectory,
    config: EvaluationConfig,
    task: AbstractTask | None = None,
    *,
    update: int | None = None,
) -> tuple[pl.DataFrame, Path, pl.DataFrame]:
    """Run `evaluate_run` and, in another thread, the exact-Bayes references on the same tasks."""
    config.check()
    task = task or directory.run.config.task
    require_evaluation_memory(directory.run, task, config.tasks)
    # Models that do not fit the task are refused before any file is written.
    stored = _models(directory, update)
    check_fit(stored.models[0], task)
    with ThreadPoolExecutor(max_workers=1) as pool:
        exact = pool.submit(oracle_table, directory.folder, task, tasks=config.tasks)
        return *_evaluate(directory, stored, config, task, update, TEST_TASKS), exact.result()


def evaluated_update(path: Path) -> int:
    """Number of updates of the weights that were evaluated."""
    return int(read_about(path)[UPDATE])


def evaluation_is_current(
    directory: RunDirectory, update: int | None = None, tasks: int = TEST_TASKS
) -> bool:
    """Whether an intact evaluation of these weights on these tasks exists; the newest weights by default."""
    run = directory.run
    path = directory.path / _file_name(run, run.config.task, EvaluationConfig(), update, TEST_TASKS)
    try:
        about = read_about(path) if path.is_file() else None
        if about is None or about.get(TASKS, str(TEST_TASKS)) != str(tasks):
            return False
        if update is None or update == run.config.learning.updates:
            return stale_evaluation(directory) is None
        weights = directory.checkpoints.weights_digest(update)
        return weights is None or about.get(WEIGHTS, weights) == weights
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


def not_finite(frame: pl.DataFrame) -> str | None:
    """First metric of an evaluation that is not finite for some test tasks; None if there is none.

    Metrics that a model does not have, such as the entropy of a point, are missing for all tasks.
    """
    missing, infinite = pl.col("value").is_null(), pl.col("value").is_infinite().fill_null(False)
    counts = frame.group_by("metric", "t", "seed", maintain_order=True).agg(
        broken=(missing | infinite).sum(), missing=missing.sum(), tasks=pl.len()
    )
    broken = counts.filter((pl.col("broken") > 0) & (pl.col("missing") < pl.col("tasks")))
    if broken.is_empty():
        return None
    row = broken.row(0, named=True)
    where = f"{row['broken']} of {row['tasks']} test tasks of seed {row['seed']}"
    return f"{row['metric']} after {row['t']} inputs, in {where}"


def _models(directory: RunDirectory, update: int | None) -> StoredModels:
    update = directory.newest_update() if update is None else update
    models = per_seed(load_weights(directory, update), directory.run)
    return StoredModels(update, directory.checkpoints.weights_digest(update), models)


def _evaluate(
    directory: RunDirectory,
    stored: StoredModels,
    config: EvaluationConfig,
    task: AbstractTask,
    update: int | None,
    usual_tasks: int,
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
        for index, model in enumerate(stored.models)
    ]
    frame = pl.concat(frames)
    path = directory.path / _file_name(run, task, config, update, usual_tasks)
    about = {UPDATE: str(stored.update), TASKS: str(config.tasks)}
    write_table(path, frame, about if stored.weights is None else about | {WEIGHTS: stored.weights})
    return frame, path


def _file_name(
    run: Run, task: AbstractTask, config: EvaluationConfig, update: int | None, usual_tasks: int
) -> str:
    own, parts = run.config.task, ["evaluation"]
    if update not in (None, run.config.learning.updates):
        parts.append(f"update-{update}")
    if task != own:
        changed = [
            f"{field.name}-{getattr(task, field.name)}"
            for field in dataclasses.fields(task)
            if type(task) is not type(own) or getattr(task, field.name) != getattr(own, field.name)
        ]
        parts += [task.name] * (type(task) is not type(own)) + changed
    if config.tasks != usual_tasks:
        parts.append(f"{config.tasks}-tasks")
    if config.greedy:
        parts.append("greedy")
    return f"{'-'.join(parts)}.parquet"
