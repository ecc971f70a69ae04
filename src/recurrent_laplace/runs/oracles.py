"""Cache of exact-Bayes references: computed once per task, stored in the folder of the runs."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.references import evaluate_references, training_reference
from recurrent_laplace.files import DamagedError
from recurrent_laplace.runs.config import task_id
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, evaluation_frame, read_table, write_table
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask
from recurrent_laplace.tasks.held_out import LENGTHS
from recurrent_laplace.tasks.references import origin_of

TRAINING_TASKS = 256
"""Number of training tasks: more than test tasks, since runs are not paired on them."""


def oracle_table(folder: Path, task: AbstractTask, *, tasks: int = TEST_TASKS) -> pl.DataFrame:
    """Scores of a task's references on its test tasks, as rows of an evaluation.

    `run` is the reference's name, `configuration` the identity of the task. The table is empty where the
    exact belief is not known. It is read from `folder`, or computed in seconds and stored there.
    """
    # The first test tasks do not depend on their number: one table serves all smaller numbers.
    count = max(tasks, TEST_TASKS)
    name = task_id(task) if count == TEST_TASKS else f"{task_id(task)}-{count}-tasks"
    name += _version(task)
    table = _cached(folder, name, task_id(task), LENGTHS, lambda: evaluate_references(task, tasks=count))
    return table.filter(pl.col("task") < tasks)


def training_table(folder: Path, task: AbstractTask, *, steps: int) -> pl.DataFrame:
    """Scores of exact Bayes after `steps` steps of tasks from the training distribution.

    `configuration` is `training_id`.
    """
    if not isinstance(task, AbstractControlTask):
        return pl.DataFrame(schema=EVALUATION_SCHEMA)
    name = training_id(task_id(task), steps)
    return _cached(
        folder,
        name + _version(task),
        name,
        (steps,),
        lambda: training_reference(task, tasks=TRAINING_TASKS, steps=steps),
    )


def _version(task: AbstractTask) -> str:
    """Part of a file name: the version of a task that the user may change, with its oracle."""
    origin = origin_of(type(task))
    return "" if origin is None else f"-{origin.digest[:12]}"


def training_id(task: str, steps: int) -> str:
    """Identity of a task with its training distribution and length."""
    return f"{task}-training-{steps}"


def _cached(
    folder: Path,
    name: str,
    configuration: str,
    lengths: Sequence[int],
    compute: Callable[[], dict[str, Table]],
) -> pl.DataFrame:
    path = folder / f"oracle-{name}.parquet"
    if path.exists():
        with contextlib.suppress(DamagedError):  # A damaged table is computed again.
            return read_table(path, EVALUATION_SCHEMA)
    frames = [
        evaluation_frame(
            reference,
            configuration,
            0,
            lengths,
            {metric: np.asarray(values, dtype=np.float64) for metric, values in table.items()},
        )
        for reference, table in compute().items()
    ]
    if not frames:
        return pl.DataFrame(schema=EVALUATION_SCHEMA)
    frame = pl.concat(frames)
    write_table(path, frame)
    return frame
