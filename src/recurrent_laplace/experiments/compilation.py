"""Compiled programs are kept between processes."""

import os
from pathlib import Path

import jax

LEAST_SECONDS = 1.0
"""Programs that compile faster are not worth a file."""


def quick_compile_flags() -> str:
    """What `XLA_FLAGS` has to say for programs to be compiled fast, and to be slow."""
    flags = ["--xla_backend_optimization_level=0"]
    # A flag that jaxlib does not know ends the process: this one is young, and may not last.
    if jax.__version__.startswith(("0.9.", "0.10.")):
        flags.append("--xla_cpu_use_fusion_emitters=false")
    return " ".join([*os.environ.get("XLA_FLAGS", "").split(), *flags])


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs on disk, unless the user has settled that.

    A resumed run then starts in seconds. The folder is `$XDG_CACHE_HOME/recurrent-laplace/xla`;
    `JAX_COMPILATION_CACHE_DIR` names another, and `JAX_ENABLE_COMPILATION_CACHE=false` does without.
    """
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(cache / "recurrent-laplace" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
