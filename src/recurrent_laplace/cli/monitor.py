"""`monitor`: readings of an agent's belief while it acts, as a table and a page."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
from rich.console import Console
from rich.table import Table

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.early import peek
from recurrent_laplace.cli.parsing import OwnTask, load_own_task, note_version, parse, session
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, posterior_flags, with_posteriors
from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.play import play_task
from recurrent_laplace.models import Agent, LaplaceConfig, with_posterior
from recurrent_laplace.monitoring import Monitor
from recurrent_laplace.monitoring.episode import Episode, format_number
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.runs.requirements import require_episodes_memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch(OwnTask):
    """Play episodes with an agent, print summaries of its belief, and write a page.

    The agent is a RecurrentPPO of Stable-Baselines3 (--sb3, with --env) or a run directory (--run). A plain
    RNN gets a Laplace posterior; a run with a posterior keeps it unless the options select another.
    """

    sb3: Annotated[Path | None, unset("ZIP")] = None
    """File written by `RecurrentPPO.save`."""
    env: Annotated[str | None, unset("ID")] = None
    """Gymnasium id of the environment (with --sb3): CartPole-v1, or package.module:Name-v0."""
    network: Literal["actor", "critic", "shared"] = "actor"
    """Network whose LSTM gets the posterior (with --sb3)."""
    vec_normalize: Annotated[Path | None, unset("PKL")] = None
    """File written by `VecNormalize.save`, if the agent was trained with it (with --sb3)."""
    trust: bool = False
    """Unpickle the normalisation without restrictions, which executes code in the file (with --sb3)."""
    run: Annotated[Path | None, unset("RUN")] = None
    """Run directory; the agent of the first seed is played on test problems."""
    steps: Annotated[int | None, unset("INT")] = None
    """Steps per episode (with --run); as in training by default."""
    episodes: int = 5
    """Number of episodes."""
    greedy: bool = False
    """Take the most probable action instead of sampling."""
    seed: int = 0
    """Seed of environments and action samples."""
    out: Path = Path("monitor.html")
    """HTML file to write."""
    posterior: Any


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        load_own_task(argv)
        early = peek(argv, "run")
        flags = posterior_flags(LaplaceConfig())
        if early.run is not None:
            run = RunDirectory.open(Path(early.run)).run
            flags = flags if run.config.posterior.family is None else flags_of(run)
        kind = with_posteriors(Watch)
        chosen = parse(kind, argv, verb="monitor", default=kind(posterior=flags))
        chosen = dataclasses.replace(chosen, posterior=chosen_posterior(chosen.posterior)[0])
        chosen.posterior.check()
        check_size("episodes", chosen.episodes)
        if (chosen.sb3 is None) == (chosen.run is None):
            raise ValueError("exactly one agent must be named: --sb3 ZIP with --env, or --run RUN.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: not a file in an existing folder.")
        with Console(stderr=True).status(f"playing {chosen.episodes} episodes"):
            name, environment, monitor, episodes = _play_run(chosen) if chosen.run else _play_sb3(chosen)
        Console().print(episode_table(episodes))
        from recurrent_laplace.report.monitor import write_monitor_page

        with Console(stderr=True).status("drawing"):
            command = shlex.join(["recurrent-laplace", "monitor", *argv])
            write_monitor_page(
                chosen.out, monitor, episodes, name=name, environment=environment, command=command
            )
    print(chosen.out)


PRINTED = ("steps", "return", "entropy", "kl", "value_stddev", "policy_disagreement", "policy_moved")
"""Columns of the printed table; the page has all of them."""


def episode_table(episodes: list[Episode]) -> Table:
    """Summary table: length, return and mean readings of each episode."""
    rows = [episode.summary() for episode in episodes]
    names = [name for name in PRINTED if name in rows[0]]
    table = Table("episode", *(name.replace("_", " ") for name in names), title="means over steps")
    for column in table.columns[1:]:
        column.justify = "right"
    for number, row in enumerate(rows, 1):
        table.add_row(str(number), *(format_number(row[name]) for name in names))
    return table


Played = tuple[str, str, Monitor, list[Episode]]


def _play_run(chosen: Watch) -> Played:
    assert chosen.run is not None
    directory = RunDirectory.open(chosen.run)
    note_version(directory)
    config = directory.run.config
    agent = load_model(directory)
    if not isinstance(agent, Agent):
        raise ValueError(f"{chosen.run} is a run of regression: monitor needs an agent of a control task.")
    agent = with_posterior(agent, chosen.posterior, key=jax.random.key(chosen.seed))
    steps = config.learning.steps if chosen.steps is None else chosen.steps
    check_size("steps", steps)
    require_episodes_memory(directory.run, chosen.episodes, steps, "--episodes or --steps")
    monitor, episodes = play_task(
        agent,
        config.task,  # pyright: ignore[reportArgumentType]
        config.learning,
        episodes=chosen.episodes,
        steps=steps,
        greedy=chosen.greedy,
        key=jax.random.key(chosen.seed),
    )
    return directory.run.id, f"test problems of {config.task.name}", monitor, episodes


def _play_sb3(chosen: Watch) -> Played:
    assert chosen.sb3 is not None
    if chosen.env is None:
        raise ValueError("--env must name the environment that --sb3 was trained in.")
    from recurrent_laplace.interop import sb3
    from recurrent_laplace.interop.play import make_env, play_gymnasium

    agent = sb3.load(
        chosen.sb3,
        network=chosen.network,
        vec_normalize=chosen.vec_normalize,
        posterior=lambda memory: chosen.posterior.build(memory, key=jax.random.key(0)),
        trust=chosen.trust,
    )
    env = make_env(chosen.env)
    try:
        episodes = play_gymnasium(
            agent, env, episodes=chosen.episodes, seed=chosen.seed, greedy=chosen.greedy
        )
    finally:
        env.close()
    return chosen.sb3.name, chosen.env, agent.monitor, episodes
