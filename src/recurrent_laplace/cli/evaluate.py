"""`evaluate`: evaluation of a run on fixed test tasks."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.early import peek, peek_run
from recurrent_laplace.cli.parsing import parse, session, with_task
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import evaluate_with_oracle, evaluated_update, not_finite
from recurrent_laplace.runs.models import find_snapshot
from recurrent_laplace.runs.summary import summary_table
from recurrent_laplace.tasks import check_task, make_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a state of a run on fixed test tasks, and store the table in its directory."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    task: str
    """Task to evaluate on, the run's own by default; its parameters can be changed as well."""
    snapshot: Annotated[float | None, unset("FLOAT")] = None
    """Snapshot to evaluate, as a fraction of the updates: 0.5, 0.75 or 1; the newest state by default."""
    evaluation: Annotated[OmitArgPrefixes[EvaluationConfig], tyro.conf.arg(help="Options of evaluation.")]


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        early, path, own = peek(argv, "task"), peek_run(argv), make_task("gridworld")
        if path is not None:
            own = RunDirectory.open(path).run.config.task
        if early.task is not None and early.task != own.name:
            check_task(early.task)
            own = make_task(early.task)
        kind = with_task(Evaluate, type(own))
        default = kind(run=path or tyro.MISSING, task=own.name, parameters=own, evaluation=EvaluationConfig())
        chosen = parse(kind, argv, verb="evaluate", default=default)
        directory = RunDirectory.open(chosen.run)
        chosen.parameters.check()
        console = Console()
        with console.status(f"evaluating on {chosen.evaluation.tasks} tasks"):
            update = None if chosen.snapshot is None else find_snapshot(directory, chosen.snapshot)
            frame, written, exact = evaluate_with_oracle(
                directory, chosen.evaluation, chosen.parameters, update=update
            )
    if (problem := not_finite(frame)) is not None:
        print(f"not finite, and left out of the means: {problem}", file=sys.stderr)
    console.print(summary_table(frame, exact, console.width))
    updates, done = directory.run.config.learning.updates, evaluated_update(written)
    if update is not None:
        print(f"evaluated at update {done} of {updates}")
    elif done < updates:
        print(f"evaluated at update {done} of {updates}: the run is not finished")
    print(f"written: {written}")
