"""Compile programs, and time them in turn."""

import time
from collections.abc import Callable
from typing import Any

import jax

from recurrent_laplace.benchmarks.rows import ProgressCallback

Program = Callable[..., Any]


def compile_program(function: Callable, *args: Any) -> tuple[Program, float]:
    """Compile a function; returns the program and its peak memory in MB, as XLA reports it."""
    compiled = jax.jit(function).lower(*args).compile()
    return compiled, program_mb(compiled)


def program_mb(compiled: Any) -> float:
    """Peak memory of a compiled program as XLA reports it: arguments, outputs and temporaries."""
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return (peak - memory.alias_size_in_bytes) / 1e6


def time_together(
    programs: dict[str, Program],
    args: dict[str, tuple],
    repeats: int,
    seconds: float,
    progress: ProgressCallback | None = None,
) -> dict[str, float]:
    """Fastest time of each program in milliseconds; programs alternate, so that noise affects all alike.

    Measuring stops after `repeats` rounds, or when another round would exceed `seconds`.
    """
    best = {}
    for name, program in programs.items():
        jax.block_until_ready(program(*args[name]))
    start = time.perf_counter()
    for turn in range(repeats):
        for name, program in programs.items():
            before = time.perf_counter()
            jax.block_until_ready(program(*args[name]))
            elapsed = 1e3 * (time.perf_counter() - before)
            best[name] = min(best.get(name, elapsed), elapsed)
        spent = time.perf_counter() - start
        if progress is not None:
            progress(f"turn {turn + 1} of at most {repeats}: {spent:.0f} s")
        if spent * (turn + 2) / (turn + 1) > seconds:
            break
    return best
