"""`bench seeds`: several seeds in one program, against one after another."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp

from recurrent_laplace.benchmarks.measure import time_together
from recurrent_laplace.benchmarks.options import SeedsBench
from recurrent_laplace.benchmarks.rows import ProgressCallback, Row
from recurrent_laplace.benchmarks.training import Training, require_training_memory, variant_config
from recurrent_laplace.benchmarks.variants import METHODS
from recurrent_laplace.learning import make_train
from recurrent_laplace.machine.devices import choose_mesh

HEADINGS = ("method", "together, ms", "one by one, ms", "together / one by one", "memory together, MB")


def title(bench: SeedsBench) -> str:
    """Title of the table, with the measured sizes."""
    return (
        f"An update of {bench.seeds} seeds, gridworld, preset {bench.preset}, float32: all in one program, "
        "as `train --seeds` runs it, and one after another with a single-seed program. Compilation is not "
        "counted."
    )


def run(bench: SeedsBench, progress: ProgressCallback) -> Iterator[Row]:
    """Yield a row per method: all seeds together, one by one, and the ratio of the two."""
    mesh, sharded = choose_mesh("auto", bench.seeds)  # Before JAX has been used: it may split the CPU.
    configs = {
        name: variant_config(METHODS[name], bench.preset, batch=bench.batch, steps=bench.steps)
        for name in bench.only
    }
    for name, config in configs.items():
        require_training_memory(config, f"bench seeds --only {name}", seeds=bench.seeds)
    keys = jax.vmap(jax.random.key)(jnp.arange(bench.seeds))
    for name, config in configs.items():
        progress(f"{name}: compile, then time in turn")
        together = make_train(config, mesh=mesh, sharded=sharded)
        programs = {
            "together": Training(together, [keys]),
            "apart": Training(make_train(config), list(keys)),
        }
        times = time_together(programs, {"together": (), "apart": ()}, bench.repeats, bench.seconds)
        more = {
            "devices": str(1 if mesh is None else mesh.size),
            "compile together, s": f"{programs['together'].compile_seconds:.1f}",
            "compile one, s": f"{programs['apart'].compile_seconds:.1f}",
        }
        ours, apart = times["together"], times["apart"]
        yield Row(name, ours, apart, ours / apart, programs["together"].peak_mb, more)
