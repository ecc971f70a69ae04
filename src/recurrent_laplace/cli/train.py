"""`train`: a run from nothing, or from where it stands."""

import dataclasses
from pathlib import Path
from typing import Literal

from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.parsing import default_config, parse, peek, session, with_task
from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.presets import PRESETS
from recurrent_laplace.experiments.processes import Hosts, joined
from recurrent_laplace.experiments.runner import RunOptions, follow_run, train_run
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.models import AgentConfig, PosteriorConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Train:
    """Train an agent on a task, in a run directory named by its configuration.

    Defaults come from the preset, then from --config, then from the flags given here.
    """

    task: str
    """Name of the task; `recurrent-laplace tasks` lists them."""
    preset: Literal["smoke", "small", "laptop", "paper"]
    """Where the defaults come from: seconds, a minute, minutes on two cores, or the paper's numbers."""
    config: Path | None
    """A TOML file with the sections task, agent, posterior, learning; a run's config.toml is one."""
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds, in one program: seed, seed + 1, ..."""
    options: OmitArgPrefixes[RunOptions]
    hosts: OmitArgPrefixes[Hosts]
    agent: OmitArgPrefixes[AgentConfig]
    posterior: OmitArgPrefixes[PosteriorConfig]
    learning: OmitArgPrefixes[LearningConfig]


def main(argv: list[str]) -> None:
    """Train."""
    with session():
        early = peek(argv, "task", "preset", "config", "posterior")
        preset = early.preset if early.preset in PRESETS else "laptop"
        file = None if early.config is None else Path(early.config)
        base = default_config(preset, file, early.task, early.posterior)
        kind = with_task(Train, type(base.task))
        default = kind(
            task=base.task.name,
            preset=preset,
            config=file,
            options=RunOptions(),
            hosts=Hosts(),
            parameters=base.task,
            agent=base.agent,
            posterior=base.posterior,
            learning=base.learning,
        )
        chosen = parse(kind, argv, verb="train", default=default)
        config = Config(
            task=chosen.parameters, agent=chosen.agent, posterior=chosen.posterior, learning=chosen.learning
        )
        run = Run(config=config, seed=chosen.seed, seeds=chosen.seeds)
        with joined(chosen.hosts) as group:
            if group.index:
                follow_run(run, chosen.options, group=group)
                return
            directory = train_run(run, chosen.options, group=group)
    print(f"finished: {directory.path}")
    print(f"next: recurrent-laplace evaluate {directory.path}")
