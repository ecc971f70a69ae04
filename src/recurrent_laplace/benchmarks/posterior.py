"""`bench posterior`: the gradient through a belief, ours against the textbook way."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from rich.table import Table

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import PosteriorBench
from recurrent_laplace.benchmarks.reference import Reference
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.variants import VARIANTS, Variant
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.experiments.memory import require_memory
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.models import PosteriorConfig
from recurrent_laplace.models.posterior import make_posterior
from recurrent_laplace.posterior import AbstractPosterior


def posterior_of(memory: Memory, variant: Variant) -> AbstractPosterior:
    """The posterior that a variant names."""
    return make_posterior(PosteriorConfig(**dataclasses.asdict(variant)), memory, key=jax.random.key(0))


def objective(
    posterior: AbstractPosterior, inputs: Float[Array, "T D"], noise: Float[Array, "T F"]
) -> Float[Array, ""]:
    """Mean over time of `|z|^2 + KL(q_t || stop(q_{t-1}))`, `z` one sample of `q_t`."""
    beliefs = posterior.unroll(inputs)
    terms = jnp.sum(beliefs.perturb(noise) ** 2, axis=-1)
    if isinstance(beliefs, AbstractGaussian):
        terms = terms + posterior.consecutive_kl(beliefs)
    return jnp.mean(terms)


def mean_objective(
    posterior: AbstractPosterior, inputs: Float[Array, "B T D"], noise: Float[Array, "B T F"]
) -> Float[Array, ""]:
    """`objective`, its mean over a batch."""
    return jnp.mean(jax.vmap(objective, (None, 0, 0))(posterior, inputs, noise))


def title(bench: PosteriorBench) -> str:
    """What is measured."""
    sizes = f"B {bench.batch}, T {bench.steps}, D {bench.input_size}, H {bench.hidden_size}"
    return f"Gradient of (unroll, one sample, KL): {sizes}, F {bench.features}, float32."


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(
        ("variant", "ours, ms", "reference, ms", "reference / ours", "memory of ours, MB"), rows
    )


def run(bench: PosteriorBench, say: Say) -> Iterator[Row]:
    """The rows, one at a time as they are measured; the ratio is reference / ours."""
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    cell = LSTM(bench.input_size, bench.hidden_size, key=k1)
    memory = Memory(cell, features=bench.features, key=k2)
    for name in bench.only:
        require_room(
            posterior_of(memory, VARIANTS[name]),
            f"bench posterior --only {name}",
            steps=bench.steps,
            batch=bench.batch,
            more=_reference_bytes(bench, VARIANTS[name]),
        )
    inputs = jax.random.normal(k3, (bench.batch, bench.steps, bench.input_size))
    noise = jax.random.normal(k4, (bench.batch, bench.steps, bench.features))
    reference = Reference.like(memory)

    for name in bench.only:
        say(f"{name}: compile, then take turns with the reference")
        variant = VARIANTS[name]

        def theirs(model: Reference, inputs: Array, noise: Array, variant: Variant = variant) -> Array:
            return jnp.mean(jax.vmap(lambda x, e: model.objective(variant, x, e))(inputs, noise))

        args = {
            "ours": (posterior_of(memory, variant), inputs, noise),
            "reference": (reference, inputs, noise),
        }
        program, peak_mb = compile_program(jax.grad(mean_objective), *args["ours"])
        programs = {"ours": program, "reference": compile_program(jax.grad(theirs), *args["reference"])[0]}
        times = time_together(programs, args, bench.repeats, bench.seconds)
        ratio = times["reference"] / times["ours"]
        yield Row(name, times["ours"], times["reference"], ratio, peak_mb)


def require_room(posterior: AbstractPosterior, what: str, *, steps: int, batch: int, more: int = 0) -> None:
    """Refuse a gradient that would not fit in memory."""
    # The gradient keeps about as much again as the beliefs themselves, and half as much in between.
    needed = 5 * posterior.cost(steps, batch).bytes // 2 + more
    require_memory(needed, what, "Take a smaller --batch, --steps, --hidden-size or --features.")


def _reference_bytes(bench: PosteriorBench, variant: Variant) -> int:
    if variant.kind == "point":
        return 0
    # Tangents of all gates by the whole carry, for every input of the window at once.
    window = bench.steps if variant.window == "all" else min(variant.window, bench.steps)
    return 4 * bench.batch * window * 2 * bench.hidden_size * 4 * bench.hidden_size
