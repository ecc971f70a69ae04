"""Tables of runs whose numbers cannot be trusted."""

import numpy as np
import polars as pl
import pytest
from support.runs import run_of_version_01

from recurrent_laplace.files import StorageError
from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.runs.tables import write_table


@pytest.mark.parametrize("number", [None, np.inf])
def test_an_evaluation_that_is_not_finite_for_some_tasks_is_left_out(number, tmp_path):
    """The mean over the other tasks would be a number that nobody has measured."""
    run = run_of_version_01(tmp_path)
    frame = pl.read_parquet(run / "evaluation-8-tasks.parquet")
    write_table(run / "evaluation.parquet", frame)
    assert load_frames(tmp_path).left_out == {}
    one = (pl.col("metric") == "return") & (pl.col("task") == 3) & (pl.col("t") == 10)
    value = pl.when(one).then(pl.lit(number, pl.Float64)).otherwise("value").alias("value")
    write_table(run / "evaluation.parquet", frame.with_columns(value))
    with pytest.raises(StorageError, match="its evaluation is not finite: return after 10 inputs, in 1 of 8 test"):
        load_frames(tmp_path)
