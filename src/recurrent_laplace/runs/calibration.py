"""Post-hoc runs with a calibrated posterior: fitted scales on the weights of the parent run."""

import dataclasses

import jax
import polars as pl
from jax.tree_util import Partial
from rich.table import Table

from recurrent_laplace.evaluation.calibration import (
    LEVELS,
    LOSSES,
    CalibrationConfig,
    Validation,
    judge_posterior,
    make_validation,
)
from recurrent_laplace.evaluation.statistics import Interval, mean_interval
from recurrent_laplace.models import AbstractPosteriorConfig, Agent, Regressor, with_posterior
from recurrent_laplace.posterior import AbstractPosterior, AbstractScaledPosterior
from recurrent_laplace.runs.config import Calibrated, Run
from recurrent_laplace.runs.derive import derived_run, run_derived
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_weights, per_seed
from recurrent_laplace.runs.runner import RunOptions, check_free
from recurrent_laplace.runs.tables import write_table
from recurrent_laplace.scoring.calibration import Case, calibrate_together, is_at_bound

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
    posterior: AbstractPosteriorConfig,
    config: CalibrationConfig,
    *,
    snapshot: float,
    options: RunOptions,
) -> tuple[RunDirectory, pl.DataFrame]:
    """Derive a run with a calibrated posterior, and score it on tasks that it was not fitted on.

    Returns the new run directory and the table stored in it, with a row for each task and metric. Scales that
    were fitted by an earlier call are kept.
    """
    config.check(parent.run.config.task, posterior)
    learning = dataclasses.replace(parent.run.config.learning, updates=0)
    run = derived_run(parent, posterior, learning, snapshot=snapshot)
    before = {name: getattr(posterior, name) for name in config.chosen(posterior)}
    run = dataclasses.replace(run, calibration=Calibrated(tasks=config.tasks, by=config.by, **before))
    run.check()
    directory = RunDirectory.at(options.out, run)
    check_free(directory, options)
    assert run.parent is not None
    weights = per_seed(load_weights(parent, run.parent.snapshot), parent.run)
    models = [_replace_posterior(model, posterior) for model in weights]
    validations = [
        make_validation(model, parent.run.config.task, learning, tasks=config.tasks) for model in models
    ]
    if (directory.path / "config.toml").exists():
        run = directory.run
    else:
        run = _fit_scales(run, models, [fitting for fitting, _ in validations])
    directory = run_derived(run, parent, options)
    frame = _score(directory.run, models, [scoring for _, scoring in validations])
    write_table(directory.path / "calibration.parquet", frame)
    return directory, frame


def calibration_tables(run: Run, frame: pl.DataFrame) -> list[Table]:
    """Tables of the scales and of their scores, before and after the fit."""
    assert run.calibration is not None
    scales = Table(
        "scale", "before", "after", title=f"fitted by {run.calibration.by} on {run.calibration.tasks} tasks"
    )
    for name, value in run.calibration.before.items():
        fitted = getattr(run.config.posterior, name)
        mark = " (end of the range)" if is_at_bound(name, fitted) else ""
        scales.add_row(name, f"{value:.4g}", f"{fitted:.4g}{mark}")
    scores = Table(
        "",
        "before",
        "after",
        "change",
        title=f"on {run.calibration.tasks} other tasks: mean ± half of the 99% interval over tasks",
    )
    # Intervals are over tasks: the seeds of a run share them.
    by_task = frame.group_by("metric", "task").agg(pl.col("before", "after").mean())
    names = {f"coverage_{level * 100:.0f}": f"coverage of {level * 100:.0f}%" for level in LEVELS}
    for metric, name in {**names, "nll": "NLL in nats"}.items():
        rows = by_task.filter(pl.col("metric") == metric)
        columns = (rows["before"], rows["after"], rows["after"] - rows["before"])
        scores.add_row(name, *(_cell(mean_interval(column.to_numpy())) for column in columns))
    for table in (scales, scores):
        for column in table.columns[1:]:
            column.justify = "right"
    return [scales, scores]


def _replace_posterior(model: Agent | Regressor, posterior: AbstractPosteriorConfig) -> Agent | Regressor:
    # A Laplace posterior has no weights of its own, a conjugate one keeps those that it was trained with.
    return with_posterior(model, posterior, key=jax.random.key(0))


def _fit_scales(run: Run, models: list[Agent | Regressor], validations: list[Validation]) -> Run:
    """The run with the best scales, the same for all of its seeds."""
    assert run.calibration is not None
    fit, loss = tuple(run.calibration.before), LOSSES[run.calibration.by]
    cases = [
        Case(_scaled(model.posterior), validation.inputs, Partial(loss, validation.judge))
        for model, validation in zip(models, validations, strict=True)
    ]
    best = calibrate_together(cases, fit=fit).posterior
    scales = {name: getattr(best, name) for name in fit}
    posterior = dataclasses.replace(run.config.posterior, **scales)
    return dataclasses.replace(run, config=dataclasses.replace(run.config, posterior=posterior))


def _scaled(posterior: AbstractPosterior) -> AbstractScaledPosterior:
    assert isinstance(posterior, AbstractScaledPosterior)
    return posterior


def _score(run: Run, models: list[Agent | Regressor], validations: list[Validation]) -> pl.DataFrame:
    frames = []
    for index, (model, validation) in enumerate(zip(models, validations, strict=True)):
        before = judge_posterior(model.posterior, validation)
        after = judge_posterior(_replace_posterior(model, run.config.posterior).posterior, validation)
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
