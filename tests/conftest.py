"""Setup before the package is imported: shapes checked at run time, float64, stable property tests."""

import functools
import json
import os
import typing
from pathlib import Path
from typing import Any

import beartype
import jaxtyping

# Compilation takes most of the time, and a third of it optimises code that runs once.
# Tests that depend on optimised code ask for it themselves (`OPTIMISED` in test_safety.py).
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
    ]
)

import hypothesis
import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache


def has_arrays(hint: Any) -> bool:
    """Whether a type hint is of arrays, or has one in a union, a tuple or a dictionary."""
    if isinstance(hint, type):
        return issubclass(hint, jax.Array | np.ndarray | jaxtyping.AbstractArray | jaxtyping.PyTree)
    return any(has_arrays(part) for part in typing.get_args(hint))


NUMBERS = beartype.BeartypeConf(is_pep484_tower=True)
"""An integer is a `float` too, as for pyright."""


def checked(function: Any) -> Any:
    """`beartype.beartype` for hints of arrays alone.

    Others are for pyright. A number or string that does not fit its hint must reach the package's own check,
    whose message is tested.
    """
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if has_arrays(hint)}
    return beartype.beartype(function, conf=NUMBERS)


CHECKED = (
    *("cells", "gaussians", "posterior", "tasks"),
    *(f"models.{name}" for name in ("agent", "initialization", "layers", "posterior", "regressor")),
    *(f"learning.{name}" for name in ("beliefs", "lookup", "objectives", "returns", "rollout", "train")),
)
"""Modules whose annotations are checked when their functions are called; configurations have no arrays."""

jaxtyping.install_import_hook([f"recurrent_laplace.{package}" for package in CHECKED], f"{__name__}.checked")

jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile(
    "stable",
    deadline=None,
    max_examples=10,
    derandomize=True,
    # `derandomize` never reads the file of past examples.
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("stable")


class Outcomes:
    """Writes the outcome of each test as JSON, for scripts/check_skips.py."""

    def __init__(self, file: Path):
        self.file = file
        self.outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.outcomes, indent=1, sort_keys=True))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="Write the outcome of each test as JSON.")


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("outcomes")
    # Workers of pytest-xdist report to the main process, which writes.
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(file))


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """Folder shared by all workers of this session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")
def programs(shared):
    """Compilation cache of this session."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(shared / "compiled"), 0.5), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def command(capsys):
    """Runs a command in this process."""
    from support.verbs import run_command

    return functools.partial(run_command, capsys)
