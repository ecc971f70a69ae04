"""Raw tables: means over tasks, averaged curves, and a limit of their size."""

import dataclasses

import numpy as np
import polars as pl
import pytest
from support.synthetic import synthetic_frames, synthetic_run

from recurrent_laplace.files import StorageError
from recurrent_laplace.report import raw
from recurrent_laplace.report.claims import Gate, Verdict
from recurrent_laplace.report.frames import evaluation_by_seed
from recurrent_laplace.report.raw import CONTENT, evaluation_table, training_table, write_tables
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA

VERDICT = Verdict("R1", "text", "rule", "on par", "evidence.", 3, "written", ("abc", "def"), None, "one.")
GATE = Gate("RNN on gridworld", "written", "missing", None)


@pytest.fixture
def frames():
    curves = {"return": lambda seed, update: float(update), "loss": lambda seed, update: 0.0}
    tests = {"return": lambda seed, t: float(t)}
    return synthetic_frames(synthetic_run(training=curves, tests=tests, updates=10), seeds=2)


def test_a_test_metric_is_the_mean_over_tasks_with_its_error(frames):
    values = [1.0, 2.0, 6.0]
    rows = [
        {
            "run": "a",
            "configuration": "a",
            "seed": 0,
            "task": task,
            "t": 5,
            "metric": "return",
            "value": value,
        }
        for task, value in enumerate(values)
    ]
    evaluation = evaluation_by_seed(pl.DataFrame(rows, schema=EVALUATION_SCHEMA))
    (row,) = evaluation_table(dataclasses.replace(frames, evaluation=evaluation)).iter_rows(named=True)
    assert row["value"] == pytest.approx(3.0)
    assert row["standard_error"] == pytest.approx(np.std(values, ddof=1) / np.sqrt(3))


@pytest.mark.parametrize(
    ("points", "expected"), [(20, list(range(1, 11))), (5, [1.5, 3.5, 5.5, 7.5, 9.5]), (4, [2, 5, 8, 10])]
)
def test_curves_are_averaged(frames, points, expected):
    table = training_table(frames, points)
    # The loss is in no figure.
    assert set(table["metric"]) == {"return"}
    for seed in (0, 1):
        own = table.filter(pl.col("seed") == seed)
        assert own["update"].to_list() == expected
        assert own["value"].to_list() == expected


def test_tables_are_written_and_read_back(frames, tmp_path):
    paths = write_tables(frames, [VERDICT], [GATE], tmp_path / "tables")
    assert [path.stem for path in paths] == list(CONTENT)
    tables = {path.stem: pl.read_parquet(path) for path in paths}
    (row,) = tables["claims"].iter_rows(named=True)
    assert (row["id"], row["verdict"], row["open"]) == ("R1", "on par", '["abc", "def"]')
    assert tables["gates"].row(0) == ("RNN on gridworld", "written", "missing", None)
    assert tables["runs"]["run"].to_list() == frames.runs["run"].to_list()
    assert "path" not in tables["runs"].columns
    assert len(tables["training"]) == 20
    assert len(tables["evaluation"]) == len(frames.evaluation)


def test_curves_have_fewer_points_where_tables_are_large(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(raw, "POINTS", (10, 5))
    size = sum(path.stat().st_size for path in write_tables(frames, [], [], tmp_path))
    write_tables(frames, [], [], tmp_path, limit=size)
    assert len(pl.read_parquet(tmp_path / "training.parquet")) == 10
    with pytest.raises(StorageError, match="larger than 10 bytes, with 5 points a curve"):
        write_tables(frames, [], [], tmp_path, limit=10)
