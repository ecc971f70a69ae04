"""`bench posterior`: the gradient through a belief, ours against the textbook way."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import PosteriorBench
from recurrent_laplace.benchmarks.reference import Reference
from recurrent_laplace.benchmarks.variants import VARIANTS, Variant
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.experiments.memory import require_memory
from recurrent_laplace.posterior import AbstractPosterior, LaplacePosterior, PointPosterior


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result; `ratio` is reference / ours, `peak_mb` the memory of ours."""

    name: str
    ours_ms: float
    reference_ms: float
    ratio: float
    peak_mb: float


def posterior_of(memory: Memory, variant: Variant) -> AbstractPosterior:
    """The posterior that a variant names."""
    if variant.covariance is None:
        return PointPosterior(memory)
    return LaplacePosterior(
        memory, covariance=variant.covariance, accumulate=variant.accumulate, window=variant.window
    )


def objective(
    memory: Memory, variant: Variant, inputs: Float[Array, "T D"], noise: Float[Array, "T F"]
) -> Float[Array, ""]:
    """Mean over time of `|z|^2 + KL(q_t || stop(q_{t-1}))`, `z` one sample of `q_t`."""
    posterior = posterior_of(memory, variant)
    beliefs = posterior.unroll(inputs)
    terms = jnp.sum(beliefs.perturb(noise) ** 2, axis=-1)
    if variant.covariance is not None:
        terms = terms + posterior.consecutive_kl(beliefs)
    return jnp.mean(terms)


def run(bench: PosteriorBench) -> Iterator[Row]:
    """The rows, one at a time as they are measured."""
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    cell = LSTM(bench.input_size, bench.hidden_size, key=k1)
    memory = Memory(cell, features=bench.features, key=k2)
    for name in bench.only:
        # The gradient keeps about as much again as the beliefs themselves, and half as much in between.
        cost = posterior_of(memory, VARIANTS[name]).cost(bench.steps, bench.batch)
        require_memory(
            5 * cost.bytes // 2 + _reference_bytes(bench, VARIANTS[name]),
            f"bench posterior --only {name}",
            "Take a smaller --batch, --steps, --hidden-size or --features.",
        )
    inputs = jax.random.normal(k3, (bench.batch, bench.steps, bench.input_size))
    noise = jax.random.normal(k4, (bench.batch, bench.steps, bench.features))
    reference = Reference.like(memory)

    for name in bench.only:
        variant = VARIANTS[name]

        def ours(memory: Memory, inputs: Array, noise: Array, variant: Variant = variant) -> Array:
            return jnp.mean(jax.vmap(lambda x, e: objective(memory, variant, x, e))(inputs, noise))

        def theirs(model: Reference, inputs: Array, noise: Array, variant: Variant = variant) -> Array:
            return jnp.mean(jax.vmap(lambda x, e: model.objective(variant, x, e))(inputs, noise))

        args = {"ours": (memory, inputs, noise), "reference": (reference, inputs, noise)}
        program, peak_mb = compile_program(jax.grad(ours), *args["ours"])
        programs = {"ours": program, "reference": compile_program(jax.grad(theirs), *args["reference"])[0]}
        times = time_together(programs, args, bench.repeats, bench.seconds)
        ratio = times["reference"] / times["ours"]
        yield Row(name, times["ours"], times["reference"], ratio, peak_mb)


def write_json(rows: list[Row], path: Path) -> None:
    """The rows as a JSON list."""
    path.write_text(json.dumps([dataclasses.asdict(row) for row in rows], indent=2) + "\n")


def _reference_bytes(bench: PosteriorBench, variant: Variant) -> int:
    if variant.covariance is None:
        return 0
    # Tangents of all gates by the whole carry, for every input of the window at once.
    window = bench.steps if variant.window is None else min(variant.window, bench.steps)
    return 4 * bench.batch * window * 2 * bench.hidden_size * 4 * bench.hidden_size
