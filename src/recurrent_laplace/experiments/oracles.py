"""What exact Bayes reaches on the tasks of runs: computed once for a task, kept in the folder of the runs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from recurrent_laplace.evaluation.control import Table
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.evaluation.references import evaluate_references, training_reference
from recurrent_laplace.experiments.config import task_id
from recurrent_laplace.experiments.tables import EVALUATION_SCHEMA, evaluation_frame, read_table, write_table
from recurrent_laplace.tasks import AbstractControlTask, AbstractTask

TRAINING_TASKS = 256
"""Tasks as training draws them: more, since no run has these very ones."""


def oracle_table(folder: Path, task: AbstractTask, *, tasks: int = TEST_TASKS) -> pl.DataFrame:
    """What the references of a task reach on its test tasks, as rows of an evaluation.

    `run` is the reference's name, `configuration` the identity of the task. Without rows where the exact
    belief is not known. The table is read from `folder`, or computed and put there: seconds.
    """
    # The first test tasks are the same however many there are: one table serves for all that are few.
    count = max(tasks, TEST_TASKS)
    name = task_id(task) if count == TEST_TASKS else f"{task_id(task)}-{count}-tasks"
    table = _kept(folder, name, task_id(task), LENGTHS, lambda: evaluate_references(task, tasks=count))
    return table.filter(pl.col("task") < tasks)


def training_table(folder: Path, task: AbstractTask, *, steps: int) -> pl.DataFrame:
    """The same of exact Bayes alone, after `steps` steps of tasks as training draws them.

    `configuration` is `training_id`.
    """
    if not isinstance(task, AbstractControlTask):
        return pl.DataFrame(schema=EVALUATION_SCHEMA)
    name = training_id(task_id(task), steps)
    return _kept(
        folder, name, name, (steps,), lambda: training_reference(task, tasks=TRAINING_TASKS, steps=steps)
    )


def training_id(task: str, steps: int) -> str:
    """Identity of a task with its distribution and its length in training."""
    return f"{task}-training-{steps}"


def _kept(
    folder: Path,
    name: str,
    configuration: str,
    lengths: Sequence[int],
    compute: Callable[[], dict[str, Table]],
) -> pl.DataFrame:
    path = folder / f"oracle-{name}.parquet"
    if path.exists():
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
