"""A sweep file in, the runs it means out: axes, exclusions, and stages that hang on each other.

```toml
preset = "laptop"
seeds = 5                        # of each configuration
seeds_per_run = 5                # so many share a compiled program

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recurrent_laplace.errors import check_choice, check_number, check_size
from recurrent_laplace.experiments.config import (
    Parent,
    Run,
    Tables,
    check_keys,
    config_from,
    config_tables,
    merge,
)
from recurrent_laplace.experiments.models import snapshot_updates
from recurrent_laplace.experiments.presets import PRESETS, load_preset
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.models import PosteriorConfig
from recurrent_laplace.tasks import TASKS

TOP_KEYS = ("title", "preset", "quick_compile", "seed", "seeds", "seeds_per_run", "stage")
STAGE_KEYS = ("name", "about", "optional", "preset", "parent", "snapshots", "where", "set", "axes", "list")
STAGE_KEYS += ("exclude", "seeds", "seeds_per_run")

Flat = dict[str, Any]
"""Values by `section.key`."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run to make and to test, and the job whose run it starts from."""

    run: Run
    stage: str
    config: Config
    """As it was asked for: with options that have no effect in this run, but have in its children."""
    parent: "Job | None" = None

    @property
    def id(self) -> str:
        """The run's identity."""
        return self.run.id


@dataclasses.dataclass(frozen=True)
class Plan:
    """All jobs of a sweep, parents before their children."""

    title: str
    jobs: tuple[Job, ...]
    stages: dict[str, bool]
    """The names of the stages, and whether each is optional."""
    quick_compile: bool = False
    """Whether programs are compiled without optimisation: for runs that take less time than that."""

    def only(self, names: tuple[str, ...]) -> "Plan":
        """The jobs of some stages, and all that they hang on; without names, all but the optional."""
        for name in names:
            check_choice("stage", name, tuple(self.stages))
        wanted = names or tuple(name for name, optional in self.stages.items() if not optional)
        kept: dict[str, Job] = {}
        for job in self.jobs:
            if job.stage in wanted:
                kept |= {ancestor.id: ancestor for ancestor in _line(job)}
        return dataclasses.replace(self, jobs=tuple(kept.values()))


def read_plan(tables: Tables, source: Path) -> Plan:
    """The plan that a sweep file describes; `source` is named when something is wrong with it."""
    try:
        return _plan(tables)
    except (ValueError, TypeError) as problem:
        raise ValueError(f"{source}: {problem}") from problem


CURVATURE = ("accumulate", "window", "forgetting", "damping_precision", "temperature", "space")
"""Options of a Laplace posterior alone."""


def canonical(config: Config) -> Config:
    """The configuration with every option that has no effect in it set to its default.

    Combinations that mean the same become the same run.
    """
    posterior, learning = config.posterior, config.learning
    idle = {
        "point": ("covariance", "prior_stddev", *CURVATURE),
        "variational": CURVATURE,
        "laplace": ("forgetting",) if posterior.accumulate == "none" else ("damping_precision",),
    }[posterior.kind]
    posterior = dataclasses.replace(posterior, **{name: getattr(PosteriorConfig(), name) for name in idle})
    idle = ("beta", "training_samples", "acting_samples") if posterior.kind == "point" else ()
    if learning.updates == 0:
        idle = (*idle, "beta", "training_samples")
    learning = dataclasses.replace(learning, **{name: getattr(LearningConfig(), name) for name in idle})
    return dataclasses.replace(config, posterior=posterior, learning=learning)


def _plan(tables: Tables) -> Plan:
    for key in tables:
        check_choice("key of the sweep", key, TOP_KEYS)
    stages = tables.get("stage", [])
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("a sweep needs at least one [[stage]].")
    jobs: dict[str, Job] = {}
    by_stage: dict[str, list[Job]] = {}
    optional: dict[str, bool] = {}
    for stage in stages:
        name = stage.get("name")
        if not isinstance(name, str) or not name:
            raise ValueError(f"every stage needs a name; got {name!r}.")
        if name in by_stage:
            raise ValueError(f"two stages have the name {name!r}.")
        try:
            made = list(_stage_jobs(stage, tables, by_stage))
        except ValueError as problem:
            raise ValueError(f"stage {name!r}: {problem}") from problem
        if not made:
            raise ValueError(f"stage {name!r} has no runs: its grid is empty, or all of it is excluded.")
        # What an earlier stage has already is that stage's run.
        by_stage[name] = [jobs.setdefault(job.id, job) for job in made]
        optional[name] = bool(stage.get("optional", False))
    quick_compile = tables.get("quick_compile", False)
    if not isinstance(quick_compile, bool):
        raise ValueError(f"quick_compile must be true or false; got {quick_compile!r}.")
    return Plan(str(tables.get("title", "")), tuple(jobs.values()), optional, quick_compile)


