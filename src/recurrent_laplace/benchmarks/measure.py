"""Programs timed side by side."""

import time
from collections.abc import Callable
from typing import Any

import jax

from recurrent_laplace.benchmarks.rows import Say

Program = Callable[..., Any]


def compile_program(function: Callable, *args: Any) -> tuple[Program, float]:
    """The compiled program, and its peak memory in MB by its own analysis."""
    compiled = jax.jit(function).lower(*args).compile()
    return compiled, program_mb(compiled)


def program_mb(compiled: Any) -> float:
    """Memory of a compiled program by its own analysis: arguments, results and all between."""
    memory = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return (peak - memory.alias_size_in_bytes) / 1e6


def time_together(
    programs: dict[str, Program],
    args: dict[str, tuple],
    repeats: int,
    seconds: float,
    say: Say | None = None,
) -> dict[str, float]:
    """Fastest time of each in milliseconds, taking turns so that noise hits all alike.

    Turns end after `repeats`, or when another would pass `seconds`.
    """
    best = {}
    for name, program in programs.items():
        jax.block_until_ready(program(*args[name]))
    start = time.perf_counter()
    for turn in range(repeats):
        for name, program in programs.items():
            before = time.perf_counter()
            jax.block_until_ready(program(*args[name]))
            taken = 1e3 * (time.perf_counter() - before)
            best[name] = min(best.get(name, taken), taken)
        spent = time.perf_counter() - start
        if say is not None:
            say(f"turn {turn + 1} of at most {repeats}: {spent:.0f} s")
        if spent * (turn + 2) / (turn + 1) > seconds:
            break
    return best
