"""`monitor`: the belief of an agent while it acts, as a table and a page."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Literal

import jax
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes

from recurrent_laplace.cli.parsing import parse, peek, session
from recurrent_laplace.deploy import Monitor
from recurrent_laplace.deploy.recording import Episode, play_task
from recurrent_laplace.errors import check_size
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.models import Agent, PosteriorConfig, with_posterior
from recurrent_laplace.models.posterior import make_posterior


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Play an agent, print what its belief did in each episode, and write a page of it.

    The agent is a RecurrentPPO of Stable-Baselines3 (--sb3, with --env) or a run of ours (--run). A plain
    RNN gets a Laplace posterior; a run that has a posterior keeps it unless another is asked for.
    """

    sb3: Annotated[Path | None, tyro.conf.arg(metavar="ZIP")] = None
    """What `RecurrentPPO.save` wrote."""
    env: str | None = None
    """Gymnasium's name of the environment (with --sb3): CartPole-v1, or package.module:Name-v0."""
    network: Literal["actor", "critic", "shared"] = "actor"
    """Whose LSTM the belief is about (with --sb3)."""
    vec_normalize: Path | None = None
    """What `VecNormalize.save` wrote, if the agent was trained with it (with --sb3)."""
    trust: bool = False
    """Unpickle the normalisation in the ordinary way, which runs what is in it (with --sb3)."""
    run: Annotated[Path | None, tyro.conf.arg(metavar="RUN")] = None
    """Directory of a run of ours; the first seed's agent is played in test problems."""
    steps: int | None = None
    """Steps of an episode (with --run); as in training by default."""
    episodes: int = 5
    """How many episodes to play."""
    greedy: bool = False
    """Take the likeliest action instead of a draw."""
    seed: int = 0
    """Of environments and draws."""
    out: Path = Path("monitor.html")
    """File to write the page to."""
    posterior: OmitArgPrefixes[PosteriorConfig]


def main(argv: list[str]) -> None:
    """Play, print, and write."""
    with session():
        early = peek(argv, "run")
        posterior = PosteriorConfig(kind="laplace")
        if early.run is not None:
            own = RunDirectory.open(Path(early.run)).run.config.posterior
            posterior = posterior if own.kind == "point" else own
        chosen = parse(Watch, argv, verb="monitor", default=Watch(posterior=posterior))
        chosen.posterior.check()
        check_size("episodes", chosen.episodes)
        if (chosen.sb3 is None) == (chosen.run is None):
            raise ValueError("one agent must be named: --sb3 ZIP with --env, or --run RUN.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: no such folder, or it is one.")
        with Console(stderr=True).status(f"playing {chosen.episodes} episodes"):
            name, place, monitor, episodes = _play_run(chosen) if chosen.run else _play_sb3(chosen)
        Console().print(episode_table(episodes))
        from recurrent_laplace.report.monitor import write_monitor_page

        with Console(stderr=True).status("drawing"):
            command = shlex.join(["recurrent-laplace", "monitor", *argv])
            write_monitor_page(chosen.out, monitor, episodes, name=name, place=place, command=command)
    print(chosen.out)


PRINTED = ("steps", "return", "entropy", "kl", "value_stddev", "policy_disagreement", "policy_moved")
"""Columns of the printed table; the page has them all."""


def episode_table(episodes: list[Episode]) -> Table:
    """A row for each episode: its length and return, and the means of some readings."""
    rows = [episode.summary() for episode in episodes]
    names = [name for name in PRINTED if name in rows[0]]
    table = Table("episode", *(name.replace("_", " ") for name in names), title="means over steps")
    for column in table.columns[1:]:
        column.justify = "right"
    for number, row in enumerate(rows, 1):
        table.add_row(str(number), *(f"{row[name]:.4g}" for name in names))
    return table


Played = tuple[str, str, Monitor, list[Episode]]


def _play_run(chosen: Watch) -> Played:
    assert chosen.run is not None
    directory = RunDirectory.open(chosen.run)
    config = directory.run.config
    agent = load_model(directory)
    if not isinstance(agent, Agent):
        raise ValueError(f"{chosen.run} is a run of regression: monitor plays agents that act.")
    agent = with_posterior(agent, chosen.posterior, key=jax.random.key(chosen.seed))
    steps = config.learning.steps if chosen.steps is None else chosen.steps
    check_size("steps", steps)
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
        posterior=lambda memory: make_posterior(chosen.posterior, memory, key=jax.random.key(0)),
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
