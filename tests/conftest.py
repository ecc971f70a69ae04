"""Set up before the package is imported: shapes checked at run time, float64, stable property tests."""

import os
from pathlib import Path
from typing import Any

import beartype
import beartype.roar
import jaxtyping

# Compiling takes most of the time here, and a third of it goes into making code fast that runs once.
# Tests that depend on optimised code ask for it themselves (`OPTIMISED` in test_safety.py).
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
    ]
)


def checked(function: Any) -> Any:
    """`beartype.beartype`, but for `typing.Self`, which it refuses in methods decorated one by one.

    jaxtyping's hook decorates them so; without this the package could not be imported.
    """
    try:
        return beartype.beartype(function)
    except beartype.roar.BeartypeDecorHintPep673Exception:
        return function


jaxtyping.install_import_hook(
    ["recurrent_laplace.cells", "recurrent_laplace.gaussians", "recurrent_laplace.posterior"],
    f"{__name__}.checked",
)

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402
from jax.experimental.compilation_cache import compilation_cache  # noqa: E402

jax.config.update("jax_enable_x64", True)

hypothesis.settings.register_profile(
    "stable",
    deadline=None,
    max_examples=10,
    derandomize=True,
    # Without a file of past examples, since `derandomize` never reads it.
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("stable")


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder that all workers of this session have in common."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="module")
def programs(shared):
    """Compiled programs are kept for all tests of the session, and for no one after it."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(shared / "compiled"), 0.5), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
