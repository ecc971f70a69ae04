"""A run in words: what is stored, compared and hashed."""

import dataclasses
import functools
import hashlib
import json
import tomllib
import typing
from pathlib import Path
from typing import Any

import tomli_w

from recurrent_laplace.errors import check_choice, check_size
from recurrent_laplace.learning.config import Config, LearningConfig
from recurrent_laplace.models.config import AgentConfig, PosteriorConfig
from recurrent_laplace.tasks import TASKS, AbstractTask, make_task

SCHEMA = 1
"""Version of the run directory's files; a newer one is refused."""

Tables = dict[str, Any]
"""A configuration as TOML has it: `[task]`, `[agent]`, `[posterior]`, `[learning]`."""

ADDED_LATER = {("posterior", "space"): "features", ("posterior", "temperature"): 1.0}
"""Keys that early runs do not have: at the default they are no part of a run's identity."""

SECTIONS = {"agent": AgentConfig, "posterior": PosteriorConfig, "learning": LearningConfig}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parent:
    """Where the weights of a run come from."""

    run: str
    """Identity of the parent run."""
    snapshot: int
    """Updates that the parent had made."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """How scales of the posterior were fitted: their values here are those from before.

    What was asked for is part of a run's identity, what was found is not: it is a result, and the run is
    to be found again without it.
    """

    tasks: int
    """Validation tasks that they were fitted on."""
    by: str = "likelihood"
    """What was best for them."""
    prior_stddev: float | None = None
    damping_precision: float | None = None
    temperature: float | None = None
    forgetting: float | None = None

    @property
    def before(self) -> dict[str, float]:
        """The scales that were fitted, and what they were."""
        values = _fields(self)
        names = [name for name in values if name not in ("tasks", "by")]
        return {name: values[name] for name in names if values[name] is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """What is run: a configuration, its seeds, the parent whose weights it starts from, and calibration."""

    config: Config
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """How many seeds, in one program."""
    parent: Parent | None = None
    calibration: Calibrated | None = None

    def check(self) -> None:
        """Refuse what cannot be run, in one sentence."""
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0; got {self.seed!r}.")
        check_size("seeds", self.seeds)
        self.config.check()
        if self.calibration is not None:
            check_size("tasks of [calibration]", self.calibration.tasks)
            check_choice("calibrated posterior", self.config.posterior.kind, ("laplace",))
            self.asked.check()

    @property
    def asked(self) -> PosteriorConfig:
        """The posterior before any scale of it was fitted."""
        before = {} if self.calibration is None else self.calibration.before
        return dataclasses.replace(self.config.posterior, **before)

    @functools.cached_property
    def configuration(self) -> str:
        """Identity of the configuration, whatever the seeds."""
        tables = self._identity()
        return _hash({name: table for name, table in tables.items() if name not in ("seed", "seeds")})

    @functools.cached_property
    def id(self) -> str:
        """Identity of the run: readable first, then the hash of all there is to say about it."""
        return f"{self.config.task.name}-{self.config.posterior.kind}-{_hash(self._identity())}"

    def tables(self) -> Tables:
        """All of it, as TOML has it."""
        tables: Tables = {"schema": SCHEMA, "seed": self.seed, "seeds": self.seeds}
        if self.parent is not None:
            tables["parent"] = dataclasses.asdict(self.parent)
        if self.calibration is not None:
            tables["calibration"] = {"tasks": self.calibration.tasks, "by": self.calibration.by}
            tables["calibration"] |= self.calibration.before
        return tables | config_tables(self.config)

    def to_toml(self) -> str:
        """The text of `config.toml`."""
        return tomli_w.dumps(self.tables())

    def _identity(self) -> Tables:
        """All of it as it was asked for."""
        config = dataclasses.replace(self.config, posterior=self.asked)
        return dataclasses.replace(self, config=config).tables()

    @classmethod
    def from_toml(cls, text: str, source: Path) -> "Run":
        """Read `config.toml`; `source` is named when something is wrong with it."""
        tables = parse_toml(text, source)
        schema = tables.pop("schema", None)
        if isinstance(schema, int) and schema > SCHEMA:
            raise ValueError(
                f"{source} has schema {schema}; this version reads up to {SCHEMA}. "
                "Use a newer recurrent-laplace."
            )
        if schema != SCHEMA:
            raise ValueError(f"{source} is not the configuration of a run: its schema is {schema!r}.")
        try:
            seed, seeds = tables.pop("seed"), tables.pop("seeds")
            parent = Parent(**tables.pop("parent")) if "parent" in tables else None
            calibration = tables.pop("calibration", None)
            if calibration is not None:
                calibration = Calibrated(**_values(Calibrated, calibration))
            run = cls(
                config=config_from(tables), seed=seed, seeds=seeds, parent=parent, calibration=calibration
            )
            run.check()
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"{source} is not the configuration of a run: {problem}") from problem
        return run


def task_id(task: AbstractTask) -> str:
    """Identity of a task: its name, then the hash of its parameters."""
    return f"{task.name}-{_hash({'task': _fields(task)})}"


def config_tables(config: Config) -> Tables:
    """A configuration as TOML has it; what is None is left out."""
    tables = {"task": {"name": config.task.name} | _fields(config.task)}
    tables |= {name: _fields(getattr(config, name)) for name in SECTIONS}
    return {
        name: {key: _plain(value) for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }


def config_from(tables: Tables) -> Config:
    """The configuration that tables say; what they do not say has its default, unknown keys are errors."""
    check_keys(tables)
    task = dict(tables.get("task", {}))
    name = task.pop("name", "gridworld")
    task = make_task(name, **_values(TASKS[name], task))
    sections = {name: kind(**_values(kind, tables.get(name, {}))) for name, kind in SECTIONS.items()}
    return Config(task=task, **sections)


def check_keys(tables: Tables) -> None:
    """Refuse sections and keys that mean nothing."""
    for name, table in tables.items():
        check_choice("section", name, ("task", *SECTIONS))
        if not isinstance(table, dict):
            raise ValueError(f"section {name!r} must be a table; got {table!r}.")
        if name == "task":
            chosen = table.get("name", "gridworld")
            check_choice("task", chosen, tuple(TASKS))
            known = ["name", *(field.name for field in dataclasses.fields(TASKS[chosen]))]
        else:
            known = [field.name for field in dataclasses.fields(SECTIONS[name])]
        for key in table:
            check_choice(f"key of [{name}]", key, known)


def merge(*layers: Tables) -> Tables:
    """Tables laid over each other, later ones on top."""
    merged: Tables = {}
    for layer in layers:
        for name, table in layer.items():
            merged[name] = merged.get(name, {}) | table if isinstance(table, dict) else table
    return merged


def parse_toml(text: str, source: Path) -> Tables:
    """Parse, or say in one sentence where the text is wrong."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{source} is no valid TOML: {problem}.") from problem


def _values(kind: type, table: dict[str, Any]) -> dict[str, Any]:
    """The fields of a section, of the kinds that its dataclass has."""
    hints = _hints(kind)
    values = {}
    for key, value in table.items():
        if isinstance(value, list):
            value = tuple(value)
        elif (
            hints.get(key) in (float, float | None) and isinstance(value, int) and not isinstance(value, bool)
        ):
            value = float(value)
        elif hints.get(key) is bool and not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false; got {value!r}.")
        values[key] = value
    return values


_hints = functools.cache(typing.get_type_hints)


def _fields(section: Any) -> dict[str, Any]:
    return {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _hash(tables: Tables) -> str:
    tables = {
        name: {key: value for key, value in table.items() if ADDED_LATER.get((name, key)) != value}
        if isinstance(table, dict)
        else table
        for name, table in tables.items()
    }
    text = json.dumps(tables, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
