"""`shiftbench`: which score notices that the world has changed."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.parsing import parse, session
from recurrent_laplace.deploy.shiftbench import ShiftConfig, shiftbench
from recurrent_laplace.errors import check_choice
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractBandit, Gridworld
from recurrent_laplace.tasks.shifts import SHIFTS


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftBench:
    """Play trained agents in worlds that change, and say which score notices, how soon, and its worth.

    Scores are readings of Laplace posteriors put on the agents' networks, and baselines that need none.
    They are standardised, and alarms fitted, on clean episodes alone.
    """

    run: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN")]
    """Directories of runs of one configuration, on a gridworld or a bandit; every seed is an agent."""
    task: str | None = None
    """Name of the task, to be sure that the runs are of it."""
    shifts: tuple[str, ...] = tuple(name for name in SHIFTS if name != "none")
    """What changes."""
    out: Path = Path("shiftbench.html")
    """File to write the page to; the table is put beside it, as parquet."""
    config: OmitArgPrefixes[ShiftConfig]


def main(argv: list[str]) -> None:
    """Play, print, and write."""
    with session():
        default = ShiftBench(run=tyro.MISSING, config=ShiftConfig())
        chosen = parse(ShiftBench, argv, verb="shiftbench", default=default)
        for shift in chosen.shifts:
            check_choice("shifts", shift, tuple(SHIFTS))
        if not chosen.run:
            raise ValueError("run must name at least one directory; got none.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: no such folder, or it is one.")
        directories = [RunDirectory.open(path) for path in chosen.run]
        config = directories[0].run.config
        if chosen.task is not None:
            check_choice("task", chosen.task, (config.task.name,))
        if not isinstance(config.task, Gridworld | AbstractBandit):
            raise ValueError(
                f"{chosen.run[0]} is a run of {config.task.name}: only gridworlds and bandits shift."
            )
        agents = []
        for directory in directories:
            if directory.run.configuration != directories[0].run.configuration:
                raise ValueError(f"{directory.path} is of another configuration than {directories[0].path}.")
            agents += [load_model(directory, seed_index=index) for index in range(directory.run.seeds)]
        agents = [agent for agent in agents if isinstance(agent, Agent)]
        with Console(stderr=True).status("clean episodes") as status:
            frame = shiftbench(
                agents, config.task, config.learning, chosen.config, shifts=chosen.shifts, say=status.update
            )
        from recurrent_laplace.report.shiftbench import summarise, write_shift_page

        summary = summarise(frame)
        console = Console()
        table = Table(
            "score", *(name.replace("_", " ") for name in chosen.shifts), title="AUROC, mean over agents"
        )
        for row in summary.iter_rows(named=True):
            table.add_row(row["score"], *(f"{row[name]:.2f}" for name in chosen.shifts))
        console.print(table)
        write_table(chosen.out.with_suffix(".parquet"), frame)
        command = shlex.join(["recurrent-laplace", "shiftbench", *argv])
        write_shift_page(chosen.out, frame, task=config.task.name, agents=len(agents), command=command)
    print(chosen.out)
