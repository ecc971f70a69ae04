"""Imports point one way: a folder knows only those before it."""

import ast
from pathlib import Path

import pytest

import recurrent_laplace

ROOT = Path(recurrent_laplace.__file__).parent
LAYERS = (
    "errors",
    "chunks",
    "cells",
    "gaussians",
    "posterior",
    "models",
    "tasks",
    "learning",
    "evaluation",
    "files",
    "deploy",
    "experiments",
    "report",
    "interop",
    "benchmarks",
    "cli",
    "__main__",
)
STRANGERS = {("gaussians", "cells")}
"""Layers that stand beside each other: the first may not import the second either."""
LAPACK_FREE = ("cells", "gaussians", "posterior")


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module)
    return names


SOURCES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


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


def test_everything_exported_is_there_and_documented():
    for name in recurrent_laplace.__all__:
        assert getattr(recurrent_laplace, name).__doc__, name
    assert set(recurrent_laplace.__all__) <= set(dir(recurrent_laplace))
    with pytest.raises(AttributeError, match="no attribute 'Laplace'"):
        _ = recurrent_laplace.Laplace
