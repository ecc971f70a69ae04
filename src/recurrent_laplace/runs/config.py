"""Description of a run: stored as TOML, validated, and hashed to its identity."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import typing
from pathlib import Path
from typing import Any

import tomli_w

from recurrent_laplace.errors import check_choice, check_seed, check_size, shown
from recurrent_laplace.learning.config import Config, LearningConfig
from recurrent_laplace.models import AbstractPosteriorConfig, AgentConfig, LaplaceConfig
from recurrent_laplace.models.posterior_config import (
    all_options,
    check_calibrated,
    option_names,
    owner_of,
    posterior_class,
)
from recurrent_laplace.runs.toml import Tables, parse_toml
from recurrent_laplace.tasks import AbstractTask, make_task
from recurrent_laplace.tasks.references import TaskNotLoadedError, origin_of, task_class

SCHEMA = 1
"""Version of the file format of run directories; newer versions are refused."""

ADDED_LATER = {
    ("posterior", "space"): "features",
    ("posterior", "temperature"): 1.0,
    ("learning", "lookup"): True,
    ("learning", "kl_fraction"): 1.0,
    ("learning", "predictive_floor"): 0.0,
    ("learning", "observation_weight"): 1.0,
    ("learning", "temperature_bound"): 0.1,
    ("learning", "policy_kl_bound"): 0.01,
    ("learning", "policy_stddev_kl_bound"): 1e-3,
    ("learning", "dual_learning_rate"): 0.01,
    ("agent", "initialization"): "pytorch",
    ("agent", "predict"): [],
    ("agent", "action_distribution"): "gaussian",
    ("agent", "action_stddev"): "constant",
}
"""Keys added after version 0.1 and their defaults, which are left out of a run's identity."""

FLAT_KINDS = ("point", "variational", "laplace")
"""Posteriors stored and hashed with all options of a Laplace posterior, as in version 0.1."""

FLOATS = (float, float | None, float | tuple[float, float])
"""Types of fields that store an integer as a float."""

