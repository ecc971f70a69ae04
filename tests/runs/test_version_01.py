"""A run directory written by version 0.1 is evaluated to the same table, and resumed from the same state."""

import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support.runs import arrays, run_of_version_01
from support.verbs import float32

from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import evaluate_run

UPDATES, TASKS = 4, 8
KEYS = ["run", "configuration", "seed", "task", "t", "metric"]
LEARNED_METRICS = ("loss", "policy_loss", "value_loss", "gradient_norm")
"""Metrics that depend on the advantages, which version 0.1 took from values at samples of the belief."""


@pytest.fixture
def run(tmp_path) -> Path:
    return run_of_version_01(tmp_path)


def test_evaluation_gives_the_same_table(run):
    """Without the references of the bandit, which take a minute here and belong to no run."""
    table = run / f"evaluation-{TASKS}-tasks.parquet"
    before = pl.read_parquet(table)
    table.unlink()
    with float32():
        after, path = evaluate_run(RunDirectory.open(run), EvaluationConfig(tasks=TASKS))
    assert path == table
    # Other processors round differently.
    assert_frame_equal(after.sort(KEYS), before.sort(KEYS), rel_tol=1e-4, abs_tol=1e-5)


def test_resume_starts_from_the_same_state(run, command):
    """All that the last update measures before it learns: later versions learn from other values."""
    metrics = pl.read_parquet(run / "metrics.parquet")
    shutil.rmtree(run / "checkpoints" / str(UPDATES))
    (run / "status").write_text("interrupted\n")
    train = ("train", "--config", run / "config.toml", "--seeds", 2, "--devices", 1, "--out", run.parent)
    assert command(*train, "--resume").path == run
    after = pl.read_parquet(run / "metrics.parquet")
    assert after.select("run", "seed", "update", "metric").equals(
        metrics.select("run", "seed", "update", "metric")
    )
    learned = (pl.col("update") == UPDATES) & pl.col("metric").is_in(LEARNED_METRICS)
    assert_frame_equal(after.filter(~learned), metrics.filter(~learned), rel_tol=1e-4, abs_tol=1e-4)
    assert all(np.isfinite(array).all() for array in arrays(run, UPDATES).values())
