"""`bench update`: a training update of each method, relative to the RNN's."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from recurrent_laplace.benchmarks.count import multiplications
from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import UpdateBench
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.training import Training, require_training_memory, variant_config
from recurrent_laplace.benchmarks.variants import LEARNERS, METHODS
from recurrent_laplace.learning import Config

HEADINGS = ("method", "update, ms", "reference, ms", "ratio", "memory, MB")
PRODUCT = "matrix product"


def title(bench: UpdateBench) -> str:
    """Title of the table, with the measured sizes."""
    learning = _config(bench, "rnn").learning
    return (
        f"A training update, gridworld, preset {bench.preset}: B {learning.batch}, T {learning.steps}, "
        f"{_samples(learning.acting_samples)} in acting, {_samples(learning.training_samples)} in the loss, "
        f"KL of {learning.kl_fraction:.0%} of the tasks, float32, "
        f"{'inputs looked up' if bench.tables else 'every input embedded'}. rnn-vmpo: another learner; "
        "rnn-lqg: a task with continuous actions, of the same sizes. rnn-rate: the time of the RNN's "
        "matrix products, counted in the traced program, at the rate of a "
        f"{bench.product_size} x {bench.product_size} product, as a fraction of the update."
    )


def run(bench: UpdateBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per method, with the ratio to the RNN's time; then `rnn-rate`.

    The ratio of `rnn-rate` is the floating-point rate of the RNN's update relative to that of a large matrix
    product; its `reference_ms` is the time of the counted products at the latter rate.
    """
    names = ["rnn", *(name for name in bench.only if name != "rnn")]
    configs = {name: _config(bench, name) for name in names}
    for name, config in configs.items():
        require_training_memory(config, f"bench update --only {name}")
    trainings = {}
    for name, config in configs.items():
        progress(f"{name}: compile")
        trainings[name] = Training.single_seed(config)
    size = bench.product_size
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product, _ = compile_program(jnp.matmul, matrix, matrix)
    programs = {**trainings, PRODUCT: product}
    args = dict.fromkeys(names, ()) | {PRODUCT: (matrix, matrix)}
    times = time_together(programs, args, bench.repeats, bench.seconds, progress)

    ideal = {}
    for name, training in trainings.items():
        counted = multiplications(training.train.update, training.states[0])
        ideal[name] = times[PRODUCT] * counted / size**3
        more = _more(f"{training.compile_seconds:.1f}", counted, ideal[name] / times[name])
        yield Row(name, times[name], times["rnn"], times[name] / times["rnn"], training.peak_mb, more)
    rate = ideal["rnn"] / times["rnn"]
    yield Row("rnn-rate", times["rnn"], ideal["rnn"], rate, trainings["rnn"].peak_mb, _more("", None, rate))


def _config(bench: UpdateBench, name: str) -> Config:
    return variant_config(
        METHODS["rnn" if name in LEARNERS else name],
        bench.preset,
        tables=LEARNERS.get(name),
        batch=bench.batch,
        steps=bench.steps,
        acting_samples=bench.acting_samples,
        training_samples=bench.training_samples,
        kl_fraction=bench.kl_fraction,
        lookup=bench.tables,
    )


def _samples(count: int) -> str:
    return f"{count} samples" if count else "the mean"


def _more(compiled: str, counted: int | None, rate: float) -> dict[str, str]:
    return {
        "compile, s": compiled,
        "products, GFLOP": "" if counted is None else f"{2e-9 * counted:.1f}",
        "rate / machine's": f"{rate:.2f}",
    }
