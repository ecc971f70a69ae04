"""`bench update`: a whole training update of each method, in units of the RNN's."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from rich.table import Table

from recurrent_laplace.benchmarks.count import multiplications
from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import UpdateBench
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.training import Training, config_of, require_room
from recurrent_laplace.benchmarks.variants import METHODS
from recurrent_laplace.learning import Config

PRODUCT = "matrix product"


def title(bench: UpdateBench) -> str:
    """What is measured."""
    learning = _config(bench, "rnn").learning
    return (
        f"A training update, gridworld, preset {bench.preset}: B {learning.batch}, T {learning.steps}, "
        f"{learning.acting_samples} acting samples, float32, "
        f"{'inputs looked up' if bench.tables else 'every input embedded'}. rnn-rate: the time that the "
        "RNN's matrix products, counted in the traced program, would take at the rate of a "
        f"{bench.product_size} x {bench.product_size} product, and its share of the update."
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(("method", "update, ms", "reference, ms", "ratio", "memory, MB"), rows)


def run(bench: UpdateBench, say: Say) -> Iterator[Row]:
    """A row for each method, with the ratio to the RNN's time; then `rnn-rate`.

    The ratio of `rnn-rate` is the floating-point rate of the RNN's update over that of a large matrix
    product: its `reference_ms` is what the counted products would take at the rate of that one.
    """
    names = ["rnn", *(name for name in bench.only if name != "rnn")]
    configs = {name: _config(bench, name) for name in names}
    for name, config in configs.items():
        require_room(config, f"bench update --only {name}")
    trainings = {}
    for name, config in configs.items():
        say(f"{name}: compile")
        trainings[name] = Training.of(config)
    size = bench.product_size
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product, _ = compile_program(jnp.matmul, matrix, matrix)
    programs = {**trainings, PRODUCT: product}
    args = dict.fromkeys(names, ()) | {PRODUCT: (matrix, matrix)}
    times = time_together(programs, args, bench.repeats, bench.seconds, say)

    ideal = {}
    for name, training in trainings.items():
        counted = multiplications(training.train.update, training.states[0])
        ideal[name] = times[PRODUCT] * counted / size**3
        more = _more(f"{training.compile_seconds:.1f}", counted, ideal[name] / times[name])
        yield Row(name, times[name], times["rnn"], times[name] / times["rnn"], training.peak_mb, more)
    rate = ideal["rnn"] / times["rnn"]
    yield Row("rnn-rate", times["rnn"], ideal["rnn"], rate, trainings["rnn"].peak_mb, _more("", None, rate))


def _config(bench: UpdateBench, name: str) -> Config:
    return config_of(
        METHODS[name],
        bench.preset,
        batch=bench.batch,
        steps=bench.steps,
        acting_samples=bench.acting_samples,
        tables=bench.tables,
    )


def _more(compiled: str, counted: int | None, rate: float) -> dict[str, str]:
    return {
        "compile, s": compiled,
        "products, GFLOP": "" if counted is None else f"{2e-9 * counted:.1f}",
        "rate / machine's": f"{rate:.2f}",
    }
