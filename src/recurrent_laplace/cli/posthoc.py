"""`posthoc`: another posterior on the weights of a run, without training."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, peek_run, session
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.experiments.derive import derive
from recurrent_laplace.experiments.evaluation import evaluate_run
from recurrent_laplace.experiments.oracles import oracle_table
from recurrent_laplace.experiments.runner import RunOptions
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.summary import summary_table
from recurrent_laplace.models import PosteriorConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Posthoc:
    """Put another posterior on a run's weights, without training, and test it, as a run of its own."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the parent run."""
    snapshot: float = 1.0
    """Share of the parent's updates whose weights to take: 0.5, 0.75 or 1."""
    out: Path
    """Folder that the new run's directory is put in; beside the parent by default."""
    resume: bool = False
    """Be content if the run exists, and test it again."""
    posterior: OmitArgPrefixes[PosteriorConfig]
    evaluation: OmitArgPrefixes[EvaluationConfig]


def main(argv: list[str]) -> None:
    """Put on the posterior, and evaluate."""
    with session():
        path = peek_run(argv)
        default = Posthoc(
            run=tyro.MISSING, out=Path(), posterior=PosteriorConfig(), evaluation=EvaluationConfig()
        )
        if path is not None:
            parent = RunDirectory.open(path)
            default = dataclasses.replace(
                default,
                run=parent.path,
                out=parent.path.resolve().parent,
                posterior=parent.run.config.posterior,
            )
        chosen = parse(Posthoc, argv, verb="posthoc", default=default)
        parent = RunDirectory.open(chosen.run)
        learning = dataclasses.replace(parent.run.config.learning, updates=0)
        options = RunOptions(out=chosen.out, resume=chosen.resume)
        directory = derive(parent, chosen.posterior, learning, snapshot=chosen.snapshot, options=options)
        console = Console()
        with console.status(f"evaluating on {chosen.evaluation.tasks} tasks"):
            frame, written = evaluate_run(directory, chosen.evaluation)
            exact = oracle_table(directory.folder, directory.run.config.task, tasks=chosen.evaluation.tasks)
    console.print(summary_table(frame, exact, console.width))
    print(f"written: {written}")
