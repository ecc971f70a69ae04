"""`bench seeds`: several seeds in one program, or one after another."""

from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from rich.table import Table

from recurrent_laplace.benchmarks.measure import time_together
from recurrent_laplace.benchmarks.options import SeedsBench
from recurrent_laplace.benchmarks.rows import Row, Say, make_table
from recurrent_laplace.benchmarks.training import Training, config_of, require_room
from recurrent_laplace.benchmarks.variants import METHODS
from recurrent_laplace.experiments.devices import share_out
from recurrent_laplace.learning import make_train


def title(bench: SeedsBench) -> str:
    """What is measured."""
    return (
        f"An update of {bench.seeds} seeds, gridworld, preset {bench.preset}, float32: all in one program, "
        "as `train --seeds` runs it, and one after another with a program for one. Compiling is not counted."
    )


def table(rows: Sequence[Row]) -> Table:
    """The rows, for people."""
    return make_table(
        ("method", "together, ms", "one by one, ms", "together / one by one", "memory together, MB"), rows
    )


def run(bench: SeedsBench, say: Say) -> Iterator[Row]:
    """A row for each method: together, one by one, and their ratio."""
    mesh, shared = share_out("auto", bench.seeds)  # Before JAX has been used: it may split the CPU.
    configs = {
        name: config_of(METHODS[name], bench.preset, batch=bench.batch, steps=bench.steps)
        for name in bench.only
    }
    for name, config in configs.items():
        require_room(config, f"bench seeds --only {name}", seeds=bench.seeds)
    keys = jax.vmap(jax.random.key)(jnp.arange(bench.seeds))
    for name, config in configs.items():
        say(f"{name}: compile, then take turns")
        together = make_train(config, mesh=mesh, shared=shared)
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
