"""Plans of sweeps: the runs described by a sweep file, with axes, exclusions and dependent stages.

```toml
preset = "laptop"
seeds = 5                        # seeds per configuration
seeds_per_run = 5                # seeds per run, in one compiled program

[[stage]]
name = "rnn"
axes.task.name = ["regression", "gridworld"]

[[stage]]
name = "laplace"
set.posterior.kind = "laplace"
axes.task.name = ["regression", "gridworld"]
axes.posterior.covariance = ["diagonal", "dense"]
exclude = [{ task.name = "gridworld", posterior.covariance = "dense" }]

[[stage]]
name = "tuned"
parent = "rnn"                   # continues the runs of that stage
snapshots = [0.5, 0.75]
set.posterior.kind = "variational"

[[stage]]
name = "posthoc"
parent = "rnn"                   # without training: updates = 0
set.learning.updates = 0
set.posterior.kind = "laplace"
```
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.evaluation.evaluate import TEST_TASKS
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.models.posterior_config import posterior_class
from recurrent_laplace.runs.config import (
    Parent,
    Run,
    check_keys,
    config_from,
)
from recurrent_laplace.runs.derive import link_to
from recurrent_laplace.runs.models import snapshot_updates
from recurrent_laplace.runs.presets import PRESETS, load_preset
from recurrent_laplace.runs.toml import Tables, merge
from recurrent_laplace.tasks.references import registered_name, task_class

TOP_KEYS = ("title", "preset", "quick_compile", "seed", "seeds", "seeds_per_run", "stage")
TOP_KEYS += ("evaluate_snapshots", "test_tasks", "configurations")
STAGE_KEYS = ("name", "about", "optional", "preset", "parent", "snapshots", "where", "set", "axes", "list")
STAGE_KEYS += ("exclude", "seeds", "seed", "seeds_per_run", "fresh_optimizer")
STAGE_KEYS += ("evaluate_snapshots", "test_tasks")

MOST_JOBS = 100_000
"""Maximum number of runs of a sweep, including excluded and repeated ones."""

Flat = dict[str, Any]
"""Configuration values by `section.key`."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to train and evaluate, and the job whose run it starts from."""

    run: Run
    stage: str
    requested: Tables = dataclasses.field(compare=False)
    """Requested configuration, with options that have no effect in this run but in its children."""
    parent: "Job | None" = None
    evaluate_snapshots: bool = dataclasses.field(default=False, compare=False)
    """Whether the snapshots of the run are evaluated too."""
    test_tasks: int = dataclasses.field(default=TEST_TASKS, compare=False)
    """Number of test tasks."""

    @property
    def id(self) -> str:
        """Identity of the run."""
        return self.run.id


@dataclasses.dataclass(frozen=True)
class Plan:
    """All jobs of a sweep, parents before their children."""

    title: str
    jobs: tuple[Job, ...]
    stages: dict[str, bool]
    """Whether each stage is optional, by name."""
    quick_compile: bool = False
    """Whether programs are compiled without optimisation, for runs shorter than their compilation."""

    def of(self, configurations: list[str]) -> "Plan":
        """Jobs of some configurations and their ancestors, in the order of the configurations."""
        by_configuration: dict[str, list[Job]] = {}
        for job in self.jobs:
            by_configuration.setdefault(job.run.configuration, []).append(job)
        kept: dict[str, Job] = {}
        for name in configurations:
            if name not in by_configuration:
                raise ValueError(f"no run has the configuration {name!r}.")
            for job in by_configuration[name]:
                kept |= {ancestor.id: ancestor for ancestor in _lineage(job)}
        return dataclasses.replace(self, jobs=tuple(kept.values()))

    def only(self, names: tuple[str, ...]) -> "Plan":
        """Jobs of some stages and their ancestors; without names, of all stages that are not optional."""
        for name in names:
            check_choice("stage", name, tuple(self.stages))
        chosen = names or tuple(name for name, optional in self.stages.items() if not optional)
        kept: dict[str, Job] = {}
        for job in self.jobs:
            if job.stage in chosen:
                kept |= {ancestor.id: ancestor for ancestor in _lineage(job)}
        return dataclasses.replace(self, jobs=tuple(kept.values()))


def read_plan(tables: Tables, source: Path) -> Plan:
    """Plan described by a sweep file; error messages name `source`."""
    try:
        return _plan(tables)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{source}: {problem}") from problem
    except RecursionError as problem:
        raise ValueError(f"{source}: its values are nested too deeply.") from problem


