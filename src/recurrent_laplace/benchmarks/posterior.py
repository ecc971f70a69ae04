"""`bench posterior`: the gradient through a belief, against the textbook implementation."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from recurrent_laplace.benchmarks.measure import compile_program, time_together
from recurrent_laplace.benchmarks.options import PosteriorBench
from recurrent_laplace.benchmarks.reference import Reference
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.variants import VARIANTS, Variant
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.gaussians import AbstractGaussian
from recurrent_laplace.machine.memory import require_memory
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.runs.config import posterior_from

HEADINGS = ("variant", "ours, ms", "plain textbook, ms", "plain / ours", "memory of ours, MB")


def build_posterior(memory: Memory, variant: Variant) -> AbstractPosterior:
    """Build the posterior of a variant."""
    config, _ = posterior_from({"posterior": dataclasses.asdict(variant)})
    return config.build(memory, key=jax.random.key(0))


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
    """Mean of `objective` over a batch."""
    return jnp.mean(jax.vmap(objective, (None, 0, 0))(posterior, inputs, noise))


def title(bench: PosteriorBench) -> str:
    """Title of the table, with the measured sizes."""
    sizes = f"B {bench.batch}, T {bench.steps}, D {bench.input_size}, H {bench.hidden_size}"
    return f"Gradient of (unroll, one sample, KL): {sizes}, F {bench.features}, float32."


def run(bench: PosteriorBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per variant: the plain textbook / ours, with columns of their own for the fast one."""
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    cell = LSTM(bench.input_size, bench.hidden_size, key=k1)
    memory = Memory(cell, features=bench.features, key=k2)
    for name in bench.only:
        require_gradient_memory(
            build_posterior(memory, VARIANTS[name]),
            f"bench posterior --only {name}",
            steps=bench.steps,
            batch=bench.batch,
            reference_bytes=_reference_bytes(bench, VARIANTS[name]),
        )
    inputs = jax.random.normal(k3, (bench.batch, bench.steps, bench.input_size))
    noise = jax.random.normal(k4, (bench.batch, bench.steps, bench.features))
    textbooks = {f"{way} textbook": Reference.like(memory, fast=way == "fast") for way in ("plain", "fast")}

    for name in bench.only:
        progress(f"{name}: compile, then time in turn with the textbooks")
        variant = VARIANTS[name]

        def mean_reference(model: Reference, inputs: Array, noise: Array, variant=variant) -> Array:
            return jnp.mean(jax.vmap(lambda x, e: model.objective(variant, x, e))(inputs, noise))

        args: dict[str, tuple] = {"ours": (build_posterior(memory, variant), inputs, noise)}
        program, peak_mb = compile_program(jax.grad(mean_objective), *args["ours"])
        programs = {"ours": program}
        for way, model in textbooks.items():
            args[way] = (model, inputs, noise)
            programs[way], _ = compile_program(jax.grad(mean_reference), *args[way])
        times = time_together(programs, args, bench.repeats, bench.seconds)
        plain, fast = (times[way] for way in textbooks)
        more = {"fast textbook, ms": f"{fast:.1f}", "fast / ours": f"{fast / times['ours']:.2f}"}
        yield Row(name, times["ours"], plain, plain / times["ours"], peak_mb, more)


def require_gradient_memory(
    posterior: AbstractPosterior, command: str, *, steps: int, batch: int, reference_bytes: int = 0
) -> None:
    """Raise an error if the gradient would not fit in memory."""
    # The gradient stores about as much as the beliefs themselves, plus half as much for temporaries.
    needed = 5 * posterior.cost(steps, batch).bytes // 2 + reference_bytes
    require_memory(needed, command, "Take a smaller --batch, --steps, --hidden-size or --features.")


def _reference_bytes(bench: PosteriorBench, variant: Variant) -> int:
    if variant.kind == "point":
        return 0
    # Tangents of all gates with respect to the whole carry, for every input of the window at once.
    window = bench.steps if variant.window == "all" else min(variant.window, bench.steps)
    return 4 * bench.batch * window * 2 * bench.hidden_size * 4 * bench.hidden_size