def _stage_jobs(stage: Tables, top: Tables, earlier: dict[str, list[Job]]) -> Iterator[Job]:
    for key in stage:
        check_choice("key of a stage", key, STAGE_KEYS)
    name = stage["name"]
    if "parent" not in stage:
        for key in ("snapshots", "where"):
            if key in stage:
                raise ValueError(f"{key!r} needs a parent.")
        preset = stage.get("preset", top.get("preset", "laptop"))
        check_choice("preset", preset, PRESETS)
        for chosen in _combinations(stage):
            task = chosen.get("task.name", "gridworld")
            kind = chosen.get("posterior.kind", "point")
            _check_words(task, kind)
            config = _config(load_preset(preset, task, kind), {"task.name": task} | chosen)
            for seed, seeds in _shares(stage, top):
                yield _job(config, name, seed=seed, seeds=seeds)
        return
    check_choice("parent", stage["parent"], tuple(earlier))
    where = _flatten(stage.get("where", {}))
    _check_flat(where)
    parents = [job for job in earlier[stage["parent"]] if _matches(_flatten(job.run.tables()), where)]
    if not parents:
        raise ValueError(f"no run of {stage['parent']!r} has {_words(where)}.")
    combinations = list(_combinations(stage))
    for parent in parents:
        for share in stage.get("snapshots", [1.0]):
            check_number("snapshot", share, above=0, most=1)
            for chosen in combinations:
                yield _child(parent, share, chosen, name)


def _child(parent: Job, share: float, chosen: Flat, stage: str) -> Job:
    for key in chosen:
        if not key.startswith(("posterior.", "learning.")):
            raise ValueError(f"{key!r} cannot differ from the parent's: only posterior and learning can.")
    updates = parent.run.config.learning.updates
    kept = {done / max(updates, 1): done for done in snapshot_updates(updates)}
    snapshot = int(share * updates)
    if snapshot not in kept.values():
        shares = ", ".join(f"{one:g}" for one in kept)
        raise ValueError(f"snapshot {share:g} is not kept; those that are: {shares}.")
    base = config_tables(parent.config)
    base["learning"]["updates"] = updates - snapshot
    run = parent.run
    link = Parent(run=run.id, snapshot=snapshot)
    return _job(_config(base, chosen), stage, parent, seed=run.seed, seeds=run.seeds, link=link)


def _config(base: Tables, chosen: Flat) -> Config:
    config = config_from(merge(base, _nest(chosen)))
    config.check()
    return config


def _job(
    config: Config,
    stage: str,
    parent: Job | None = None,
    *,
    seed: int,
    seeds: int,
    link: Parent | None = None,
) -> Job:
    run = Run(config=canonical(config), seed=seed, seeds=seeds, parent=link)
    run.check()
    return Job(run, stage, config, parent)


def _check_words(task: Any, kind: Any) -> None:
    check_choice("task", task, tuple(TASKS))
    check_choice("posterior", kind, ("point", "variational", "laplace"))


def _combinations(stage: Tables) -> Iterator[Flat]:
    """Every point of the grid, under every entry of the list, that is not excluded."""
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
        if not any(_matches(chosen, unwanted) for unwanted in excluded):
            yield chosen


def _shares(stage: Tables, top: Tables) -> Iterator[tuple[int, int]]:
    """First seed and number of seeds of each run of a configuration."""
    first = top.get("seed", 0)
    seeds = stage.get("seeds", top.get("seeds", 1))
    together = stage.get("seeds_per_run", top.get("seeds_per_run", seeds))
    check_size("seeds", seeds)
    check_size("seeds_per_run", together)
    for begin in range(0, seeds, together):
        yield first + begin, min(together, seeds - begin)


def _check_flat(flat: Flat) -> None:
    """Refuse keys that no configuration has; a task's own parameters are checked with the task."""
    check_keys({name: table for name, table in _nest(flat).items() if name != "task"})


def _matches(flat: Flat, wanted: Flat) -> bool:
    return all(key in flat and flat[key] == value for key, value in wanted.items())


def _flatten(tables: Tables) -> Flat:
    if not isinstance(tables, dict):
        raise ValueError(f"expected a table of section.key; got {tables!r}.")
    flat = {}
    for section, table in tables.items():
        if isinstance(table, dict):
            flat |= {f"{section}.{key}": value for key, value in table.items()}
        else:
            flat[section] = table
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


def _line(job: Job) -> list[Job]:
    """A job's ancestors, oldest first, and the job."""
    return ([] if job.parent is None else _line(job.parent)) + [job]
