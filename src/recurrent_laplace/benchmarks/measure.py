"""Two programs timed side by side."""

import time
from collections.abc import Callable
from typing import Any

import jax

Program = Callable[..., Any]


def compile_program(function: Callable, *args: Any) -> tuple[Program, float]:
    """The compiled program, and its peak memory in MB by its own analysis."""
    compiled = jax.jit(function).lower(*args).compile()
    memory: Any = compiled.memory_analysis()
    peak = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    return compiled, peak / 1e6


def time_together(
    programs: dict[str, Program], args: dict[str, tuple], repeats: int, seconds: float
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
        if spent * (turn + 2) / (turn + 1) > seconds:
            break
    return best
