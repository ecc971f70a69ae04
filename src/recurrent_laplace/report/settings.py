"""Options of the runs as they were executed: those that all runs of a task share, and those that differ."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from recurrent_laplace.learning import Config
from recurrent_laplace.learning.options import ControlOptions
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.methods import ALL_ORIGINS, VARIANTS, Variant, describe_run
from recurrent_laplace.runs.config import Run, config_tables

IN_WORDS = ("task.name", "posterior.kind", "posterior.covariance", "posterior.accumulate", "posterior.window")
"""Options that the description of a run has in words."""
OF_CONTROL = {field.name for field in dataclasses.fields(ControlOptions)}
OF_ACTORS = {"agent.policy_input", "agent.reward_model", "agent.predict"}
"""Options of `agent` that have an effect on agents that act."""
SECTIONS = ("task", "agent", "posterior", "learning")
OF_EXECUTION = ("updates", "acting_samples", "acting_policy", "lookup", "predictive_floor")
"""Options of `learning` that have an effect without training."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """Runs of a task that differ in their seeds alone."""

    words: str
    """Method and origin."""
    arm: str
    values: dict[str, str]
    """Options in which the runs of the task differ; those without effect are absent."""
    seeds: str
    runs: int


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """Options of all runs of a task."""

    task: str
    shared: dict[str, str]
    """Options with one value in all runs that they have an effect on."""
    varied: list[str]
    """The other options."""
    rows: list[Setting]


def settings_of(frames: Frames) -> list[TaskSettings]:
    """Options of the runs, by task; runs of unknown configuration are left out."""
    return [_settings(frames, task) for task in sorted({*frames.runs["task"]}) if _known(frames, task)]


def option_names(settings: Sequence[TaskSettings]) -> list[str]:
    """Options of all tasks, by section."""
    names = dict.fromkeys(name for each in settings for name in (*each.shared, *each.varied))
    return sorted(names, key=lambda name: SECTIONS.index(name.partition(".")[0]))


def active_options(run: Run) -> dict[str, Any]:
    """Options that have an effect on a run, by `section.key`; options that are not set are absent."""
    config = run.config
    inactive = {f"posterior.{name}" for name in config.posterior.inactive}
    inactive |= {f"learning.{name}" for name in _inactive_learning(config)}
    inactive |= set() if config.objective.acts else OF_ACTORS
    # Options of other posteriors are stored with some, but have no effect.
    own = {"kind", *config.posterior.options()}
    return {
        f"{section}.{key}": value
        for section, table in config_tables(config).items()
        for key, value in table.items()
        if f"{section}.{key}" not in inactive and (section != "posterior" or key in own)
    }


def _inactive_learning(config: Config) -> set[str]:
    names = set(config.inactive_learning)
    if config.objective.acts:
        names.add("predictive_floor")
    else:
        names |= OF_CONTROL
    if config.learning.updates == 0:
        names |= {field.name for field in dataclasses.fields(config.learning)} - set(OF_EXECUTION)
    return names


def _known(frames: Frames, task: str) -> list[dict[str, Any]]:
    rows = frames.runs.filter(frames.runs["task"] == task).iter_rows(named=True)
    return [row for row in rows if row["run"] in frames.configured]


def _settings(frames: Frames, task: str) -> TaskSettings:
    rows = sorted(_known(frames, task), key=_order)
    options = {row["run"]: active_options(frames.configured[row["run"]]) for row in rows}
    names = list(dict.fromkeys(key for own in options.values() for key in own))
    values = {name: {_shown(own[name]) for own in options.values() if name in own} for name in names}
    varied = [name for name in names if name not in IN_WORDS and len(values[name]) > 1]
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        own = options[row["run"]]
        key = (describe_run(row), row["arm"] or "both", *(_shown(own.get(name)) for name in varied))
        groups.setdefault(key, []).append(row)
    return TaskSettings(
        task,
        {name: min(values[name]) for name in names if name not in IN_WORDS and len(values[name]) == 1},
        varied,
        [
            Setting(words, arm, dict(zip(varied, own, strict=True)), _seeds(group), len(group))
            for (words, arm, *own), group in groups.items()
        ],
    )


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """Origins and methods in the order of the figures."""
    variant = Variant(row["method"], row["covariance"])
    place = VARIANTS.index(variant) if variant in VARIANTS else len(VARIANTS)
    return list(ALL_ORIGINS).index(row["origin"]), row["arm"] or "", place, row["run"]


def _seeds(rows: list[dict[str, Any]]) -> str:
    """Seeds of runs, consecutive ones as a range: `0 to 4, 7`."""
    seeds = sorted({seed for row in rows for seed in range(row["seed"], row["seed"] + row["seeds"])})
    starts = [seed for seed in seeds if seed - 1 not in seeds]
    ends = [seed for seed in seeds if seed + 1 not in seeds]
    pairs = zip(starts, ends, strict=True)
    return ", ".join(f"{first}" if first == last else f"{first} to {last}" for first, last in pairs)


def _shown(value: Any) -> str:
    """An option as text: `-` if it is absent."""
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else f"{value}"
