"""`export`: the agent of a run in one file."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro
from rich.console import Console
from tyro.conf import Positional

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.early import peek_run
from recurrent_laplace.cli.parsing import OwnTask, load_own_task, parse, session
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, posterior_flags, with_posteriors
from recurrent_laplace.models import with_posterior
from recurrent_laplace.monitoring import export, save
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import find_snapshot, load_model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export(OwnTask):
    """Write the weights of a run, with a posterior, to one safetensors file for `rl.load`."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    snapshot: Annotated[float | None, unset("FLOAT")] = None
    """Snapshot to export, as a fraction of the updates; the latest weights by default."""
    seed_index: int = 0
    """Index of the seed to export, from 0."""
    out: Path = Path("agent.safetensors")
    """File to write; with the suffix .jaxexport, the compiled one-step update of the posterior instead."""
    posterior: Any


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        load_own_task(argv)
        path = peek_run(argv)
        flags = posterior_flags() if path is None else flags_of(RunDirectory.open(path).run)
        kind = with_posteriors(Export)
        chosen = parse(kind, argv, verb="export", default=kind(run=path or tyro.MISSING, posterior=flags))
        posterior, _ = chosen_posterior(chosen.posterior)
        posterior.check()
        directory = RunDirectory.open(chosen.run)
        update = None if chosen.snapshot is None else find_snapshot(directory, chosen.snapshot)
        model = load_model(directory, update=update, seed_index=chosen.seed_index)
        model = with_posterior(model, posterior, key=jax.random.key(0))
        with Console(stderr=True).status("writing"):
            if chosen.out.suffix == ".jaxexport":
                export(chosen.out, model.posterior)
            else:
                save(chosen.out, model)
    print(chosen.out)
