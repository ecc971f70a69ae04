"""Commands that would not fit in memory fail with one sentence before anything is allocated."""

import json
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
REFUSAL_SECONDS = 5.0
"""Longest processor time of a refused command; the first of a process imports JAX."""

TRAINING = [
    ("gridworld", "--task.size", "20000"),
    ("gridworld", "--task.size", LARGEST),
    ("gridworld", "--batch", "100000000"),
    ("gridworld", "--hidden-size", "2000000"),
    ("gridworld", "--hidden-size", LARGEST),
    ("coin", "--steps", LARGEST),
    ("regression", "--seeds", "100000000"),
    ("gridworld", "--posterior", "variational", "--covariance", "dense", "--features", LARGEST),
    ("gridworld", "--posterior", "laplace", "--accumulate", "none", "--window", LARGEST),
    ("bandit", "--posterior", "laplace", "--training-samples", LARGEST),
    ("bandit", "--posterior", "laplace", "--acting-samples", LARGEST),
    ("bandit", "--task.arms", "1000000"),
]


PROGRAM = f"""
import contextlib, io, json, resource, sys, time
resource.setrlimit(resource.RLIMIT_DATA, ({LIMIT}, {LIMIT}))
from recurrent_laplace.cli import main
for args in json.load(sys.stdin):
    out, err, code, start = io.StringIO(), io.StringIO(), 0, time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(args)
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, out.getvalue(), err.getvalue(), time.process_time() - start]))
"""
"""Program that runs several commands, since most of the time of each is the import of JAX."""


def limited(*commands, cwd):
    """Results and processor times of commands with limited memory, which change nothing below `cwd`."""
    before, given = sorted(cwd.rglob("*")), json.dumps([list(map(str, args)) for args in commands])
    program = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(program, input=given, capture_output=True, text=True, cwd=cwd, check=True)
    assert sorted(cwd.rglob("*")) == before
    results = [json.loads(line) for line in done.stdout.splitlines()]
    return [(Done(*result), seconds) for *result, seconds in results]


def assert_refused(*commands, cwd):
    """Assert that each ends in one sentence about memory, at once."""
    for args, (done, seconds) in zip(commands, limited(*commands, cwd=cwd), strict=True):
        assert done.refused("needs about", "of memory").endswith("."), args
        assert seconds < REFUSAL_SECONDS, args


def test_training_is_refused(tmp_path):
    assert_refused(*(("train", "--task", *args) for args in TRAINING), cwd=tmp_path)


def test_training_that_fails_to_allocate_is_one_sentence(tmp_path):
    """Above the lower bound of its memory, which a machine with enough would have."""
    sizes = ("--preset", "smoke", "--cell", "elman", "--no-layer-norm", "--hidden-size", "8", "--steps", "50")
    args = ("train", "--task", "regression", *sizes, "--features", "100000", "--batch", "256")
    (empty := tmp_path / "empty").mkdir()
    ((done, _),) = limited((*args, "--out", tmp_path / "runs"), cwd=empty)
    done.refused("there is too little memory (Out of memory allocating", "take smaller sizes", code=1)


def test_updates_have_a_bound(tmp_path):
    ((done, _),) = limited(("train", "--task", "gridworld", "--updates", "1000000000000"), cwd=tmp_path)
    done.refused("recurrent-laplace: updates must be at most 2147483647")


def test_other_verbs_refuse_too(tmp_path):
    run = run_of_version_01(tmp_path / "runs")
    assert_refused(
        ("evaluate", run, "--tasks", "100000000"),
        ("evaluate", run, "--task", "gridworld", "--task.size", "20000"),
        ("posthoc", run, "--posterior", "laplace", "--tasks", "100000000"),
        ("monitor", "--run", run, "--episodes", "100000000"),
        ("faithfulness", run, "--tasks", "100000000", "--out", tmp_path),
        ("shiftbench", "--run", run, "--episodes", "100000000"),
        cwd=tmp_path,
    )


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
