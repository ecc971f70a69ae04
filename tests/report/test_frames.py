"""Tables of runs with numbers that are not finite."""

import numpy as np
import polars as pl
import pytest
from support.runs import run_of_version_01

from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.runs.tables import write_table


@pytest.mark.parametrize("number", [None, np.inf])
def test_a_mean_over_tasks_of_which_one_is_not_finite_is_not_finite(number, tmp_path):
    """The mean over the other tasks would be that of easier ones."""
    run = run_of_version_01(tmp_path)
    frame = pl.read_parquet(run / "evaluation-8-tasks.parquet")
    write_table(run / "evaluation.parquet", frame)
    before = load_frames(tmp_path)
    assert before.left_out == {}
    one = (pl.col("metric") == "return") & (pl.col("task") == 3) & (pl.col("t") == 10) & (pl.col("seed") == 0)
    value = pl.when(one).then(pl.lit(number, pl.Float64)).otherwise("value").alias("value")
    write_table(run / "evaluation.parquet", frame.with_columns(value))
    after = load_frames(tmp_path)
    sentence = "only what is not finite: return after 10 inputs, in 1 of 8 test tasks of seed 0"
    assert after.left_out == {run.name: sentence}
    values = before.evaluation["value"], after.evaluation["value"]
    assert before.evaluation.drop("value", "by_task").equals(after.evaluation.drop("value", "by_task"))
    changed = values[0].ne_missing(values[1])
    assert changed.sum() == 1
    assert np.isnan(values[1].filter(changed)[0])
    assert after.evaluation.filter(changed).select("metric", "t", "seed").row(0) == ("return", 10, 0)