def canonical(config: Config) -> Config:
    """Configuration with all inactive options set to their defaults.

    Equivalent combinations of options become the same run.
    """
    defaults = {name: getattr(LearningConfig(), name) for name in config.inactive_learning}
    learning = dataclasses.replace(config.learning, **defaults)
    return dataclasses.replace(config, posterior=config.posterior.canonical(), learning=learning)


def _plan(tables: Tables) -> Plan:
    for key in tables:
        check_choice("key of the sweep", key, TOP_KEYS)
    stages = tables.get("stage", [])
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("a sweep needs at least one [[stage]].")
    jobs: dict[str, Job] = {}
    by_stage: dict[str, list[Job]] = {}
    optional: dict[str, bool] = {}
    total = 0
    for stage in stages:
        name = stage.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"every stage needs a name; got {name!r}.")
        if name in by_stage:
            raise ValueError(f"two stages have the name {name!r}.")
        try:
            total += _count(stage, tables, by_stage)
            if total > MOST_JOBS:
                raise ValueError(
                    f"a sweep has at most {MOST_JOBS} runs, and this one would have more: shorten its axes, "
                    "or split it into several sweeps."
                )
            evaluate = _boolean(tables | stage, "evaluate_snapshots")
            test_tasks = (tables | stage).get("test_tasks", TEST_TASKS)
            check_size("test_tasks", test_tasks)
            made = [
                dataclasses.replace(job, evaluate_snapshots=evaluate, test_tasks=test_tasks)
                for job in _stage_jobs(stage, tables, by_stage)
            ]
        except ValueError as problem:
            raise ValueError(f"stage {name!r}: {problem}") from problem
        if not made:
            raise ValueError(f"stage {name!r} has no runs: its grid is empty, or all of it is excluded.")
        # A run of an earlier stage is not repeated.
        by_stage[name] = [jobs.setdefault(job.id, job) for job in made]
        optional[name] = bool(stage.get("optional", False))
    quick_compile = _boolean(tables, "quick_compile")
    plan = Plan(str(tables.get("title", "")), tuple(jobs.values()), optional, quick_compile)
    if "configurations" not in tables:
        return plan
    if not isinstance(tables["configurations"], list):
        raise ValueError(f"'configurations' must be a list; got {tables['configurations']!r}.")
    return plan.of(tables["configurations"])


