"""Persistent compilation cache and compiler flags."""

import os
from pathlib import Path

import jax

LEAST_SECONDS = 1.0
"""Minimum compile time of a cached program."""


def quick_compile_flags() -> str:
    """Value of `XLA_FLAGS` for fast compilation of slow programs."""
    flags = ["--xla_backend_optimization_level=0"]
    # A flag that jaxlib does not know ends the process, and this one may be removed in later versions.
    if jax.__version__.startswith(("0.9.", "0.10.")):
        flags.append("--xla_cpu_use_fusion_emitters=false")
    return " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def keep_compiled_programs() -> None:
    """Enable JAX's persistent compilation cache, unless the user has configured it.

    A resumed run then starts in seconds. The folder is `$XDG_CACHE_HOME/recurrent-laplace/xla`;
    `JAX_COMPILATION_CACHE_DIR` sets another, and `JAX_ENABLE_COMPILATION_CACHE=false` disables the cache.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(cache / "recurrent-laplace" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
