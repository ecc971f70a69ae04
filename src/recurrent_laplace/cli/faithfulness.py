"""`faithfulness`: an agent's belief against the exact one."""

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import polars as pl
import tyro
from rich.console import Console
from rich.table import Table
from tyro.conf import OmitArgPrefixes, Positional

from recurrent_laplace.cli.parsing import parse, session
from recurrent_laplace.deploy.faithfulness import FaithfulnessConfig, faithfulness, table
from recurrent_laplace.errors import check_size
from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.learning import make_train
from recurrent_laplace.models import Agent

NAMES = {
    "linear_r2": "linear R²",
    "mlp_kl": "MLP, KL",
    "uninformed_kl": "no agent, KL",
    "rank_agreement": "rank agreement",
    "coverage_50": "covers 50%",
    "coverage_90": "covers 90%",
    "drift_r2": "drift R²",
    "kl_late_over_early": "KL, late / early",
    "policy_kl_from_exact": "policy from exact, KL",
}
"""Columns of the printed table."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Faithfulness:
    """Compare the belief of a trained agent with the exact one, and with an untrained network's.

    The exact belief is decoded from the belief's mean on held-out tasks; entropies are compared over tasks
    at each step, so that time itself does not count; intervals of the decoded problem are checked for
    coverage; decoded beliefs should not drift; and the policy is asked what it does on features that are
    made of the exact belief. Every seed of the run is an agent.
    """

    run: Annotated[Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Directory of the run."""
    out: Path | None = None
    """File for the table, as parquet; in the run's directory by default."""
    config: OmitArgPrefixes[FaithfulnessConfig]


def main(argv: list[str]) -> None:
    """Measure, print, and write."""
    with session():
        default = Faithfulness(run=tyro.MISSING, config=FaithfulnessConfig())
        chosen = parse(Faithfulness, argv, verb="faithfulness", default=default)
        for name in ("tasks", "steps"):
            check_size(name, getattr(chosen.config, name))
        directory = RunDirectory.open(chosen.run)
        config = directory.run.config
        train = make_train(config)
        rows = []
        with Console(stderr=True).status("playing") as status:
            for index in range(directory.run.seeds):
                agent = load_model(directory, seed_index=index)
                untrained = train.init(jax.random.key(10_000 + index)).model
                if not isinstance(agent, Agent):
                    raise ValueError(
                        f"{chosen.run} is a run of {config.task.name}: only agents that act are compared."
                    )
                rows.append(
                    faithfulness(
                        agent,
                        untrained,
                        config.task,  # pyright: ignore[reportArgumentType]
                        config.learning,
                        chosen.config,
                        say=lambda text, index=index: status.update(f"seed {index + 1}: {text}"),
                    )
                )
        frame = table(rows)
        out = directory.path / "faithfulness.parquet" if chosen.out is None else chosen.out
        write_table(out, frame)
    Console().print(printed(frame))
    print(f"written: {out}")


def printed(frame: pl.DataFrame) -> Table:
    """Means over seeds, with half of the 99% interval where there are several."""
    shown = Table(
        "network", "posterior", *NAMES.values(), title="belief against the exact belief, held-out tasks"
    )
    for column in shown.columns[2:]:
        column.justify = "right"
    for (network, posterior), group in frame.group_by("network", "posterior", maintain_order=True):
        cells = [mean_interval(group[name].to_numpy()) for name in NAMES]
        texts = [
            f"{cell.mean:.2f}" + ("" if np.isnan(cell.low) else f" ± {cell.mean - cell.low:.2f}")
            for cell in cells
        ]
        shown.add_row(str(network), str(posterior), *texts)
    return shown
