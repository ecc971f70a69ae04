"""`shiftbench`: benchmark of scores that detect distribution shifts."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.faithfulness import method_names
from recurrent_laplace.cli.parsing import load_own_task, note_version, parse, session
from recurrent_laplace.errors import check_choice, check_seed
from recurrent_laplace.evaluation.shifts.study import ShiftConfig, check_shiftable, shiftbench
from recurrent_laplace.models import Agent, Regressor
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.runs.requirements import require_episodes_memory
from recurrent_laplace.runs.tables import write_table
from recurrent_laplace.tasks import AbstractTask
from recurrent_laplace.tasks.shifts import shifts_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShiftBench:
    """Play trained agents in shifted environments; report which scores detect it, how soon, and the gain.

    Scores are readings of Laplace posteriors on the agents' networks, and baselines without a posterior.
    Standardisation and alarms are fitted on clean episodes only.
    """

    run: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="RUN ...")]
    """Run directories of one configuration, on a task that has shifts; all seeds are used."""
    task: Annotated[str | None, unset("TASK")] = None
    """Expected task of the runs; an error if they have another. One that is not of the package is named as in
    `train`."""
    beside: Annotated[tuple[Path, ...], unset("RUN ...")] = ()
    """Runs with a posterior (VRNN, Laplace-VRNN, conjugate) on the same task, whose own beliefs are scored
    on the same episodes."""
    shifts: Annotated[tuple[str, ...], unset("SHIFT ...")] = ()
    """Shifts to apply; all of the task by default."""
    out: Path = Path("shiftbench.html")
    """HTML file to write; the table is written next to it as parquet."""
    config: Annotated[OmitArgPrefixes[ShiftConfig], tyro.conf.arg(name="benchmark")]


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        name = load_own_task(argv)
        default = ShiftBench(run=tyro.MISSING, config=ShiftConfig())
        chosen = parse(ShiftBench, argv, verb="shiftbench", default=default)
        check_seed(chosen.config.seed)
        if not chosen.run:
            raise ValueError("run must name at least one directory; got none.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: not a file in an existing folder.")
        directories = [RunDirectory.open(path) for path in chosen.run]
        config = directories[0].run.config
        if name is not None:
            check_choice("task", name, (config.task.name,))
        check_shiftable(config.task)
        shifts = chosen.shifts or tuple(name for name in shifts_of(config.task) if name != "none")
        for shift in shifts:
            check_choice("shifts", shift, shifts_of(config.task))
        steps = chosen.config.steps or config.learning.steps
        require_episodes_memory(
            directories[0].run, 4 * chosen.config.episodes, steps, "--episodes or --steps"
        )
        models = []
        for directory in directories:
            note_version(directory)
            if directory.run.configuration != directories[0].run.configuration:
                raise ValueError(f"{directory.path} is of another configuration than {directories[0].path}.")
            models += _load_seeds(directory)
        baseline_models = _load_baselines(chosen.beside, config.task)
        with Console(stderr=True).status("clean episodes") as status:
            frame = shiftbench(
                models,
                config.task,
                config.learning,
                chosen.config,
                shifts=shifts,
                baseline_models=baseline_models,
                progress=status.update,
            )
        from recurrent_laplace.report.shiftbench import overview_table, write_shift_page

        Console().print(overview_table(frame))
        write_table(chosen.out.with_suffix(".parquet"), frame)
        command = shlex.join(["recurrent-laplace", "shiftbench", *argv])
        write_shift_page(chosen.out, frame, task=config.task.name, agents=len(models), command=command)
    print(chosen.out)


def _load_seeds(directory: RunDirectory) -> list[Agent | Regressor]:
    return [load_model(directory, seed_index=index) for index in range(directory.run.seeds)]


def _load_baselines(paths: tuple[Path, ...], task: AbstractTask) -> dict[str, list[Agent | Regressor]]:
    """Networks with their own beliefs, by their names in the table."""
    directories = [RunDirectory.open(path) for path in paths]
    names = method_names([directory.run for directory in directories])
    networks: dict[str, list[Agent | Regressor]] = {}
    for directory in directories:
        config = directory.run.config
        if config.task != task:
            raise ValueError(f"{directory.path} is of another task than the runs that it is compared with.")
        if config.posterior.family is None:
            label = config.posterior.label
            raise ValueError(f"{directory.path} is an {label}: it has no belief of its own.")
        networks.setdefault(names[directory.run.configuration], []).extend(_load_seeds(directory))
    return networks
