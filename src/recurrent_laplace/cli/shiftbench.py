"""`shiftbench`: which score notices that the world has changed."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.faithfulness import method_names
from recurrent_laplace.cli.parsing import parse, session
from recurrent_laplace.deploy.shiftbench import ShiftConfig, shiftbench
from recurrent_laplace.errors import check_choice
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.tasks import AbstractBandit, AbstractTask, Gridworld, Regression
from recurrent_laplace.tasks.shifts import shifts_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftBench:
    """Play trained agents in worlds that change, and say which score notices, how soon, and its worth.

    Scores are readings of Laplace posteriors put on the agents' networks, and baselines that need none.
    They are standardised, and alarms fitted, on clean episodes alone.
    """

    run: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]
    """Directories of runs of one configuration, on regression, a gridworld or a bandit; every seed counts."""
    task: str | None = None
    """Name of the task, to be sure that the runs are of it."""
    beside: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")] = ()
    """Runs of a VRNN or Laplace-VRNN on the same task: their own beliefs follow the same episodes."""
    shifts: tuple[str, ...] = ()
    """What changes; all that can, by default."""
    out: Path = Path("shiftbench.html")
    """File to write the page to; the table is put beside it, as parquet."""
    config: OmitArgPrefixes[ShiftConfig]


def main(argv: list[str]) -> None:
    """Play, print, and write."""
    with session():
        default = ShiftBench(run=tyro.MISSING, config=ShiftConfig())
        chosen = parse(ShiftBench, argv, verb="shiftbench", default=default)
        if not chosen.run:
            raise ValueError("run must name at least one directory; got none.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: no such folder, or it is one.")
        directories = [RunDirectory.open(path) for path in chosen.run]
        config = directories[0].run.config
        if chosen.task is not None:
            check_choice("task", chosen.task, (config.task.name,))
        if not isinstance(config.task, Gridworld | AbstractBandit | Regression):
            raise ValueError(
                f"{chosen.run[0]} is a run of {config.task.name}: regression, gridworlds and bandits shift."
            )
        shifts = chosen.shifts or tuple(name for name in shifts_of(config.task) if name != "none")
        for shift in shifts:
            check_choice("shifts", shift, shifts_of(config.task))
        models = []
        for directory in directories:
            if directory.run.configuration != directories[0].run.configuration:
                raise ValueError(f"{directory.path} is of another configuration than {directories[0].path}.")
            models += _seeds_of(directory)
        beside = _followers(chosen.beside, config.task)
        with Console(stderr=True).status("clean episodes") as status:
            frame = shiftbench(
                models,
                config.task,
                config.learning,
                chosen.config,
                shifts=shifts,
                beside=beside,
                say=status.update,
            )
        from recurrent_laplace.report.shiftbench import overview_table, write_shift_page

        Console().print(overview_table(frame))
        write_table(chosen.out.with_suffix(".parquet"), frame)
        command = shlex.join(["recurrent-laplace", "shiftbench", *argv])
        write_shift_page(chosen.out, frame, task=config.task.name, agents=len(models), command=command)
    print(chosen.out)


def _seeds_of(directory: RunDirectory) -> list[Agent | Regressor]:
    return [load_model(directory, seed_index=index) for index in range(directory.run.seeds)]


def _followers(paths: tuple[Path, ...], task: AbstractTask) -> dict[str, list[Agent | Regressor]]:
    """Networks with beliefs of their own, by what they are called in the table."""
    directories = [RunDirectory.open(path) for path in paths]
    names = method_names([directory.run for directory in directories])
    found: dict[str, list[Agent | Regressor]] = {}
    for directory in directories:
        config = directory.run.config
        if config.task != task:
            raise ValueError(f"{directory.path} is of another task than the runs that it is to stand beside.")
        if config.posterior.kind == "point":
            raise ValueError(f"{directory.path} is an RNN: it has no belief of its own to follow with.")
        found.setdefault(names[directory.run.configuration], []).extend(_seeds_of(directory))
    return found
