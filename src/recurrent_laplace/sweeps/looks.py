"""Looks: a reproduction in stages of more and more seeds, each planned from the verdicts so far.

A scale file is a sweep file with three more keys:

```toml
rules = "2026-11-19"             # date of the decision rules
looks = [5, 10, 20]              # seeds of each configuration after each look

[[stage]]
name = "all-history"
looks = [3]                      # fewer of this stage
```
"""

import dataclasses
import datetime
import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

import tomli_w

from recurrent_laplace.errors import check_size
from recurrent_laplace.files import (
    StorageError,
    is_temporary,
    read_sealed,
    storage_errors,
    write_sealed,
)
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.toml import Tables, parse_toml
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.plan import Job, read_plan

Scale = Literal["smoke", "laptop", "night", "paper"]
"""Scales that ship with the package, as `reproduce-SCALE.toml`."""

FILE = "reproduction.toml"
"""Name of the file that describes a reproduction."""
OWN_KEYS = ("rules", "looks")
"""Keys of a scale file that are not those of a sweep file."""


class Judged(Protocol):
    """A verdict, as far as looks are planned from it."""

    @property
    def open(self) -> tuple[str, ...]:
        """Configurations in comparisons that are open."""
        ...


def look_tables(tables: Tables, number: int) -> Tables:
    """Sweep file of a look with all configurations: the seeds that the look adds to those before.

    Looks count from 1. Stages without such a look are left out; children have the seeds of their parents.
    """
    first = tables.get("seed", 0)
    stages, kept = [], set()
    for stage in tables.get("stage", []):
        stage = dict(stage)
        totals = [0, *stage.pop("looks", tables["looks"])]
        if "parent" in stage:
            if stage["parent"] not in kept:
                continue
        elif number < len(totals):
            stage |= {"seed": first + totals[number - 1], "seeds": totals[number] - totals[number - 1]}
        else:
            continue
        kept.add(stage["name"])
        stages.append(stage)
    return {key: value for key, value in tables.items() if key not in OWN_KEYS} | {"stage": stages}


def plan_look(tables: Tables, source: Path, number: int, verdicts: Sequence[Judged]) -> Tables | None:
    """Sweep file of a look: the first has all configurations, later ones those in open comparisons.

    A pure function of its arguments. None if no more seeds are needed. Configurations come in the order of
    their estimated cost per claim that is open because of them.
    """
    whole = look_tables(tables, number)
    if number == 1:
        return whole
    if not whole["stage"]:
        return None
    claims: Counter[str] = Counter()
    openings = Counter(configuration for verdict in verdicts for configuration in set(verdict.open))
    for earlier in range(1, number):
        for job in read_plan(look_tables(tables, earlier), source).jobs:
            # A derived run of another look has a parent with other seeds, so another configuration.
            claims[lineage(job)] = max(claims[lineage(job)], openings[job.run.configuration])
    costs: dict[str, float] = {}
    for job in read_plan(whole, source).jobs:
        if count := claims[lineage(job)]:
            name = job.run.configuration
            costs[name] = costs.get(name, 0.0) + _seconds_with_parents(job) / count
    if not costs:
        return None
    # Open configurations of optional stages are executed too, once somebody has asked for them.
    stages = [{key: value for key, value in stage.items() if key != "optional"} for stage in whole["stage"]]
    order = sorted(costs, key=lambda name: (costs[name], name))
    return whole | {"stage": stages, "configurations": order}


def lineage(job: Job) -> str:
    """Identity of a job's configuration and those of its ancestors, independent of their seeds."""
    own = dataclasses.replace(job.run, parent=None).configuration
    if job.parent is None or job.run.parent is None:
        return own
    link = job.run.parent
    return f"{lineage(job.parent)}/{link.snapshot}/{link.start}/{own}"


def _seconds_with_parents(job: Job) -> float:
    own = estimate(job.run, job.test_tasks).seconds
    return own if job.parent is None else own + _seconds_with_parents(job.parent)


