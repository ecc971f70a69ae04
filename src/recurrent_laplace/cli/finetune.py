"""`finetune`: a snapshot continued under another posterior."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, peek, peek_run, session
from recurrent_laplace.experiments.derive import derive, remaining_updates
from recurrent_laplace.experiments.runner import RunOptions
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.learning import LearningConfig
from recurrent_laplace.models import PosteriorConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune:
    """Continue a snapshot of a run under another posterior, with a fresh optimiser, as a run of its own."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the parent run."""
    snapshot: float = 0.5
    """Share of the parent's updates after which to begin: 0.5, 0.75 or 1."""
    options: OmitArgPrefixes[RunOptions]
    posterior: OmitArgPrefixes[PosteriorConfig]
    learning: OmitArgPrefixes[LearningConfig]


def main(argv: list[str]) -> None:
    """Fine-tune."""
    with session():
        early, path = peek(argv, "snapshot"), peek_run(argv)
        default = Finetune(
            run=tyro.MISSING, options=RunOptions(), posterior=PosteriorConfig(), learning=LearningConfig()
        )
        if path is not None:
            parent = RunDirectory.open(path)
            config = parent.run.config
            updates = remaining_updates(parent, _share(early.snapshot, default.snapshot))
            default = dataclasses.replace(
                default,
                run=parent.path,
                options=RunOptions(out=parent.path.resolve().parent),
                posterior=config.posterior,
                learning=dataclasses.replace(config.learning, updates=updates),
            )
        chosen = parse(Finetune, argv, verb="finetune", default=default)
        directory = derive(
            RunDirectory.open(chosen.run),
            chosen.posterior,
            chosen.learning,
            snapshot=chosen.snapshot,
            options=chosen.options,
        )
    print(f"finished: {directory.path}")
    print(f"next: recurrent-laplace evaluate {directory.path}")


def _share(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default  # The real parser will say it better.
