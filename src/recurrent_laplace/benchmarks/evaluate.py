"""`bench evaluate`: evaluation of an agent, each method in its own process."""

import time
from collections.abc import Iterator
from typing import NamedTuple

import jax

from recurrent_laplace.benchmarks.child import process_peak_mb, run_in_subprocess
from recurrent_laplace.benchmarks.options import EvaluateBench
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.training import variant_config
from recurrent_laplace.benchmarks.variants import EVALUATED
from recurrent_laplace.evaluation.control import evaluate_control
from recurrent_laplace.learning import make_train
from recurrent_laplace.tasks.held_out import LENGTHS

HEADINGS = ("method", "both, ms", "RNN, ms", "method / RNN", "memory, MB")


class EvaluationCost(NamedTuple):
    """Seconds to compile and to run, and the peak memory of the process."""

    compile_seconds: float
    run_seconds: float
    peak_mb: float


def title(bench: EvaluateBench) -> str:
    """Title of the table, with the measured sizes."""
    return (
        f"Evaluation of {bench.tasks} tasks x {max(LENGTHS)} steps, gridworld, preset {bench.preset}, "
        "float32: compilation and run; memory is the peak of the process."
    )


def run(bench: EvaluateBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per method: the time to compile and run, and its ratio to the RNN's."""
    rnn_ms = None
    for name in ["rnn", *(name for name in bench.only if name != "rnn")]:
        progress(f"{name}: compile and run in a subprocess")
        cost = run_in_subprocess(measure, name, bench.preset, bench.tasks)
        ours_ms = 1e3 * (cost.compile_seconds + cost.run_seconds)
        rnn_ms = ours_ms if rnn_ms is None else rnn_ms
        more = {"compile, s": f"{cost.compile_seconds:.1f}", "run, s": f"{cost.run_seconds:.2f}"}
        yield Row(name, ours_ms, rnn_ms, ours_ms / rnn_ms, cost.peak_mb, more)


def measure(name: str, preset: str, tasks: int) -> EvaluationCost:
    """Evaluate an untrained agent once in this process."""
    jax.config.update("jax_enable_compilation_cache", False)
    config = variant_config(EVALUATED[name], preset)
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
    return EvaluationCost(compiled - start, time.perf_counter() - compiled, process_peak_mb())
