"""Commands that would not fit in memory fail with one sentence before anything is allocated."""

import subprocess
import sys

import pytest
from support.runs import run_of_version_01
from support.verbs import Done

from recurrent_laplace.cli.parsing import default_run
from recurrent_laplace.machine import memory
from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.presets import PRESETS
from recurrent_laplace.runs.requirements import require_training_memory
from recurrent_laplace.tasks import TASKS

LIMIT = 4 * 1024**3
"""Memory limit of the commands in bytes."""
LARGEST = str(2**31 - 1)

TRAINING = {
    "size": ("gridworld", "--task.size", "20000"),
    "largest size": ("gridworld", "--task.size", LARGEST),
    "batch": ("gridworld", "--batch", "100000000"),
    "hidden size": ("gridworld", "--hidden-size", "2000000"),
    "largest hidden size": ("gridworld", "--hidden-size", LARGEST),
    "steps": ("coin", "--steps", LARGEST),
    "seeds": ("regression", "--seeds", "100000000"),
    "features": ("gridworld", "--posterior", "variational", "--covariance", "dense", "--features", LARGEST),
    "window": ("gridworld", "--posterior", "laplace", "--accumulate", "none", "--window", LARGEST),
    "training samples": ("bandit", "--posterior", "laplace", "--training-samples", LARGEST),
    "acting samples": ("bandit", "--posterior", "laplace", "--acting-samples", LARGEST),
    "arms": ("bandit", "--task.arms", "1000000"),
}


PROGRAM = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
from recurrent_laplace.cli import main
main(sys.argv[1:])
"""


def limited(*args, cwd):
    program = [sys.executable, "-c", PROGRAM, *map(str, args)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=cwd, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


def refused(done):
    """One sentence about memory."""
    assert done.refused("needs about", "of memory").endswith(".")


@pytest.mark.parametrize("name", TRAINING)
def test_training_is_refused(name, tmp_path):
    refused(limited("train", "--task", *TRAINING[name], cwd=tmp_path))
    assert not list(tmp_path.iterdir())


def test_updates_have_a_bound(tmp_path):
    done = limited("train", "--task", "gridworld", "--updates", "1000000000000", cwd=tmp_path)
    done.refused("recurrent-laplace: updates must be at most 2147483647")
    assert not list(tmp_path.iterdir())


def test_other_verbs_refuse_too(tmp_path):
    run = run_of_version_01(tmp_path / "runs")
    before = sorted(tmp_path.rglob("*"))
    for args in (
        ("evaluate", run, "--tasks", "100000000"),
        ("evaluate", run, "--task", "gridworld", "--task.size", "20000"),
        ("posthoc", run, "--posterior", "laplace", "--tasks", "100000000"),
        ("monitor", "--run", run, "--episodes", "100000000"),
        ("faithfulness", run, "--tasks", "100000000", "--out", tmp_path),
        ("shiftbench", "--run", run, "--episodes", "100000000"),
    ):
        refused(limited(*args, cwd=tmp_path))
        assert sorted(tmp_path.rglob("*")) == before, args


@pytest.mark.parametrize(
    ("preset", "task", "posterior"),
    # The size comes from the preset; task and posterior each add a term of their own.
    [
        *((preset, "gridworld", posterior) for preset in PRESETS for posterior in POSTERIORS),
        *(
            (preset, task, "laplace")
            for preset in ("smoke", "paper")
            for task in TASKS
            if task != "gridworld"
        ),
    ],
)
def test_what_is_required_is_less_than_what_is_expected(preset, task, posterior, monkeypatch):
    """A run is not refused where its estimate fits."""
    run = default_run(preset, None, task, posterior)
    monkeypatch.setattr(memory, "available_bytes", lambda: estimate(run).memory)
    require_training_memory(run)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(ValueError, match="training this run needs about"):
        require_training_memory(run)
