"""`bench evaluate`: the test of an agent, in a process of its own."""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
from rich.table import Table

from recurrent_laplace.benchmarks.child import alone, process_peak_mb
from recurrent_laplace.benchmarks.options import EvaluateBench
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.training import config_of
from recurrent_laplace.benchmarks.variants import TESTED
from recurrent_laplace.evaluation.control import evaluate_control
from recurrent_laplace.evaluation.lengths import LENGTHS
from recurrent_laplace.learning import make_train


class Measured(NamedTuple):
    """Seconds to compile and to run, and the peak memory of the whole process."""

    compile_seconds: float
    run_seconds: float
    peak_mb: float


def title(bench: EvaluateBench) -> str:
    """What is measured."""
    return (
        f"Evaluation of {bench.tasks} tasks x {max(LENGTHS)} steps, gridworld, preset {bench.preset}, "
        "float32: compile and run; memory is that of the process."
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(("method", "both, ms", "RNN, ms", "method / RNN", "memory, MB"), rows)


def run(bench: EvaluateBench, say: Say) -> Iterator[Row]:
    """A row for each method: compile and run together, and the ratio to the RNN's."""
    rnn_ms = None
    for name in ["rnn", *(name for name in bench.only if name != "rnn")]:
        say(f"{name}: compile and run, in a process of its own")
        measured = alone(measure, name, bench.preset, bench.tasks)
        ours_ms = 1e3 * (measured.compile_seconds + measured.run_seconds)
        rnn_ms = ours_ms if rnn_ms is None else rnn_ms
        more = {"compile, s": f"{measured.compile_seconds:.1f}", "run, s": f"{measured.run_seconds:.2f}"}
        yield Row(name, ours_ms, rnn_ms, ours_ms / rnn_ms, measured.peak_mb, more)


def measure(name: str, preset: str, tasks: int) -> Measured:
    """Evaluate a fresh agent once, in this process."""
    jax.config.update("jax_enable_compilation_cache", False)
    config = config_of(TESTED[name], preset)
    agent = jax.jit(make_train(config).make_model)(jax.random.key(0))
    options = {
        "tasks": tasks,
        "samples": config.learning.acting_samples,
        "policy": config.learning.acting_policy,
        "greedy": False,
    }
    start = time.perf_counter()
    lower = evaluate_control.lower  # pyright: ignore[reportFunctionMemberAccess]
    program = lower(agent, config.task, **options).compile()
    compiled = time.perf_counter()
    jax.block_until_ready(program(agent, config.task, **options))
    return Measured(compiled - start, time.perf_counter() - compiled, process_peak_mb())
