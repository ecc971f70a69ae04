"""`posthoc`: another posterior on the weights of a run, without training, optionally calibrated."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.early import peek_run
from recurrent_laplace.cli.parsing import OwnTask, load_own_task, parse, session
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, posterior_flags, with_posteriors
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.evaluation.calibration import CalibrationConfig
from recurrent_laplace.runs.calibration import calibration_tables, derive_calibrated
from recurrent_laplace.runs.derive import derive
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import evaluate_with_oracle
from recurrent_laplace.runs.requirements import require_episodes_memory, require_evaluation_memory
from recurrent_laplace.runs.runner import RunOptions
from recurrent_laplace.runs.summary import summary_table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Posthoc(OwnTask):
    """Apply another posterior to a run's weights, without training, and evaluate it, as a new run."""

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the parent run."""
    snapshot: float = 1.0
    """Snapshot to use, as a fraction of the parent's updates: 0.5, 0.75 or 1."""
    out: Annotated[Path, unset("PATH")]
    """Folder of the new run's directory; the parent's by default."""
    resume: bool = False
    """Reuse the run if it exists, and evaluate it again."""
    calibrate: bool = False
    """Calibrate the scales of a Laplace posterior on validation tasks; report the effect on other tasks."""
    calibration: OmitArgPrefixes[CalibrationConfig]
    posterior: Any
    evaluation: Annotated[OmitArgPrefixes[EvaluationConfig], tyro.conf.arg(help="Options of evaluation.")]


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        load_own_task(argv)
        path = peek_run(argv)
        kind = with_posteriors(Posthoc)
        default = kind(
            run=tyro.MISSING,
            out=Path(),
            calibration=CalibrationConfig(),
            posterior=posterior_flags(),
            evaluation=EvaluationConfig(),
        )
        if path is not None:
            parent = RunDirectory.open(path)
            default = dataclasses.replace(
                default,
                run=parent.path,
                out=parent.path.resolve().parent,
                posterior=flags_of(parent.run),
            )
        chosen = parse(kind, argv, verb="posthoc", default=default)
        parent = RunDirectory.open(chosen.run)
        posterior, unused = chosen_posterior(chosen.posterior)
        # Checked before a run is derived, whose directory would be left behind.
        chosen.evaluation.check()
        require_evaluation_memory(parent.run, parent.run.config.task, chosen.evaluation.tasks)
        options = RunOptions(out=chosen.out, resume=chosen.resume)
        console = Console()
        if chosen.calibrate:
            steps = parent.run.config.learning.steps
            require_episodes_memory(parent.run, chosen.calibration.tasks, steps, "--calibrate-tasks")
            with console.status(f"calibrating on {chosen.calibration.tasks} tasks"):
                directory, scores = derive_calibrated(
                    parent, posterior, chosen.calibration, snapshot=chosen.snapshot, options=options
                )
            for table in calibration_tables(directory.run, scores):
                console.print(table)
        elif chosen.calibration != CalibrationConfig():
            raise ValueError("calibration options need --calibrate; got them without it.")
        else:
            learning = dataclasses.replace(parent.run.config.learning, updates=0)
            directory = derive(
                parent, posterior, learning, unused=unused, snapshot=chosen.snapshot, options=options
            )
        with console.status(f"evaluating on {chosen.evaluation.tasks} tasks"):
            frame, written, exact = evaluate_with_oracle(directory, chosen.evaluation)
    console.print(summary_table(frame, exact, console.width))
    print(f"written: {written}")
