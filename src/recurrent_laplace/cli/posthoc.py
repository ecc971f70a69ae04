"""`posthoc`: another posterior on the weights of a run, without training, calibrated or not."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, peek_run, session
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.evaluation.validation import CalibrationConfig
from recurrent_laplace.experiments.calibration import calibration_tables, derive_calibrated
from recurrent_laplace.experiments.derive import derive
from recurrent_laplace.experiments.evaluation import evaluate_beside_oracle
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
    calibrate: bool = False
    """Fit the scales of a Laplace posterior on validation tasks, and show what that does on others."""
    calibration: OmitArgPrefixes[CalibrationConfig]
    posterior: OmitArgPrefixes[PosteriorConfig]
    evaluation: OmitArgPrefixes[EvaluationConfig]


def main(argv: list[str]) -> None:
    """Put on the posterior, and evaluate."""
    with session():
        path = peek_run(argv)
        default = Posthoc(
            run=tyro.MISSING,
            out=Path(),
            calibration=CalibrationConfig(),
            posterior=PosteriorConfig(),
            evaluation=EvaluationConfig(),
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
        options = RunOptions(out=chosen.out, resume=chosen.resume)
        console = Console()
        if chosen.calibrate:
            with console.status(f"calibrating on {chosen.calibration.tasks} tasks"):
                directory, judged = derive_calibrated(
                    parent, chosen.posterior, chosen.calibration, snapshot=chosen.snapshot, options=options
                )
            for table in calibration_tables(directory.run, judged):
                console.print(table)
        elif chosen.calibration != CalibrationConfig():
            raise ValueError("options of calibration need --calibrate; got them without it.")
        else:
            learning = dataclasses.replace(parent.run.config.learning, updates=0)
            directory = derive(parent, chosen.posterior, learning, snapshot=chosen.snapshot, options=options)
        with console.status(f"evaluating on {chosen.evaluation.tasks} tasks"):
            frame, written, exact = evaluate_beside_oracle(directory, chosen.evaluation)
    console.print(summary_table(frame, exact, console.width))
    print(f"written: {written}")
