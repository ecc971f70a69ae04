"""The program of an update is compiled once, while a new run is initialised."""

import threading

import jax
import numpy as np
import polars as pl
import pytest
from support.runs import SIZES
from support.verbs import float32

from recurrent_laplace.learning import make_train
from recurrent_laplace.runs import runner
from recurrent_laplace.runs.config import Run

pytestmark = pytest.mark.usefixtures("programs")

REGRESSION = ("train", "--task", "regression", *SIZES, "--updates", "3")


@pytest.fixture
def trains(monkeypatch):
    """Every `Train` that the runner makes, with the threads that called `init` and `advance`."""
    made = []

    def record(*args, **kwargs):
        train = make_train(*args, **kwargs)
        callers = {"init": [], "advance": []}
        for name in callers:
            method = getattr(train, name)

            def recorded(*args, name=name, method=method):
                if not isinstance(jax.tree.leaves(args)[0], jax.core.Tracer):
                    callers[name].append(threading.current_thread())
                return method(*args)

            monkeypatch.setattr(train, name, recorded)
        made.append((train, callers))
        return train

    monkeypatch.setattr(runner, "make_train", record)
    return made


def test_update_is_compiled_once_in_another_thread(command, trains, tmp_path):
    command(*REGRESSION, "--out", tmp_path).check(0)
    ((train, callers),) = trains
    assert train._advance._cache_size() == 1
    this = threading.current_thread()
    assert callers["init"] == [this]
    assert callers["advance"][0] is not this
    assert set(callers["advance"][1:]) == {this}


def test_metrics_are_those_of_the_training_alone(command, tmp_path):
    command(*REGRESSION, "--out", tmp_path).check(0)
    (directory,) = tmp_path.iterdir()
    run = Run.from_toml((directory / "config.toml").read_text(), directory)
    with float32():
        train = make_train(run.config)
        state, losses = train.init(jax.random.key(run.seed)), []
        for update in (1, 2, 3):
            state, progress = train.advance(state, update)
            losses.append(float(progress.metrics["loss"][0]))
    table = pl.read_parquet(directory / "metrics.parquet").filter(pl.col("metric") == "loss")
    np.testing.assert_array_equal(table.sort("update")["value"], losses)


def test_failure_in_the_thread_is_reported_by_the_run(command, monkeypatch, tmp_path):
    def fail(self, state, until):
        raise ValueError(f"no memory for {until} updates.")

    monkeypatch.setattr("recurrent_laplace.learning.train.Train.advance", fail)
    done = command(*REGRESSION, "--out", tmp_path)
    done.check(2)
    assert "no memory for 1 updates." in done.err