class Reproduction:
    """The directory of a reproduction: one sweep per look.

    ```
    <out>/
      reproduction.toml          the scale file, with the date of the rules
      look-1/  look-2/ ...       sweeps; the file of each, sweep.toml, is its plan
      report.html  figures/
    ```
    """

    def __init__(self, path: Path, tables: Tables, source: Path):
        self.path = path
        self.tables = tables
        self.source = source

    @classmethod
    def make(cls, path: Path, tables: Tables, source: Path) -> "Reproduction":
        """Reproduction described by a scale file, at `path`, which must be new or hold the same one."""
        check_scale(tables, source)
        for folder in (path, *path.parents):
            if folder.exists() and not folder.is_dir():
                raise StorageError(f"a reproduction cannot be put at {path}: {folder} is a file.")
        file = path / FILE
        if file.exists():
            stored = parse_toml(read_sealed(file), file)
            if stored.get("rules") != tables["rules"]:
                raise StorageError(
                    f"{path} was begun under the rules of {stored.get('rules')}, and this version has those "
                    f"of {tables['rules']}: choose another --out, or use the version that began it."
                )
            if stored != tables:
                raise StorageError(
                    f"{path} is the directory of another reproduction: {file} differs from {source}."
                )
        elif any(not is_temporary(other) for other in path.glob("*")):
            raise StorageError(f"{path} exists and is not the directory of a reproduction: it has no {FILE}.")
        made = cls(path, tables, source)
        made.planned()
        return made

    def planned(self) -> int:
        """Number of looks whose plans exist."""
        names = [file.parent.name.removeprefix("look-") for file in self.path.glob("look-*/sweep.toml")]
        found = sorted(int(name) for name in names if name.isdecimal())
        missing = next((number for number in range(1, len(found) + 1) if number not in found), None)
        if missing is not None:
            raise StorageError(
                f"{self.path} has look-{found[-1]} without look-{missing}, from which it was planned: "
                f"restore {self.path / f'look-{missing}'}, or choose another --out."
            )
        return len(found)

    @property
    def looks(self) -> int:
        """Largest number of looks of any stage."""
        return max(len(owner["looks"]) for owner in (self.tables, *self.tables["stage"]) if "looks" in owner)

    def folder(self, number: int) -> Path:
        """Directory of a look."""
        return self.path / f"look-{number}"

    def sweep(self, number: int, only: tuple[str, ...] = ()) -> SweepDirectory:
        """Sweep of a planned look."""
        return SweepDirectory.open(self.folder(number), only)

    def sweeps(self) -> list[SweepDirectory]:
        """Sweeps of all planned looks."""
        return [self.sweep(number) for number in range(1, self.planned() + 1)]

    def preview(self, only: tuple[str, ...] = ()) -> SweepDirectory:
        """Sweep of the first look, which need not be on disk."""
        if self.planned():
            return self.sweep(1, only)
        return SweepDirectory(self.folder(1), read_plan(look_tables(self.tables, 1), self.source).only(only))

    def write(self, number: int, plan: Tables) -> None:
        """Store the plan of a look; it is complete on the disk before any run of the look begins."""
        with storage_errors("write", self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / FILE).exists():
            write_sealed(self.path / FILE, tomli_w.dumps(self.tables))
        SweepDirectory.make(self.folder(number), plan, self.source).write(plan)


def check_scale(tables: Tables, source: Path) -> None:
    """Raise `ValueError` for a scale file whose looks or rules are invalid."""
    rules = tables.get("rules")
    try:
        datetime.date.fromisoformat(str(rules))
        if not isinstance(rules, str):
            raise ValueError
    except ValueError as problem:
        raise ValueError(f'{source}: rules must be a date such as "2026-11-19"; got {rules!r}.') from problem
    for owner in (tables, *tables.get("stage", [])):
        looks = owner.get("looks", [1] if owner is not tables else None)
        if not isinstance(looks, list) or not looks:
            raise ValueError(f"{source}: looks must be a list of numbers of seeds; got {looks!r}.")
        for seeds in looks:
            check_size("seeds of a look", seeds)
        if any(later <= earlier for earlier, later in itertools.pairwise(looks)):
            raise ValueError(f"{source}: looks must have more and more seeds; got {looks!r}.")