SECTIONS = {"agent": AgentConfig, "learning": LearningConfig}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parent:
    """Origin of the initial weights of a run."""

    run: str
    """Identity of the parent run."""
    snapshot: int
    """Number of updates of the parent's checkpoint."""
    start: int = 0
    """Updates before the first of this run, whose schedules, optimiser state and stream of tasks continue; 0
    if all of them are fresh."""

    def table(self) -> Tables:
        """Table `[parent]` as it is stored and hashed; as in version 0.1, without `start` if all is fresh."""
        return {name: value for name, value in _fields(self).items() if (name, value) != ("start", 0)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Calibration of the posterior's scales, with the values from before the fit.

    The request is part of a run's identity, the fitted values are not: they are a result, and the run must be
    found again without them.
    """

    tasks: int
    """Number of validation tasks of the fit."""
    by: str = "likelihood"
    """Criterion of the fit."""
    prior_stddev: float | None = None
    damping_precision: float | None = None
    temperature: float | None = None
    forgetting: float | None = None

    @property
    def before(self) -> dict[str, float]:
        """Fitted scales, with their values from before the fit."""
        values = _fields(self)
        names = [name for name in values if name not in ("tasks", "by")]
        return {name: values[name] for name in names if values[name] is not None}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """A run: its configuration, its seeds, the parent whose weights it starts from, and calibration."""

    config: Config
    seed: int = 0
    """The first seed."""
    seeds: int = 1
    """Number of consecutive seeds, trained in one program."""
    parent: Parent | None = None
    calibration: Calibrated | None = None
    unused: Tables = dataclasses.field(default_factory=dict, hash=False)
    """Options of other posteriors: stored and part of the identity, but without effect."""

    @classmethod
    def of(cls, tables: Tables, **others: Any) -> "Run":
        """Build a run from the tables of its configuration."""
        return cls(config=config_from(tables), unused=posterior_from(tables)[1], **others)

    def check(self) -> None:
        """Raise `ValueError` for a run that cannot be executed."""
        check_size("seeds", self.seeds)
        check_seed(self.seed, self.seeds)
        self.config.check()
        if self.calibration is not None:
            check_size("tasks of [calibration]", self.calibration.tasks)
            check_calibrated(self.config.posterior)
            self.requested_posterior.check()

    @property
    def start(self) -> int:
        """Updates before the first of this run, in runs whose training it continues."""
        return 0 if self.parent is None else self.parent.start

    @property
    def requested_posterior(self) -> AbstractPosteriorConfig:
        """The posterior before calibration."""
        before = {} if self.calibration is None else self.calibration.before
        return dataclasses.replace(self.config.posterior, **before)

    @functools.cached_property
    def configuration(self) -> str:
        """Identity of the configuration, independent of the seeds."""
        tables = self._identity()
        return _hash({name: table for name, table in tables.items() if name not in ("seed", "seeds")})

    @functools.cached_property
    def id(self) -> str:
        """Identity of the run: task, posterior and the hash of the whole description."""
        return f"{self.config.task.name}-{self.config.posterior.kind}-{_hash(self._identity())}"

    def tables(self) -> Tables:
        """TOML tables of the run."""
        tables: Tables = {"schema": SCHEMA, "seed": self.seed, "seeds": self.seeds}
        if self.parent is not None:
            tables["parent"] = self.parent.table()
        if self.calibration is not None:
            tables["calibration"] = {"tasks": self.calibration.tasks, "by": self.calibration.by}
            tables["calibration"] |= self.calibration.before
        return tables | config_tables(self.config, self.unused)

    def to_toml(self) -> str:
        """Content of `config.toml`."""
        return tomli_w.dumps(self.tables())

    def _identity(self) -> Tables:
        """Tables of the run before calibration."""
        config = dataclasses.replace(self.config, posterior=self.requested_posterior)
        tables = dataclasses.replace(self, config=config).tables()
        # A task keeps its runs when its module is moved; its version is checked by `runs/origin.py`.
        tables["task"].pop("reference", None)
        return tables

    @classmethod
    def from_toml(cls, text: str, source: Path) -> "Run":
        """Parse `config.toml`; error messages name `source`."""
        tables = parse_toml(text, source)
        check_schema(tables.pop("schema", None), source)
        try:
            seed, seeds = tables.pop("seed"), tables.pop("seeds")
            parent = Parent(**tables.pop("parent")) if "parent" in tables else None
            if parent is not None:
                check_size("start of [parent]", parent.start, least=0)
            calibration = tables.pop("calibration", None)
            if calibration is not None:
                calibration = Calibrated(**_values(Calibrated, calibration))
            run = cls.of(tables, seed=seed, seeds=seeds, parent=parent, calibration=calibration)
            run.check()
        except TaskNotLoadedError as problem:
            raise ValueError(f"{source}: {problem}") from problem
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"{source} is not the configuration of a run: {problem}") from problem
        return run


def check_schema(schema: Any, source: Path) -> None:
    """Raise `ValueError` unless files of this schema version can be read."""
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(
            f"{source} has schema {shown(schema)}; this version reads up to {SCHEMA}. "
            "Use a newer recurrent-laplace."
        )
    if schema != SCHEMA:
        raise ValueError(f"{source} is not the configuration of a run: its schema is {shown(schema)}.")


def task_id(task: AbstractTask) -> str:
    """Identity of a task: its name and the hash of its parameters."""
    return f"{task.name}-{_hash({'task': _fields(task)})}"


def config_tables(config: Config, unused: Tables | None = None) -> Tables:
    """TOML tables of a configuration; None values are left out."""
    origin = origin_of(type(config.task))
    tables = {
        "task": {
            "name": config.task.name,
            "reference": None if origin is None else origin.reference,
            **_fields(config.task),
        },
        "agent": _fields(config.agent),
        "posterior": posterior_table(config.posterior, unused or {}),
        "learning": _fields(config.learning),
    }
    return {
        name: {key: _plain(value) for key, value in table.items() if value is not None}
        for name, table in tables.items()
    }


def config_from(tables: Tables) -> Config:
    """Configuration described by tables; missing keys take their defaults, unknown keys are errors."""
    check_keys(tables)
    task = dict(tables.get("task", {}))
    kind = task_class(task)
    parameters = {key: value for key, value in task.items() if key not in ("name", "reference")}
    task = make_task(kind.name, **_values(kind, parameters))
    sections = {name: kind(**_values(kind, tables.get(name, {}))) for name, kind in SECTIONS.items()}
    return Config(task=task, posterior=posterior_from(tables)[0], **sections)


def posterior_from(tables: Tables) -> tuple[AbstractPosteriorConfig, Tables]:
    """Posterior described by tables, and the options in them that belong to other posteriors."""
    table = dict(tables.get("posterior", {}))
    chosen = posterior_class(table.pop("kind", "point"))
    own = {name: value for name, value in table.items() if name in option_names(chosen)}
    unused = {}
    for name in [name for name in table if name not in own]:
        owner = owner_of(name)
        option = _values(owner, {name: table[name]})
        owner.check_options(**option)
        if option[name] != owner().options()[name]:
            unused |= option
    return chosen(**_values(chosen, own)), unused


def posterior_table(posterior: AbstractPosteriorConfig, unused: Tables) -> Tables:
    """Table `[posterior]` as it is stored and hashed."""
    flat = LaplaceConfig().options() if posterior.kind in FLAT_KINDS else {}
    return {"kind": posterior.kind} | flat | unused | posterior.options()


def check_keys(tables: Tables) -> None:
    """Raise `ValueError` for unknown sections and keys."""
    for name, table in tables.items():
        check_choice("section", name, ("task", "agent", "posterior", "learning"))
        if not isinstance(table, dict):
            raise ValueError(f"section {name!r} must be a table; got {shown(table)}.")
        if name == "task":
            known = ["name", "reference", *(field.name for field in dataclasses.fields(task_class(table)))]
        elif name == "posterior":
            known = ["kind", *all_options()]
        else:
            known = [field.name for field in dataclasses.fields(SECTIONS[name])]
        for key in table:
            check_choice(f"key of [{name}]", key, known)


def _values(kind: type, table: dict[str, Any]) -> dict[str, Any]:
    """Convert the values of a section to the types of the fields of its dataclass."""
    hints = _hints(kind)
    values = {}
    for key, value in table.items():
        if isinstance(value, list):
            value = tuple(value)
        elif hints.get(key) in FLOATS and isinstance(value, int) and not isinstance(value, bool):
            # Integers beyond the range of float are rejected later, by the check of their range.
            with contextlib.suppress(OverflowError):
                value = float(value)
        elif hints.get(key) is bool and not isinstance(value, bool):
            raise ValueError(f"{key} must be true or false; got {shown(value)}.")
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
