"""`faithfulness`: beliefs of trained agents against the exact posterior."""

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

from recurrent_laplace.cli.display import unset
from recurrent_laplace.cli.parsing import OwnTask, load_own_task, note_version, parse, session
from recurrent_laplace.errors import check_seed
from recurrent_laplace.evaluation.faithfulness.rule import in_words, judge
from recurrent_laplace.evaluation.faithfulness.study import (
    FaithfulnessConfig,
    check_comparable,
    faithfulness,
    posteriors_of,
)
from recurrent_laplace.files import storage_errors, write_text
from recurrent_laplace.learning import make_train
from recurrent_laplace.models import Agent
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.runs.requirements import require_episodes_memory
from recurrent_laplace.runs.tables import write_table
from recurrent_laplace.tasks import AbstractControlTask

WIDTH = 80
"""Columns of the tables in the text file."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faithfulness(OwnTask):
    """Compare the beliefs of trained agents with the exact posterior and with those of untrained networks.

    A plain RNN gets every Laplace posterior; other runs keep their own. Every seed of a run is an
    agent; runs that differ only in the seed are pooled. The measures are listed in docs/metrics.md.
    """

    runs: Annotated[Positional[tuple[Path, ...]], unset("RUN...")]
    """Run directories, all on one task that has an exact belief and parameters: a gridworld, a bandit."""
    out: Path = Path("faithfulness")
    """Directory for the measures (parquet), the figure (PNG and SVG), and the tables with verdicts (text)."""
    config: Annotated[OmitArgPrefixes[FaithfulnessConfig], tyro.conf.arg(name="study")]


def main(argv: list[str]) -> None:
    """Run the command."""
    with session():
        load_own_task(argv)
        default = Faithfulness(runs=tyro.MISSING, config=FaithfulnessConfig())
        chosen = parse(Faithfulness, argv, verb="faithfulness", default=default)
        config = chosen.config
        config.check()
        check_seed(config.seed)
        directories = open_runs(chosen.runs)
        require_episodes_memory(directories[0].run, config.tasks, config.steps, "--tasks or --steps")
        with storage_errors("write", chosen.out):
            chosen.out.mkdir(parents=True, exist_ok=True)
        frame = measure(directories, config)
        # Imported late, since it loads Matplotlib.
        from recurrent_laplace.report.faithfulness import draw_faithfulness, tables
        from recurrent_laplace.report.style import save_figure

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
    """Print the tables, then the verdicts in words."""
    for table in tables:
        console.print(table, "")
    console.print(words, highlight=False, markup=False)


def open_runs(paths: tuple[Path, ...]) -> list[RunDirectory]:
    """Open the run directories, and check that they are comparable."""
    if not paths:
        raise ValueError("RUN must name at least one directory; got none.")
    directories = [RunDirectory.open(path) for path in paths]
    first = directories[0]
    for directory in directories:
        note_version(directory)
        task = directory.run.config.task
        if not isinstance(task, AbstractControlTask):
            raise ValueError(f"{directory.path} is a run of {task.name}: only control tasks are compared.")
        check_comparable(task)
        if task != first.run.config.task:
            raise ValueError(f"{directory.path} is of another task than {first.path}.")
    runs = [directory.run for directory in directories]
    seeds = [(run.configuration, run.seed + index) for run in runs for index in range(run.seeds)]
    if len(set(seeds)) < len(seeds):
        raise ValueError("RUN must name every agent once; got two with the same configuration and seed.")
    return directories


def measure(directories: list[RunDirectory], config: FaithfulnessConfig) -> pl.DataFrame:
    """Measure all agents: a row per agent, network and posterior."""
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
        agents = [(run, index, agent) for run, index, agent in agents if isinstance(agent, Agent)]
        progress.update(bar, total=2 * sum(len(posteriors_of(agent)) for *_, agent in agents))
        for run, index, agent in agents:
            method, seed = names[run.configuration], run.seed + index
            untrained = make_train(run.config).init(jax.random.key(10_000 + seed)).model
            measures = faithfulness(
                agent,
                untrained,  # pyright: ignore[reportArgumentType]
                run.config.task,  # pyright: ignore[reportArgumentType]
                run.config.learning,
                config,
                progress=lambda text, begin=f"{method}, seed {seed}": say(f"{begin}, {text}"),
            )
            rows += [{"method": method, "agent": f"{run.id} {seed}", "seed": seed, **row} for row in measures]
    return pl.DataFrame(rows, infer_schema_length=None).sort("method", maintain_order=True)


def method_names(runs: list[Run]) -> dict[str, str]:
    """Method names by configuration; equal names are distinguished by the hash of the configuration."""
    names: dict[str, str] = {}
    for run in runs:
        posterior = run.config.posterior
        is_posthoc = run.parent is not None and run.config.learning.updates == 0
        names[run.configuration] = posterior.posthoc_label if is_posthoc else posterior.label
    repeated = {name for name in names.values() if list(names.values()).count(name) > 1}
    return {key: f"{name} {key[:6]}" if name in repeated else name for key, name in names.items()}
