"""`bench startup`: what comes before the first answer."""

import importlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from rich.table import Table

from recurrent_laplace.benchmarks.child import alone, process_peak_mb
from recurrent_laplace.benchmarks.options import StartupBench
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.variants import METHODS

COMMANDS = {
    "python": ("-c", "pass"),
    "jax": ("-c", "import jax"),
    "help": ("-m", "recurrent_laplace", "--help"),
    "import": ("-c", "import recurrent_laplace"),
    "import-train": ("-c", "import recurrent_laplace.cli.train"),
}
"""What Python is started with."""

STARTS = {
    "help": ("python", "recurrent_laplace.cli"),
    "import": ("python", "recurrent_laplace"),
    "import-train": ("jax", "recurrent_laplace.cli.train"),
}
"""For each row the command that it is compared with, and the module that takes its memory."""


def title(bench: StartupBench) -> str:
    """What is measured."""
    return (
        f"Starts: the median of {bench.repeats}. help is `recurrent-laplace --help`, import is `import "
        "recurrent_laplace`, both beside `python -c pass`; import-train is all that `train` imports, beside "
        f"`import jax`. compile: tracing and compiling an update, gridworld, preset {bench.preset}, in a new "
        "process, beside the same with an empty cache of compiled programs."
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(("start", "ours, ms", "reference, ms", "ours / reference", "memory, MB"), rows)


def run(bench: StartupBench, say: Say) -> Iterator[Row]:
    """Rows for commands; then for each method `compile-NAME`: with a filled cache, and with an empty one."""
    say("starting Python")
    times = {name: [] for name in COMMANDS}
    for _ in range(bench.repeats):
        for name, args in COMMANDS.items():
            times[name].append(_start_ms(args))
    taken = {name: statistics.median(values) for name, values in times.items()}
    for name, (reference, module) in STARTS.items():
        peak_mb = alone(import_peak_mb, module)
        yield Row(name, taken[name], taken[reference], taken[name] / taken[reference], peak_mb)
    for name in bench.only:
        say(f"{name}: compile twice, in new processes")
        with tempfile.TemporaryDirectory() as cache:
            empty_ms, peak_mb = alone(compile_update, name, bench.preset, cache)
            filled_ms, _ = alone(compile_update, name, bench.preset, cache)
        yield Row(f"compile-{name}", filled_ms, empty_ms, filled_ms / empty_ms, peak_mb)


def _start_ms(args: Sequence[str]) -> float:
    before = time.perf_counter()
    subprocess.run([sys.executable, *args], check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - before)


def import_peak_mb(module: str) -> float:
    """Memory of this process after an import."""
    importlib.import_module(module)
    return process_peak_mb()


def compile_update(name: str, preset: str, cache: str) -> tuple[float, float]:
    """Milliseconds to trace and compile an update, and the peak memory of this process in MB."""
    import jax

    from recurrent_laplace.benchmarks.training import config_of
    from recurrent_laplace.experiments.compilation import LEAST_SECONDS
    from recurrent_laplace.learning import make_train

    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
    train = make_train(config_of(METHODS[name], preset))
    state = jax.eval_shape(train.init, jax.random.key(0))
    before = time.perf_counter()
    train.lower(state).compile()
    return 1e3 * (time.perf_counter() - before), process_peak_mb()
