"""Compiled programs are kept between processes."""

import os
from pathlib import Path

import jax

LEAST_SECONDS = 1.0
"""Programs that compile faster are not worth a file."""


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
