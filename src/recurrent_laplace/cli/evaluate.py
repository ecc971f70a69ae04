"""`evaluate`: a run on fixed test tasks."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, peek, peek_run, session, with_task
from recurrent_laplace.errors import check_choice
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.experiments.evaluation import evaluate_beside_oracle
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.summary import summary_table
from recurrent_laplace.tasks import TASKS, make_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Test the newest state of a run on fixed test tasks, and store the table in its directory."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    task: str
    """Name of the task to test on, if not the run's own; its parameters can be changed as well."""
    evaluation: OmitArgPrefixes[EvaluationConfig]


def main(argv: list[str]) -> None:
    """Evaluate."""
    with session():
        early, path, own = peek(argv, "task"), peek_run(argv), make_task("gridworld")
        if path is not None:
            own = RunDirectory.open(path).run.config.task
        if early.task is not None and early.task != own.name:
            check_choice("task", early.task, tuple(TASKS))
            own = make_task(early.task)
        kind = with_task(Evaluate, type(own))
        default = kind(run=path or tyro.MISSING, task=own.name, parameters=own, evaluation=EvaluationConfig())
        chosen = parse(kind, argv, verb="evaluate", default=default)
        directory = RunDirectory.open(chosen.run)
        chosen.parameters.check()
        console = Console()
        with console.status(f"evaluating on {chosen.evaluation.tasks} tasks"):
            frame, written, exact = evaluate_beside_oracle(directory, chosen.evaluation, chosen.parameters)
    console.print(summary_table(frame, exact, console.width))
    print(f"written: {written}")
