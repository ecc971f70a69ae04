"""`bench startup`: time of help, imports and compilation, and of `train` up to its first update."""

import dataclasses
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recurrent_laplace.benchmarks.child import ChildDiedError, process_peak_mb, run_in_subprocess
from recurrent_laplace.benchmarks.options import StartupBench
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.variants import METHODS

HEADINGS = ("start", "ours, ms", "reference, ms", "ours / reference", "memory, MB")

COMMANDS = {
    "python": ("-c", "pass"),
    "jax": ("-c", "import jax"),
    "help": ("-m", "recurrent_laplace", "--help"),
    "import": ("-c", "import recurrent_laplace"),
    "import-train": ("-c", "import recurrent_laplace.cli.train"),
}
"""Arguments of the Python interpreter."""

STARTS = {
    "help": ("python", "recurrent_laplace.cli"),
    "import": ("python", "recurrent_laplace"),
    "import-train": ("jax", "recurrent_laplace.cli.train"),
}
"""For each row, the command that it is compared with, and the module whose import memory is measured."""


def title(bench: StartupBench) -> str:
    """Title of the table, with the measured sizes."""
    return (
        f"Start-up times, median of {bench.repeats}. help is `recurrent-laplace --help`, import is `import "
        "recurrent_laplace`, both against `python -c pass`; import-train imports all that `train` needs, "
        f"against `import jax`. compile: tracing and compiling an update, gridworld, preset {bench.preset}, "
        "in a new process with a filled compilation cache, against an empty one. first-line, first-update: "
        "`recurrent-laplace train` in a new process with an empty cache, from its start to its first line, "
        "against `python -c pass`, and to its first update, against a filled cache."
    )


def run(bench: StartupBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per command, then `compile-NAME` per method: with a filled cache against an empty one."""
    progress("starting Python")
    times = {name: [] for name in COMMANDS}
    for _ in range(bench.repeats):
        for name, args in COMMANDS.items():
            times[name].append(_start_ms(args))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, (reference, module) in STARTS.items():
        peak_mb = run_in_subprocess(import_peak_mb, module)
        yield Row(name, medians[name], medians[reference], medians[name] / medians[reference], peak_mb)
    for name in bench.only:
        progress(f"{name}: compile twice, in new processes")
        with tempfile.TemporaryDirectory() as cache:
            empty_ms, peak_mb = run_in_subprocess(compile_update, name, bench.preset, cache)
            filled_ms, _ = run_in_subprocess(compile_update, name, bench.preset, cache)
        yield Row(f"compile-{name}", filled_ms, empty_ms, filled_ms / empty_ms, peak_mb)
    for name in bench.only:
        progress(f"{name}: train to the first update twice, in new processes")
        with tempfile.TemporaryDirectory() as folder:
            empty = start_training(name, bench.preset, folder, "empty")
            filled = start_training(name, bench.preset, folder, "filled")
        python_ms = medians["python"]
        line_ms, update_ms = empty.line_ms, empty.update_ms
        yield Row(f"first-line-{name}", line_ms, python_ms, line_ms / python_ms, empty.peak_mb)
        yield Row(
            f"first-update-{name}", update_ms, filled.update_ms, update_ms / filled.update_ms, empty.peak_mb
        )


def _start_ms(args: Sequence[str]) -> float:
    before = time.perf_counter()
    subprocess.run([sys.executable, "-P", *args], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - before)


def import_peak_mb(module: str) -> float:
    """Peak memory of this process after an import, in MB."""
    importlib.import_module(module)
    return process_peak_mb()


def compile_update(name: str, preset: str, cache: str) -> tuple[float, float]:
    """Milliseconds to trace and compile an update, and the peak memory of this process in MB."""
    import jax

    from recurrent_laplace.benchmarks.training import variant_config
    from recurrent_laplace.learning import make_train
    from recurrent_laplace.machine.compilation import LEAST_SECONDS

    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    train = make_train(variant_config(METHODS[name], preset))
    state = jax.eval_shape(train.init, jax.random.key(0))
    before = time.perf_counter()
    train.lower(state).compile()
    return 1e3 * (time.perf_counter() - before), process_peak_mb()


class FirstUpdate(NamedTuple):
    """Milliseconds from the start of a process to its first line and its first update, and its memory."""

    line_ms: float
    update_ms: float
    peak_mb: float


def start_training(name: str, preset: str, folder: str, out: str) -> FirstUpdate:
    """Start `recurrent-laplace train`, with the compilation cache of `folder`, and end it after an update."""
    options = dataclasses.asdict(METHODS[name])
    flags = [word for flag, value in options.items() for word in (f"--{flag}", str(value))]
    flags[flags.index("--kind")] = "--posterior"
    command = ["train", "--task", "gridworld", "--preset", preset, *flags, "--out", os.path.join(folder, out)]
    before = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "recurrent_laplace", *command],
        env={**os.environ, "JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "cache")},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line_ms = None
        for line in process.stdout:
            now_ms = 1e3 * (time.perf_counter() - before)
            line_ms = now_ms if line_ms is None else line_ms
            if line.startswith("update "):
                peak_mb = process_peak_mb(process.pid)
                process.kill()
                return FirstUpdate(line_ms, now_ms, peak_mb)
    raise ChildDiedError(f"`recurrent-laplace {' '.join(command)}` ended before its first update.")
