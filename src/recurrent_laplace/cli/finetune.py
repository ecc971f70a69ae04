"""`finetune`: training continued from a snapshot with another posterior."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.display import EXECUTION
from recurrent_laplace.cli.early import peek, peek_run
from recurrent_laplace.cli.parsing import OwnTask, load_own_task, parse, session
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, posterior_flags, with_posteriors
from recurrent_laplace.learning import LearningConfig
from recurrent_laplace.runs.derive import derive, remaining_updates
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.runner import RunOptions
from recurrent_laplace.tasks.references import task_flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetune(OwnTask):
    """Continue the training of a run from a snapshot with another posterior, as a new run.

    Schedules, the state of the optimiser and the stream of tasks go on as the parent's would have.
    """

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the parent run."""
    snapshot: float = 0.5
    """Snapshot to start from, as a fraction of the parent's updates: 0.5, 0.75 or 1."""
    fresh_optimizer: bool = False
    """Start schedules, the optimiser and the stream of tasks anew, as version 0.1 did."""
    options: Annotated[OmitArgPrefixes[RunOptions], EXECUTION]
    posterior: Any
    learning: Annotated[OmitArgPrefixes[LearningConfig], tyro.conf.arg(help="Options of learning.")]


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        load_own_task(argv)
        early, path = peek(argv, "snapshot"), peek_run(argv)
        kind = with_posteriors(Finetune)
        default = kind(
            run=tyro.MISSING, options=RunOptions(), posterior=posterior_flags(), learning=LearningConfig()
        )
        if path is not None:
            parent = RunDirectory.open(path)
            config = parent.run.config
            updates = remaining_updates(parent, _fraction(early.snapshot, default.snapshot))
            default = dataclasses.replace(
                default,
                run=parent.path,
                options=RunOptions(out=parent.path.resolve().parent),
                posterior=flags_of(parent.run),
                learning=dataclasses.replace(config.learning, updates=updates),
            )
        chosen = parse(kind, argv, verb="finetune", default=default)
        posterior, unused = chosen_posterior(chosen.posterior)
        directory = derive(
            RunDirectory.open(chosen.run),
            posterior,
            chosen.learning,
            unused=unused,
            snapshot=chosen.snapshot,
            fresh_optimizer=chosen.fresh_optimizer,
            options=chosen.options,
        )
    print(f"finished: {directory.path}")
    print(f"next: recurrent-laplace evaluate {directory.path}{task_flag(directory.run.config.task)}")


def _fraction(text: str | None, default: float) -> float:
    try:
        return default if text is None else float(text)
    except ValueError:
        return default  # The main parser has the better error message.
