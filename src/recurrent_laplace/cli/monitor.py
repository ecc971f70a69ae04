"""`monitor`: readings of an agent's belief while it acts, as a table and a page."""

import contextlib
import dataclasses
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
from rich.console import Console
from rich.table import Table
from rich.text import Text

from recurrent_laplace.cli import fail
from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.early import peek
from recurrent_laplace.cli.parsing import parse, session
from recurrent_laplace.cli.posteriors import chosen_posterior, flags_of, posterior_flags, with_posteriors
from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.play import play_task, record_task
from recurrent_laplace.interop._optional import MissingPackageError
from recurrent_laplace.models import Agent, LaplaceConfig, with_posterior
from recurrent_laplace.monitoring import Monitor, PredictorFit, Recording, fit_predictor
from recurrent_laplace.monitoring.episode import Episode, format_number
from recurrent_laplace.monitoring.prediction import FEWEST_EPISODES
from recurrent_laplace.monitoring.verdict import judge
from recurrent_laplace.posterior import AbstractPosterior
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.runs.requirements import require_episodes_memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """Play episodes with an agent, print summaries of its belief, and write a page.

    The agent is a RecurrentPPO of Stable-Baselines3 (--sb3, with --env) or a run directory (--run). Its
    belief learns to predict rewards and observations on recorded episodes, and what these predictions are
    worth is printed. A posterior that the options select is monitored as it is, and so is that of a run that
    has one.
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
    fit_episodes: int = 32
    """Number of episodes that are played first, to fit the predictions on."""
    forecast: bool = True
    """Predict rewards and observations; without, the belief has the curvature of the paper."""
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
        early = peek(argv, "run", "posterior")
        flags = posterior_flags(LaplaceConfig())
        has_own = early.posterior is not None
        if early.run is not None:
            run = RunDirectory.open(Path(early.run)).run
            has_own = has_own or run.config.posterior.family is not None
            flags = flags if run.config.posterior.family is None else flags_of(run)
        kind = with_posteriors(Watch)
        chosen = parse(kind, argv, verb="monitor", default=kind(posterior=flags))
        has_own = has_own or chosen.posterior != flags
        chosen = dataclasses.replace(chosen, posterior=chosen_posterior(chosen.posterior)[0])
        chosen.posterior.check()
        check_size("episodes", chosen.episodes)
        check_size("fit_episodes", chosen.fit_episodes, least=FEWEST_EPISODES)
        if (chosen.sb3 is None) == (chosen.run is None):
            raise ValueError("exactly one agent must be named: --sb3 ZIP with --env, or --run RUN.")
        if not chosen.out.parent.is_dir() or chosen.out.is_dir():
            raise ValueError(f"the page cannot be written to {chosen.out}: not a file in an existing folder.")
        agent = RunAgent(chosen) if chosen.run else SavedAgent(chosen)
        with Console(stderr=True).status("") as status, contextlib.closing(agent):
            fit = _fit(agent, status.update) if chosen.forecast and not has_own else None
            posterior = None if fit is None else fit.posterior
            status.update(f"playing {chosen.episodes} episodes")
            monitor, episodes = agent.play(posterior, status.update)
        if fit is not None:
            Console(highlight=False).print(verdict_text(fit))
        Console().print(episode_table(episodes))
        from recurrent_laplace.report.monitor import write_monitor_page

        with Console(stderr=True).status("drawing"):
            command = shlex.join(["recurrent-laplace", "monitor", *argv])
            write_monitor_page(
                chosen.out,
                monitor,
                episodes,
                name=agent.name,
                environment=agent.environment,
                command=command,
                fit=fit,
            )
    print(chosen.out)


def _fit(agent: "RunAgent | SavedAgent", update: Callable[[str], None]) -> PredictorFit | None:
    """Fit the predictions of an agent on episodes of it; None, with a message, if they cannot be fitted."""
    recorded = agent.record(update)
    update(f"fitting predictions to {len(recorded)} episodes")
    try:
        return fit_predictor(agent.posterior, recorded, **agent.fit_options)
    except ValueError as problem:
        Console(stderr=True, highlight=False).print(f"recurrent-laplace: no forecasts, since {problem}")
        return None


def verdict_text(fit: PredictorFit) -> Text:
    """What the belief is worth, for the terminal."""
    word = judge(fit.explained)
    style = "bold green" if word == "informative" else "bold yellow"
    return Text.assemble((f"The belief is {word}. ", style), str(fit).replace("\n", " "))


PRINTED = (
    "steps",
    "return",
    "surprise",
    "entropy",
    "kl",
    "value_stddev",
    "policy_disagreement",
    "policy_moved",
)
"""Columns of the printed table; the page has all of them."""


def episode_table(episodes: list[Episode]) -> Table:
    """Summary table: length, return and mean readings of each episode."""
    rows = [episode.summary() for episode in episodes]
    from recurrent_laplace.report.monitor import leading_readings

    names = leading_readings(PRINTED, rows[0])
    table = Table("episode", *(name.replace("_", " ") for name in names), title="means over steps")
    for column in table.columns[1:]:
        column.justify = "right"
    for number, row in enumerate(rows, 1):
        table.add_row(str(number), *(format_number(row[name]) for name in names))
    return table


class RunAgent:
    """Agent of a run directory, on problems of its task."""

    def __init__(self, chosen: Any):
        directory = RunDirectory.open(chosen.run)
        self._config = directory.run.config
        agent = load_model(directory)
        if not isinstance(agent, Agent):
            raise ValueError(
                f"{chosen.run} is a run of regression: monitor needs an agent of a control task."
            )
        self._agent, self._chosen = agent, chosen
        self._steps = self._config.learning.steps if chosen.steps is None else chosen.steps
        check_size("steps", self._steps)
        most = max(chosen.episodes, chosen.fit_episodes)
        require_episodes_memory(directory.run, most, self._steps, "--episodes, --fit-episodes or --steps")
        task: Any = self._config.task
        self._task = task
        self.posterior = agent.posterior
        self.fit_options: dict[str, Any] = {"likelihoods": task.targets(), "actions": task.actions}
        self.name, self.environment = directory.run.id, f"test problems of {task.name}"

    def record(self, update: Callable[[str], None]) -> list[Recording]:
        """Recordings to fit predictions on."""
        count = self._chosen.fit_episodes
        update(f"recording {count} episodes")
        key = jax.random.fold_in(jax.random.key(self._chosen.seed), 1)
        return record_task(
            self._agent, self._task, self._config.learning, episodes=count, steps=self._steps, key=key
        )

    def play(
        self, posterior: AbstractPosterior | None, update: Callable[[str], None]
    ) -> tuple[Monitor, list[Episode]]:
        """Monitored episodes, with the posterior of the options if none is given."""
        del update
        agent, key = self._agent, jax.random.key(self._chosen.seed)
        if posterior is None:
            agent = with_posterior(agent, self._chosen.posterior, key=key)
        return play_task(
            agent,
            self._task,
            self._config.learning,
            episodes=self._chosen.episodes,
            steps=self._steps,
            greedy=self._chosen.greedy,
            posterior=posterior,
            key=key,
        )

    def close(self) -> None:
        """Nothing to close."""


class SavedAgent:
    """Agent of Stable-Baselines3 in an environment of Gymnasium."""

    def __init__(self, chosen: Any):
        if chosen.env is None:
            raise ValueError("--env must name the environment that --sb3 was trained in.")
        from recurrent_laplace.interop import sb3

        try:
            from recurrent_laplace.interop.play import make_env, play_gymnasium
        except MissingPackageError as problem:
            fail(problem)
        self._play, self._chosen = play_gymnasium, chosen
        self._agent = sb3.load(
            chosen.sb3,
            network=chosen.network,
            vec_normalize=chosen.vec_normalize,
            posterior=lambda memory: chosen.posterior.build(memory, key=jax.random.key(0)),
            trust=chosen.trust,
        )
        self._env = make_env(chosen.env)
        self.posterior = self._agent.posterior
        self.fit_options: dict[str, Any] = {"actions": self._agent.actions}
        self.name, self.environment = chosen.sb3.name, chosen.env

    def record(self, update: Callable[[str], None]) -> list[Episode]:
        """Episodes to fit predictions on, with other seeds than those to monitor."""
        return self._episodes(self._agent, "recording", self._chosen.fit_episodes, 1, update)

    def play(
        self, posterior: AbstractPosterior | None, update: Callable[[str], None]
    ) -> tuple[Monitor, list[Episode]]:
        """Monitored episodes, with the posterior of the options if none is given."""
        agent = self._agent if posterior is None else self._agent.with_posterior(posterior)
        return agent.monitor, self._episodes(agent, "playing", self._chosen.episodes, 0, update)

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    def _episodes(
        self, agent: Any, doing: str, count: int, offset: int, update: Callable[[str], None]
    ) -> list[Episode]:
        update(f"{doing} {count} episodes")
        return self._play(
            agent,
            self._env,
            episodes=count,
            seed=self._chosen.seed + offset,
            greedy=self._chosen.greedy,
            progress=lambda done: update(f"{doing} {count} episodes: {done} finished"),
        )
