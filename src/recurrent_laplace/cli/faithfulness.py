"""`faithfulness`: agents' beliefs against the exact one."""

import dataclasses
import io
import sys
from pathlib import Path
from typing import Annotated

import jax
import polars as pl
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, session
from recurrent_laplace.deploy.faithfulness import FaithfulnessConfig, faithfulness, posteriors_of
from recurrent_laplace.experiments.config import Run
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.files import StorageError, write_text
from recurrent_laplace.learning import make_train
from recurrent_laplace.models import Agent
from recurrent_laplace.tasks import AbstractBandit, Gridworld

WIDTH = 80
"""Columns of the tables in the file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faithfulness:
    """Compare the beliefs of trained agents with the exact ones, and with those of untrained networks.

    A plain RNN gets every Laplace posterior; a VRNN or Laplace-VRNN keeps its own. The exact belief is
    decoded from the belief's mean on held-out tasks; entropies are compared over tasks at each step, so that
    time itself does not count; intervals of the decoded problem are checked for coverage; decoded beliefs
    should not drift; and each of the two, agent and exact belief, is put into a state made of the other's.
    Every seed of a run is an agent, and runs that differ in nothing but the seed are taken together.
    """

    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN...")]
    """Directories of runs on one gridworld or bandit."""
    out: Path = Path("faithfulness")
    """Folder for the numbers (parquet), the figure (PNG and SVG), and the tables with the verdicts (text)."""
    config: OmitArgPrefixes[FaithfulnessConfig]


def main(argv: list[str]) -> None:
    """Measure, judge, print, and write."""
    with session():
        default = Faithfulness(runs=tyro.MISSING, config=FaithfulnessConfig())
        chosen = parse(Faithfulness, argv, verb="faithfulness", default=default)
        chosen.config.check()
        directories = open_runs(chosen.runs)
        try:
            chosen.out.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise StorageError(f"cannot write {chosen.out}: {problem.strerror}.") from problem
        frame = measure(directories, chosen.config)
        # Matplotlib is loaded when there is something to draw.
        from recurrent_laplace.report.faithfulness import draw_faithfulness, in_words, judge, tables
        from recurrent_laplace.report.tasks import save_figure

        write_table(chosen.out / "faithfulness.parquet", frame)
        drawing = draw_faithfulness(frame)
        for suffix in ("png", "svg"):
            save_figure(drawing, chosen.out / f"faithfulness.{suffix}")
        words = in_words(judge(frame))
        text = io.StringIO()
        show(Console(width=WIDTH, file=text), tables(frame), words)
        write_text(chosen.out / "faithfulness.txt", text.getvalue())
        show(Console(), tables(frame), words)
    print(f"written: {chosen.out}")


def show(console: Console, tables: list[Table], words: str) -> None:
    """Tables, then words."""
    for table in tables:
        console.print(table, "")
    console.print(words, highlight=False, markup=False)


def open_runs(paths: tuple[Path, ...]) -> list[RunDirectory]:
    """Runs that can be compared."""
    if not paths:
        raise ValueError("RUN must name at least one directory; got none.")
    directories = [RunDirectory.open(path) for path in paths]
    first = directories[0]
    for directory in directories:
        task = directory.run.config.task
        if not isinstance(task, Gridworld | AbstractBandit):
            raise ValueError(
                f"{directory.path} is a run of {task.name}: "
                "only agents on gridworlds and bandits are compared."
            )
        if task != first.run.config.task:
            raise ValueError(f"{directory.path} is of another task than {first.path}.")
    seeds = [
        (one.run.configuration, one.run.seed + index) for one in directories for index in range(one.run.seeds)
    ]
    if len(set(seeds)) < len(seeds):
        raise ValueError("RUN must name every agent once; got two with the same configuration and seed.")
    return directories


def measure(directories: list[RunDirectory], config: FaithfulnessConfig) -> pl.DataFrame:
    """A row for each agent, network and posterior."""
    names = method_names([directory.run for directory in directories])
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("loading", total=None)

        def say(text: str) -> None:
            progress.update(bar, advance=1, description=text)
            if not console.is_terminal:
                print(text, file=sys.stderr, flush=True)

        agents = [
            (directory.run, index, load_model(directory, seed_index=index))
            for directory in directories
            for index in range(directory.run.seeds)
        ]
        played = [(run, index, agent) for run, index, agent in agents if isinstance(agent, Agent)]
        progress.update(bar, total=2 * sum(len(posteriors_of(agent)) for *_, agent in played))
        for run, index, agent in played:
            method, seed = names[run.configuration], run.seed + index
            untrained = make_train(run.config).init(jax.random.key(10_000 + seed)).model
            done = faithfulness(
                agent,
                untrained,  # pyright: ignore[reportArgumentType]
                run.config.task,  # pyright: ignore[reportArgumentType]
                run.config.learning,
                config,
                say=lambda text, begin=f"{method}, seed {seed}": say(f"{begin}, {text}"),
            )
            rows += [{"method": method, "agent": f"{run.id} {seed}", "seed": seed, **row} for row in done]
    return pl.DataFrame(rows, infer_schema_length=None).sort("method", maintain_order=True)


def method_names(runs: list[Run]) -> dict[str, str]:
    """By configuration: what was trained; where two have the same name, their hashes tell them apart."""
    names: dict[str, str] = {}
    for run in runs:
        posterior = run.config.posterior
        is_posthoc = run.parent is not None and run.config.learning.updates == 0
        accumulate = {"precision": ""}.get(
            posterior.accumulate, f"{posterior.accumulate.replace('_', ' ')}, "
        )
        names[run.configuration] = {
            "point": "RNN",
            "variational": f"VRNN, {posterior.covariance}",
            "laplace": f"Laplace{' post hoc' if is_posthoc else '-VRNN'}, {accumulate}{posterior.covariance}",
        }[posterior.kind]
    repeated = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {key: f"{name} {key[:6]}" if name in repeated else name for key, name in names.items()}
