"""Imports point one way: a folder knows only those before it."""

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from support.sources import ROOT, SOURCES, imported

import recurrent_laplace
import recurrent_laplace as rl

LAYERS = (
    *("errors", "deprecations", "files", "chunks"),
    *("cells", "gaussians", "posterior", "models", "tasks", "oracles", "learning", "scoring"),
    *("monitoring", "evaluation", "machine", "runs", "sweeps", "report", "interop", "benchmarks"),
    *("cli", "__main__"),
)
STRANGERS = {("gaussians", "cells")}
"""Layers that stand beside each other: the first may not import the second either."""
LAPACK_FREE = ("cells", "gaussians", "posterior")
NOT_OF_A_MONITOR = ("learning", "tasks", "oracles", "evaluation")


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upwards(path):
    here = layer_of(path)
    assert here in LAYERS
    for name in imported(path):
        if not name.startswith("recurrent_laplace."):
            continue
        other = name.split(".")[1]
        assert LAYERS.index(other) <= LAYERS.index(here), f"{here} imports {other}"
        assert (here, other) not in STRANGERS


def test_no_lapack_in_the_core():
    for path in SOURCES:
        if layer_of(path) in LAPACK_FREE:
            for node in ast.walk(ast.parse(path.read_text())):
                assert not (isinstance(node, ast.Attribute) and node.attr == "linalg"), path


def test_compiled_programs_call_no_lapack():
    """All but the benchmarks, which compare with it. NumPy's and SciPy's calls are not compiled."""
    for path in SOURCES:
        if layer_of(path) != "benchmarks":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr == "linalg":
                    assert not ast.unparse(node).startswith(("jnp.", "jax.")), path
            assert not {name for name in imported(path) if name.startswith("jax") and "linalg" in name}, path


SMALL = {"embedding_sizes": (4,), "head_sizes": (4,), "hidden_size": 4, "features": 3}
TRAINED = {
    "laplace": rl.Config(
        task=rl.Gridworld(size=3),
        agent=rl.AgentConfig(cell="gru", initialization="flax", **SMALL),
        posterior=rl.LaplaceConfig(covariance="dense", window=2),
    ),
    "variational": rl.Config(
        task=rl.Regression(),
        agent=rl.AgentConfig(cell="elman", **SMALL),
        posterior=rl.VariationalConfig(covariance="dense"),
    ),
}


@pytest.mark.parametrize("name", TRAINED)
def test_programs_of_a_training_call_no_lapack(name):
    """Not by way of another library either, such as an initializer that factorises."""
    assert calls_lapack(jax.jit(jnp.linalg.cholesky).lower(jnp.eye(2)))
    learning = rl.LearningConfig(batch=2, steps=3, training_samples=2)
    train = rl.make_train(dataclasses.replace(TRAINED[name], learning=learning))
    key = jax.random.key(0)
    assert not calls_lapack(jax.jit(train.init).lower(key))
    assert not calls_lapack(jax.jit(train.advance).lower(jax.eval_shape(train.init, key), 2))


def calls_lapack(lowered: jax.stages.Lowered) -> bool:
    return "lapack" in lowered.as_text()


@pytest.mark.parametrize(
    "statement", ["import recurrent_laplace.monitoring", "import recurrent_laplace as rl; rl.ShiftAlarm"]
)
def test_a_monitor_loads_nothing_that_trains_or_evaluates(statement):
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("recurrent_laplace.")}
    assert "monitoring" in loaded
    assert not loaded & set(NOT_OF_A_MONITOR)


def test_everything_exported_is_there_and_documented():
    for name in recurrent_laplace.__all__:
        assert getattr(recurrent_laplace, name).__doc__, name
    assert set(recurrent_laplace.__all__) <= set(dir(recurrent_laplace))
    with pytest.raises(AttributeError, match="no attribute 'Laplace'"):
        _ = recurrent_laplace.Laplace
