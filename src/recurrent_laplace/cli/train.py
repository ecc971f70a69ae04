"""`train`: training in a run directory, started or continued."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.display import EXECUTION, unset
from recurrent_laplace.cli.early import peek
from recurrent_laplace.cli.parsing import default_run, parse, session, with_task
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, with_posteriors
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.machine.processes import Hosts, joined
from recurrent_laplace.models import AgentConfig
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.evaluation import evaluate_missing
from recurrent_laplace.runs.presets import PRESETS
from recurrent_laplace.runs.runner import RunOptions, follow_run, train_run
from recurrent_laplace.tasks.references import task_flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent on a task, in a run directory named after its configuration.

    Values come from the preset, overridden by --config, overridden by flags.
    """

    task: str
    """Name of the task (`recurrent-laplace tasks` lists them), package.module:Class for one of your own, the
    name of an installed plugin, or gymnax:NAME."""
    preset: Literal["smoke", "small", "laptop", "reproduction", "paper"]
    """Source of the defaults: seconds, a minute, or minutes on two cores, those of `reproduce`, or the
    paper's values."""
    config: Annotated[Path | None, unset("FILE.toml")]
    """TOML file with values, such as the config.toml of a run, which gives the same run."""
    seed: int = 0
    """First seed."""
    seeds: int = 1
    """Number of seeds, trained in one program: seed, seed + 1, ..."""
    evaluate_snapshots: bool = False
    """Evaluate the states at 1/2, 3/4 and the end of training, when it has ended."""
    options: Annotated[OmitArgPrefixes[RunOptions], EXECUTION]
    hosts: Annotated[OmitArgPrefixes[Hosts], tyro.conf.arg(name="multi-process")]
    agent: Annotated[OmitArgPrefixes[AgentConfig], tyro.conf.arg(help="Architecture of the network.")]
    posterior: Any
    learning: Annotated[OmitArgPrefixes[LearningConfig], tyro.conf.arg(help="Options of learning.")]


def warn_of_inactive(run: Run, default: LearningConfig) -> None:
    """Name the options on the command line that have no effect on this run."""
    learning = run.config.learning
    objective = run.config.objective
    changed = [n for n in run.config.inactive_learning if getattr(learning, n) != getattr(default, n)]
    of_objective = [name for name in changed if name in objective.inactive]
    of_posterior = [name for name in (*changed, *run.unused) if name not in of_objective]
    for names, what in (
        (of_posterior, run.config.posterior.label),
        (of_objective, f"objective {objective.name!r}"),
    ):
        flags = [f"--{name.replace('_', '-')}" for name in names]
        if flags:
            print(f"note: {', '.join(flags)}: no effect on {what}.", file=sys.stderr)


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        early = peek(argv, "task", "preset", "config", "posterior")
        preset = early.preset if early.preset in PRESETS else "laptop"
        file = None if early.config is None else Path(early.config)
        default = default_run(preset, file, early.task, early.posterior)
        base = default.config
        kind = with_task(with_posteriors(Train), type(base.task))
        options = kind(
            task=base.task.name,
            preset=preset,
            config=file,
            seed=default.seed,
            seeds=default.seeds,
            options=RunOptions(),
            hosts=Hosts(),
            parameters=base.task,
            agent=base.agent,
            posterior=flags_of(default),
            learning=base.learning,
        )
        chosen = parse(kind, argv, verb="train", default=options)
        posterior, unused = chosen_posterior(chosen.posterior)
        config = Config(
            task=chosen.parameters, agent=chosen.agent, posterior=posterior, learning=chosen.learning
        )
        run = Run(config=config, seed=chosen.seed, seeds=chosen.seeds, unused=unused)
        warn_of_inactive(run, base.learning)
        with joined(chosen.hosts) as group:
            if group.index:
                follow_run(run, chosen.options, group=group)
                return
            directory = train_run(run, chosen.options, group=group)
        if chosen.evaluate_snapshots:
            for path in evaluate_missing(directory, with_snapshots=True):
                print(f"evaluated: {path}")
    print(f"finished: {directory.path}")
    print(f"next: recurrent-laplace evaluate {directory.path}{task_flag(run.config.task)}")
