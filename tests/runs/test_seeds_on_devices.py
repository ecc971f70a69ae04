"""Checkpoints of runs whose seeds, or tasks, are sharded over several devices, in fresh processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from support.runs import SIZES, arrays
from support.verbs import float32

from recurrent_laplace.learning import make_train
from recurrent_laplace.runs.checkpoints import Checkpoints
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_state

PROGRAM = str(Path(sys.executable).parent / "recurrent-laplace")
UPDATES = 20
TRAIN = (
    "train",
    "--task",
    "regression",
    *SIZES,
    "--batch",
    "8",
    "--updates",
    str(UPDATES),
    "--checkpoint-seconds",
    "0",
)
PATIENCE = 240
"""Timeout of a child process in seconds."""


def environment(programs: Path, devices: int) -> dict[str, str]:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    return os.environ | {
        "XLA_FLAGS": flags,
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("devices", "seeds"),
    [
        (2, 2),
        (2, 3),  # Tasks are sharded: the seeds do not divide.
        (4, 6),
        (8, 8),
        (8, 5),
    ],
)
def test_every_seed_survives_a_kill_and_serves_all_verbs(devices, seeds, shared, tmp_path):
    environ = environment(shared / "compiled", devices)

    def command(*args) -> str:
        done = subprocess.run(
            [PROGRAM, *map(str, args)], env=environ, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    train = [*TRAIN, "--seeds", seeds, "--devices", devices, "--out", tmp_path / "runs"]
    process = subprocess.Popen([PROGRAM, *map(str, train)], env=environ, stdout=subprocess.DEVNULL)
    limit = time.monotonic() + PATIENCE
    while not list(tmp_path.glob(f"runs/*/checkpoints/{UPDATES // 2}")):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()

    command(*train, "--resume")
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    for name, array in arrays(run, UPDATES).items():
        assert np.shape(array)[0] == seeds, name
    command(*TRAIN, "--seeds", seeds, "--devices", 1, "--out", tmp_path / "alone")
    alone = arrays(tmp_path / "alone" / run.name, UPDATES)
    for name, array in arrays(run, UPDATES).items():
        # Sums over devices have another order, and the difference grows over the updates of float32.
        np.testing.assert_allclose(array, alone[name], rtol=1e-2, atol=1e-3, err_msg=name)

    command("evaluate", run, "--tasks", 4)
    frame = pl.read_parquet(run / "evaluation-4-tasks.parquet")
    assert frame["seed"].unique().sort().to_list() == list(range(seeds))
    first = frame.filter(pl.col("metric") == "squared_error", pl.col("t") == 5)
    assert first.group_by("seed").agg(pl.col("value").mean())["value"].n_unique() == seeds
    for verb, *options in (("finetune",), ("posthoc", "--tasks", 4)):
        made = command(verb, run, "--posterior", "laplace", *options).splitlines()
        assert any(line.startswith(("finished: ", "written: ")) for line in made), made


def test_run_that_version_01_damaged_says_what_was_lost(tmp_path, command):
    """Version 0.1 stored only the seeds of the first device."""
    run = command(*TRAIN, "--seeds", 2, "--devices", 1, "--updates", 2, "--out", tmp_path).path
    with float32():
        directory = RunDirectory.open(run)
        state = load_state(directory, 2, make_train(directory.run.config))
        half = jax.tree.map(lambda leaf: leaf[:1], state)
        shutil.rmtree(run / "checkpoints")
        Checkpoints(run / "checkpoints", run.name).save(2, half)
    command("evaluate", run).refused("has the weights of 1 of 2 seeds", "train it again")
