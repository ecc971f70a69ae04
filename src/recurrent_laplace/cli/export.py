"""`export`: a run's agent in one file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, peek_run, session
from recurrent_laplace.deploy import export, save
from recurrent_laplace.experiments.models import find_snapshot, load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.models import PosteriorConfig, with_posterior


@dataclasses.dataclass(frozen=True, kw_only=True)
class Export:
    """Write the weights of a run, with a posterior, to one safetensors file: `rl.load` reads it."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    snapshot: float | None = None
    """Share of the updates whose weights to take; the newest by default."""
    seed_index: int = 0
    """Which of the run's seeds, from 0."""
    out: Path = Path("agent.safetensors")
    """File to write; one that ends in .jaxexport is the posterior's one-step program instead."""
    posterior: OmitArgPrefixes[PosteriorConfig]


def main(argv: list[str]) -> None:
    """Export."""
    with session():
        path, posterior = peek_run(argv), PosteriorConfig()
        if path is not None:
            posterior = RunDirectory.open(path).run.config.posterior
        default = Export(run=path or tyro.MISSING, posterior=posterior)
        chosen = parse(Export, argv, verb="export", default=default)
        chosen.posterior.check()
        directory = RunDirectory.open(chosen.run)
        update = None if chosen.snapshot is None else find_snapshot(directory, chosen.snapshot)
        model = load_model(directory, update=update, seed_index=chosen.seed_index)
        model = with_posterior(model, chosen.posterior, key=jax.random.key(0))
        with Console(stderr=True).status("writing"):
            if chosen.out.suffix == ".jaxexport":
                export(chosen.out, model.posterior)
            else:
                save(chosen.out, model)
    print(chosen.out)
