"""Post-hoc runs whose posterior was calibrated: its scales are fitted, its network is the parent's."""

import dataclasses

import jax
import polars as pl
from jax.tree_util import Partial
from rich.table import Table

from recurrent_laplace.evaluation.calibration import Case, calibrate_together, is_at_an_end
from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.evaluation.validation import (
    LEVELS,
    LOSSES,
    CalibrationConfig,
    Validation,
    judge_posterior,
    make_validation,
)
from recurrent_laplace.experiments.config import Calibrated, Run
from recurrent_laplace.experiments.derive import carry_out, derived_run
from recurrent_laplace.experiments.models import load_state, per_seed
from recurrent_laplace.experiments.runner import RunOptions, check_free
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.experiments.tables import write_table
from recurrent_laplace.models import Agent, PosteriorConfig, Regressor, with_posterior
from recurrent_laplace.posterior import AbstractPosterior, LaplacePosterior

SCHEMA = {
    "run": pl.String,
    "configuration": pl.String,
    "seed": pl.Int64,
    "task": pl.Int64,
    "metric": pl.String,
    "before": pl.Float64,
    "after": pl.Float64,
}


def derive_calibrated(
    parent: RunDirectory,
    posterior: PosteriorConfig,
    config: CalibrationConfig,
    *,
    snapshot: float,
    options: RunOptions,
) -> tuple[RunDirectory, pl.DataFrame]:
    """Put a posterior with fitted scales on a run's weights, and judge it on tasks it was not fitted on.

    The table, a row for each task and metric, is stored in the new run's directory. Scales that an earlier
    call has found are kept.
    """
    config.check(parent.run.config.task, posterior)
    learning = dataclasses.replace(parent.run.config.learning, updates=0)
    asked = derived_run(parent, posterior, learning, snapshot=snapshot)
    before = {name: getattr(posterior, name) for name in config.chosen(posterior)}
    asked = dataclasses.replace(asked, calibration=Calibrated(tasks=config.tasks, by=config.by, **before))
    asked.check()
    there = RunDirectory.at(options.out, asked)
    check_free(there, options)
    assert asked.parent is not None
    weights = per_seed(load_state(parent, asked.parent.snapshot).model, parent.run)
    models = [_under(model, posterior) for model in weights]
    validations = [
        make_validation(model, parent.run.config.task, learning, tasks=config.tasks) for model in models
    ]
    run = there.run
    if not (there.path / "config.toml").exists():
        run = _fitted(asked, models, [fitting for fitting, _ in validations])
    directory = carry_out(run, parent, options)
    frame = _judged(directory.run, models, [judging for _, judging in validations])
    write_table(directory.path / "calibration.parquet", frame)
    return directory, frame


def calibration_tables(run: Run, frame: pl.DataFrame) -> list[Table]:
    """The scales, and how well they do, before and after."""
    assert run.calibration is not None
    scales = Table(
        "scale", "before", "after", title=f"fitted by {run.calibration.by} on {run.calibration.tasks} tasks"
    )
    for name, value in run.calibration.before.items():
        found = getattr(run.config.posterior, name)
        mark = " (end of the range)" if is_at_an_end(name, found) else ""
        scales.add_row(name, f"{value:.4g}", f"{found:.4g}{mark}")
    judged = Table(
        "",
        "before",
        "after",
        "change",
        title=f"on {run.calibration.tasks} other tasks: mean ± half of the 99% interval over tasks",
    )
    # Tasks are the units: the seeds of a run share them.
    by_task = frame.group_by("metric", "task").agg(pl.col("before", "after").mean())
    names = {f"coverage_{level * 100:.0f}": f"coverage of {level * 100:.0f}%" for level in LEVELS}
    for metric, name in {**names, "nll": "NLL in nats"}.items():
        rows = by_task.filter(pl.col("metric") == metric)
        columns = (rows["before"], rows["after"], rows["after"] - rows["before"])
        judged.add_row(name, *(_cell(mean_interval(column.to_numpy())) for column in columns))
    for table in (scales, judged):
        for column in table.columns[1:]:
            column.justify = "right"
    return [scales, judged]


def _under(model: Agent | Regressor, posterior: PosteriorConfig) -> Agent | Regressor:
    # A Laplace posterior has no weights of its own to draw.
    return with_posterior(model, posterior, key=jax.random.key(0))


def _fitted(asked: Run, models: list[Agent | Regressor], validations: list[Validation]) -> Run:
    """The run with the best scales, the same for all of its seeds."""
    assert asked.calibration is not None
    fit, loss = tuple(asked.calibration.before), LOSSES[asked.calibration.by]
    cases = [
        Case(_laplace(model.posterior), validation.inputs, Partial(loss, validation.judge))
        for model, validation in zip(models, validations, strict=True)
    ]
    best = calibrate_together(cases, fit=fit).posterior
    scales = {name: getattr(best, name) for name in fit}
    posterior = dataclasses.replace(asked.config.posterior, **scales)
    return dataclasses.replace(asked, config=dataclasses.replace(asked.config, posterior=posterior))


def _laplace(posterior: AbstractPosterior) -> LaplacePosterior:
    assert isinstance(posterior, LaplacePosterior)
    return posterior


def _judged(run: Run, models: list[Agent | Regressor], validations: list[Validation]) -> pl.DataFrame:
    frames = []
    for index, (model, validation) in enumerate(zip(models, validations, strict=True)):
        before = judge_posterior(model.posterior, validation)
        after = judge_posterior(_under(model, run.config.posterior).posterior, validation)
        frames += [
            pl.DataFrame(
                {
                    "run": run.id,
                    "configuration": run.configuration,
                    "seed": run.seed + index,
                    "task": range(len(before[metric])),
                    "metric": metric,
                    "before": before[metric],
                    "after": after[metric],
                },
                schema=SCHEMA,
            )
            for metric in before
        ]
    return pl.concat(frames)


def _cell(interval: Interval) -> str:
    return f"{interval.mean:.3g} ± {interval.high - interval.mean:.2g}"
