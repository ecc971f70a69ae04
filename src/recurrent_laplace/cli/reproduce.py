"""`reproduce`: the paper's experiments, figures, and a verdict on each claim."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from recurrent_laplace.cli import fail
from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.executor import ExecutorOptions
from recurrent_laplace.cli.parsing import session
from recurrent_laplace.cli.report import draw_page
from recurrent_laplace.cli.sweep import finish, print_estimates, print_total
from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.directory import SweepDirectory, diverged, failures
from recurrent_laplace.sweeps.looks import Judged, Reproduction, Scale, plan_look
from recurrent_laplace.sweeps.sweeper import run_sweep


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduce(ExecutorOptions):
    """Train, fine-tune and evaluate the paper's agents, draw its figures and judge its claims.

    Running the same command again continues where it stopped. A scale with several looks judges the claims
    after each, and gives more seeds to the configurations of open comparisons alone.
    """

    scale: Scale = "smoke"
    """Size: minutes (nothing is learned), 90 minutes or a night on two cores, or the paper's full grid."""
    out: Annotated[Path | None, unset("PATH")] = None
    """Directory of the runs and the page; runs/reproduce-SCALE by default."""
    dry_run: bool = False
    """Only list the runs, with estimates of time, memory and disk."""
    yes: bool = False
    """Start without confirmation; scale paper takes years on one machine."""


def main(argv: list[str]) -> None:
    """Run the command."""
    options = tyro.cli(Reproduce, prog="recurrent-laplace reproduce", args=argv)
    with session():
        tables, source = load_sweep(f"reproduce-{options.scale}")
        out = options.out or Path("runs") / f"reproduce-{options.scale}"
        reproduction = Reproduction.make(out, tables, source)
        if options.dry_run:
            preview(reproduction, options.only)
            return
        first = reproduction.preview(options.only)
        if options.scale == "paper" and not options.yes:
            print_total(first)
            print("this is a large computation: add --yes to start it.")
            return
        options.make_executor(first)  # Invalid options are refused before anything is written.
        reproduce(reproduction, options)


def reproduce(reproduction: Reproduction, options: ExecutorOptions) -> None:
    """Execute look after look until no claim needs more seeds, with the page after each."""
    page, failed = None, 0
    number = 0
    while advance(reproduction, number := number + 1):
        sweep = reproduction.sweep(number, options.only)
        if not all(map(sweep.is_done, sweep.plan.jobs)):
            run_sweep(options.make_executor(sweep), measured=reproduction.sweeps()[: number - 1])
            page = draw_page(reproduction.path)
        problems = failures(sweep)
        failed += len(problems)
        if any(not diverged(problem) for problem in problems):
            finish(sweep)
        lacking = unfinished_stages(reproduction.sweep(number))
        if lacking:
            print(
                f"look {number} lacks stages: {', '.join(lacking)}; without --only, the same command "
                "executes them and goes on."
            )
            break
    if page is None:
        page = draw_page(reproduction.path)
    print(page)
    if failed:
        fail(f"{failed} runs diverged; the page says which.", code=1)


def advance(reproduction: Reproduction, number: int) -> bool:
    """Plan a look unless its plan exists; return whether there is such a look."""
    if number <= reproduction.planned():
        return True
    verdicts = judged(reproduction) if 1 < number <= reproduction.looks else ()
    plan = plan_look(reproduction.tables, reproduction.source, number, verdicts)
    if plan is None:
        return False
    reproduction.write(number, plan)
    if number > 1:
        count = len(plan["configurations"])
        print(f"look {number}: more seeds for {count} configurations with open comparisons")
    return True


def judged(reproduction: Reproduction) -> Sequence[Judged]:
    """Verdicts on the runs of all looks so far."""
    from recurrent_laplace.report.claims import judge
    from recurrent_laplace.report.frames import load_frames
    from recurrent_laplace.report.oracles import with_oracles

    frames = load_frames(reproduction.path)
    check_complete(reproduction, set(frames.runs["run"]), frames.left_out)
    return judge(with_oracles(frames))


def check_complete(
    reproduction: Reproduction, reported: Collection[str], left_out: Mapping[str, str]
) -> None:
    """Raise `StorageError` for a finished run that is not reported: its look would be planned without it."""
    for sweep in reproduction.sweeps():
        for job in sweep.plan.jobs:
            if job.id not in reported and sweep.is_done(job):
                reason = left_out.get(job.id, "it was not found").rstrip(".")
                raise StorageError(
                    f"the next look cannot be planned without {sweep.runs / job.id}: {reason}; delete this "
                    "directory, and the same command executes the run again."
                )


def unfinished_stages(sweep: SweepDirectory) -> list[str]:
    """Stages of a sweep, optional ones apart, with runs that were not executed."""
    statuses = sweep.statuses()
    over = ("done", "failed", "blocked")
    return list(dict.fromkeys(job.stage for job in sweep.plan.jobs if statuses[job.id].state not in over))


def preview(reproduction: Reproduction, only: tuple[str, ...]) -> None:
    """Print the estimated cost of the newest look, or of the first if there is none."""
    planned = reproduction.sweeps()
    number = max(len(planned), 1)
    print_estimates(reproduction.sweep(number, only) if planned else reproduction.preview(only), planned)
    if number < reproduction.looks:
        print(f"{reproduction.looks - number} more looks are planned from the verdicts.")