def _count(stage: Tables, top: Tables, earlier: dict[str, list[Job]]) -> int:
    """Upper bound of the runs of a stage, from the lengths of its lists; other values count as empty."""
    lists = [stage.get("list", [{}]), *_flatten(stage.get("axes", {})).values()]
    if "parent" in stage:
        check_choice("parent", stage["parent"], tuple(earlier))
        lists += [earlier[stage["parent"]], stage.get("snapshots", [1.0])]
        runs = 1
    else:
        seeds, per_run = _seeds(stage, top)
        runs = -(-seeds // per_run)
    return runs * math.prod(len(values) if isinstance(values, list) else 0 for values in lists)


def _stage_jobs(stage: Tables, top: Tables, earlier: dict[str, list[Job]]) -> Iterator[Job]:
    for key in stage:
        check_choice("key of a stage", key, STAGE_KEYS)
    for key in ("snapshots", "list", "exclude"):
        if not isinstance(stage.get(key, []), list):
            raise ValueError(f"{key!r} must be a list; got {stage[key]!r}.")
    name = stage["name"]
    if "parent" not in stage:
        for key in ("snapshots", "where", "fresh_optimizer"):
            if key in stage:
                raise ValueError(f"{key!r} needs a parent.")
        preset = stage.get("preset", top.get("preset", "laptop"))
        check_choice("preset", preset, PRESETS)
        for chosen in _combinations(stage):
            task = chosen.get("task.name", "gridworld")
            kind = chosen.get("posterior.kind", "point")
            task_class({"name": task})
            posterior_class(kind)
            requested = merge(load_preset(preset, task, kind), _nest({"task.name": task} | chosen))
            for seed, seeds in _seed_ranges(stage, top):
                yield _job(requested, name, seed=seed, seeds=seeds)
        return
    where = _flatten(stage.get("where", {}))
    _check_flat(where)
    parents = [job for job in earlier[stage["parent"]] if _matches(_flatten(job.run.tables()), where)]
    if not parents:
        raise ValueError(f"no run of {stage['parent']!r} has {_words(where)}.")
    combinations = list(_combinations(stage))
    fresh = _boolean(stage, "fresh_optimizer")
    for parent in parents:
        for fraction in stage.get("snapshots", [1.0]):
            check_number("snapshot", fraction, above=0, most=1)
            for chosen in combinations:
                yield _child(parent, fraction, chosen, name, fresh_optimizer=fresh)


def _child(parent: Job, fraction: float, chosen: Flat, stage: str, *, fresh_optimizer: bool) -> Job:
    for key in chosen:
        if not key.startswith(("posterior.", "learning.")):
            raise ValueError(f"{key!r} cannot differ from the parent's: only posterior and learning can.")
    updates = parent.run.config.learning.updates
    kept = {done / max(updates, 1): done for done in snapshot_updates(updates)}
    snapshot = int(fraction * updates)
    if snapshot not in kept.values():
        fractions = ", ".join(f"{each:g}" for each in kept)
        raise ValueError(f"snapshot {fraction:g} is not kept; those that are: {fractions}.")
    requested = merge(parent.requested, {"learning": {"updates": updates - snapshot}}, _nest(chosen))
    run = parent.run
    remaining = requested["learning"]["updates"]
    link = link_to(run, snapshot, remaining, fresh_optimizer=fresh_optimizer)
    return _job(requested, stage, parent, seed=run.seed, seeds=run.seeds, link=link)


def _job(
    requested: Tables,
    stage: str,
    parent: Job | None = None,
    *,
    seed: int,
    seeds: int,
    link: Parent | None = None,
) -> Job:
    config = config_from(requested)
    config.check()
    run = Run(config=canonical(config), seed=seed, seeds=seeds, parent=link)
    run.check()
    return Job(run, stage, requested, parent)


def _combinations(stage: Tables) -> Iterator[Flat]:
    """All points of the grid for each entry of the list, without the excluded ones."""
    fixed, axes = _flatten(stage.get("set", {})), _flatten(stage.get("axes", {}))
    entries = [_flatten(entry) for entry in stage.get("list", [{}])]
    excluded = [_flatten(entry) for entry in stage.get("exclude", [])]
    for key, values in axes.items():
        if not isinstance(values, list):
            raise ValueError(f"axis {key!r} must be a list of values; got {values!r}.")
        if not values:
            raise ValueError(f"axis {key!r} has no values.")
    for flat in (fixed, axes, *entries, *excluded):
        _check_flat(flat)
    for entry, values in itertools.product(entries, itertools.product(*axes.values())):
        chosen = fixed | entry | dict(zip(axes, values, strict=True))
        if not any(_matches(chosen, conditions) for conditions in excluded):
            yield chosen


def _seed_ranges(stage: Tables, top: Tables) -> Iterator[tuple[int, int]]:
    """First seed and number of seeds, for each run of a configuration."""
    first = stage.get("seed", top.get("seed", 0))
    seeds, per_run = _seeds(stage, top)
    for offset in range(0, seeds, per_run):
        yield first + offset, min(per_run, seeds - offset)


def _seeds(stage: Tables, top: Tables) -> tuple[int, int]:
    """Number of seeds per configuration and per run."""
    seeds = stage.get("seeds", top.get("seeds", 1))
    per_run = stage.get("seeds_per_run", top.get("seeds_per_run", seeds))
    check_size("seeds", seeds)
    check_size("seeds_per_run", per_run)
    return seeds, per_run


def _boolean(table: Tables, key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} must be true or false; got {value!r}.")
    return value


def _check_flat(flat: Flat) -> None:
    """Raise `ValueError` for unknown keys; the parameters of a task are checked with the task."""
    check_keys({name: table for name, table in _nest(flat).items() if name != "task"})


def _matches(flat: Flat, conditions: Flat) -> bool:
    return all(key in flat and flat[key] == value for key, value in conditions.items())


def _flatten(tables: Tables) -> Flat:
    if not isinstance(tables, dict):
        raise ValueError(f"expected a table of section.key; got {tables!r}.")
    flat = {}
    for section, table in tables.items():
        if isinstance(table, dict):
            flat |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            flat[section] = table
    if "task.name" in flat:
        named = flat["task.name"]
        flat["task.name"] = (
            [registered_name(name) for name in named] if isinstance(named, list) else registered_name(named)
        )
    return flat


def _nest(flat: Flat) -> Tables:
    tables: Tables = {}
    for name, value in flat.items():
        section, dot, key = name.partition(".")
        if not dot:
            raise ValueError(f"{name!r} must be a section and a key, as in posterior.covariance.")
        tables.setdefault(section, {})[key] = value
    return tables


def _words(flat: Flat) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in flat.items())


def _lineage(job: Job) -> list[Job]:
    """Ancestors of a job, oldest first, and the job itself."""
    return ([] if job.parent is None else _lineage(job.parent)) + [job]
