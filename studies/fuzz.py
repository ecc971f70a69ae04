"""Fuzz study of the readers and commands: damaged files, random configurations and random command lines.

python studies/fuzz.py --seed 1 --minutes 9

Prints the counts of outcomes, and every failure with the command that reproduces it; exits with 1 if there
is any. A single case is repeated by `--only KIND --begin INDEX --cases 1`. The results are in
docs/lab/robustness.md.
"""

import argparse
import contextlib
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tomli_w
from fuzz_commands import MEMORY, commands, flags_of, fuzz_command, fuzz_process, random_command
from fuzz_material import Kind, Material, configured, kinds, make_material
from fuzz_outcomes import FAILURES, OUTCOMES, Case, attempt
from rich import box
from rich.console import Console
from rich.table import Table

from recurrent_laplace.files import read_text
from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.runs.config import SECTIONS
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.toml import parse_toml
from recurrent_laplace.sweeps.plan import STAGE_KEYS, TOP_KEYS, read_plan
from recurrent_laplace.tasks import TASKS

# Mutations of bytes.


def _span(raw: bytes, generator: random.Random) -> tuple[int, int]:
    begin = generator.randrange(len(raw))
    return begin, min(len(raw), begin + generator.choice((1, 2, 8, 32, 200, 2000)))


def flip_bit(raw: bytes, generator: random.Random) -> bytes:
    """One bit inverted."""
    at = generator.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << generator.randrange(8)]) + raw[at + 1 :]


def replace_byte(raw: bytes, generator: random.Random) -> bytes:
    """One byte replaced."""
    at = generator.randrange(len(raw))
    return raw[:at] + generator.randbytes(1) + raw[at + 1 :]


def truncate(raw: bytes, generator: random.Random) -> bytes:
    """The end is missing."""
    return raw[: generator.randrange(len(raw))]


def remove_chunk(raw: bytes, generator: random.Random) -> bytes:
    """Some bytes are missing."""
    begin, end = _span(raw, generator)
    return raw[:begin] + raw[end:]


def duplicate_chunk(raw: bytes, generator: random.Random) -> bytes:
    """Some bytes are there twice."""
    begin, end = _span(raw, generator)
    return raw[:end] + raw[begin:]


def zero_chunk(raw: bytes, generator: random.Random) -> bytes:
    """Some bytes are zero, as after a power cut."""
    begin, end = _span(raw, generator)
    return raw[:begin] + bytes(end - begin) + raw[end:]


def swap_chunks(raw: bytes, generator: random.Random) -> bytes:
    """Two ranges have changed places."""
    a, b, c = sorted(generator.randrange(len(raw) + 1) for _ in range(3))
    return raw[:a] + raw[b:c] + raw[a:b] + raw[c:]


def append(raw: bytes, generator: random.Random) -> bytes:
    """Some bytes more at the end."""
    return raw + generator.randbytes(generator.choice((1, 10, 1000)))


def empty(raw: bytes, generator: random.Random) -> bytes:
    """Nothing is left."""
    return b""


MUTATIONS = (
    *(flip_bit, replace_byte, truncate, remove_chunk, duplicate_chunk),
    *(zero_chunk, swap_chunks, append, empty),
)


def fuzz_file(kind: Kind, value: Any, seed: int, index: int) -> Case:
    """Damage a file whose value is known, read it, and restore it."""
    generator = random.Random(f"{seed} {kind.name} {index}")
    path, mutate = generator.choice(kind.paths), generator.choice(MUTATIONS)
    original = path.read_bytes()

    def judge(found: Any) -> str:
        if found == value:
            return "same value"
        return "changed value" if kind.sealed else "accepted"

    path.write_bytes(mutate(original, generator))
    try:
        return Case(kind.name, index, f"{mutate.__name__} in {path.name}", *attempt(kind.read, judge))
    finally:
        path.write_bytes(original)


# Configurations.

STRANGE: tuple[Any, ...] = (
    *(0, 1, 2, -1, 7, 2**31, 2**63 - 1, -(2**63), 0.0, 0.5, -1.5, 1e-300, 1e300),
    *(float("inf"), float("nan"), True, False),
    *("", "all", "laplace", "bandit", "1", "ä" * 300, "a\nb", "\x07"),
    *([], [0], [1, 2], ["a"], [[]], [[1], {"a": 1}], {}, {"name": 1}, {"a": {"b": {"c": []}}}),
)
"""Values for any key: some right somewhere, most wrong everywhere."""


def _value(generator: random.Random) -> Any:
    return 10 ** generator.randrange(400) if generator.random() < 0.05 else generator.choice(STRANGE)


def random_section(name: str, task: str, generator: random.Random) -> Any:
    """A table with keys of a section, some of them unknown, and strange values."""
    if generator.random() < 0.05:
        return _value(generator)
    posterior = generator.choice(sorted(POSTERIORS))
    kind = {"task": TASKS[task], "posterior": POSTERIORS[posterior]}.get(name, SECTIONS.get(name))
    known = [*getattr(kind, "__dataclass_fields__", {}), "nothing", "ä.b", ""]
    known += ["kind"] * (name == "posterior")
    count = generator.choice((0, 1, 1, 1, 2, 3))
    table = {generator.choice(known): _value(generator) for _ in range(count)}
    named = {"task": {"name": task}, "posterior": {"kind": table.get("kind", posterior)}}
    return table | named.get(name, {})


def random_config(generator: random.Random) -> dict[str, Any]:
    """Tables for --config."""
    task = generator.choice(sorted(TASKS))
    names = generator.sample(("task", "posterior", *SECTIONS), generator.randrange(5))
    if generator.random() < 0.1:
        names.append(generator.choice(("schema", "parent", "calibration", "nothing", "seeds")))
    return {name: random_section(name, task, generator) for name in names}


def random_sweep(generator: random.Random) -> dict[str, Any]:
    """Tables of a sweep file: a right one with strange values in a few places."""
    tables: dict[str, Any] = {"preset": "smoke", "stage": []}
    for name in generator.sample(("a", "b", "a", "c"), generator.choice((1, 1, 2, 3))):
        stage: dict[str, Any] = {"name": name, "set": random_config(generator)}
        if generator.random() < 0.3:
            stage["axes"] = random_config(generator)
        if tables["stage"] and generator.random() < 0.5:
            stage |= {"parent": "a", "snapshots": [generator.choice((0.5, 0.75, 1.0))]}
        if generator.random() < 0.5:
            stage[generator.choice((*STAGE_KEYS, "nothing"))] = _value(generator)
        tables["stage"].append(stage)
    if generator.random() < 0.4:
        tables[generator.choice((*TOP_KEYS, "nothing"))] = _value(generator)
    return tables


def read_sweep(path: Path) -> None:
    """A sweep file as `sweep --dry-run` reads it."""
    for job in read_plan(parse_toml(read_text(path), path), path).jobs[:20]:
        estimate(job.run)


CONFIGURATIONS: dict[str, tuple[Callable[[random.Random], dict[str, Any]], Callable[[Path], Any]]] = {
    "random --config": (random_config, configured),
    "random sweep file": (random_sweep, read_sweep),
}


def fuzz_configuration(name: str, folder: Path, seed: int, index: int) -> Case:
    """Write random tables, and read them."""
    make, read = CONFIGURATIONS[name]
    tables = make(random.Random(f"{seed} {name} {index}"))
    path = folder / "random.toml"
    path.write_text(tomli_w.dumps(tables))
    return Case(name, index, repr(tables), *attempt(lambda: read(path), lambda _: "accepted"))


def fuzz_all(material: Material, seed: int, options: argparse.Namespace) -> Iterator[Case]:
    """All cases, part after part, each within its share of the time."""
    began = time.monotonic()

    def is_over(share: float) -> bool:
        return time.monotonic() - began > 60 * options.minutes * share

    def chosen(name: str) -> bool:
        return options.only is None or options.only == name

    files = [kind for kind in kinds(material) if chosen(kind.name)]
    values = {kind.name: kind.read() for kind in files}
    for index in range(options.begin, options.begin + options.cases):
        for kind in files:
            if is_over(0.4):
                break
            yield fuzz_file(kind, values[kind.name], seed, index)
    for index in range(options.begin, options.begin + 4 * options.cases):
        for name in filter(chosen, CONFIGURATIONS):
            if is_over(0.5):
                break
            yield fuzz_configuration(name, material.root, seed, index)
    right = commands(material)
    flags = {verb: flags_of(verb, base) for verb, base in right.items()}
    parts = (("command", options.commands, 0.75), ("process", options.processes, 0.95))
    for name, count, share in parts:
        for index in range(options.begin, options.begin + count * chosen(name)):
            if is_over(share):
                break
            argv = random_command(random.Random(f"{seed} {name} {index}"), right, flags)
            yield fuzz_command(argv, index) if name == "command" else fuzz_process(argv, index, material.root)


def counts_table(cases: list[Case]) -> Table:
    """How many cases of each kind had which outcome."""
    counts = Counter((case.kind, case.outcome) for case in cases)
    table = Table("kind", *OUTCOMES, "all", box=box.MARKDOWN)
    for column in table.columns[1:]:
        column.justify = "right"
    for kind in dict.fromkeys(case.kind for case in cases):
        row = [counts[kind, outcome] for outcome in OUTCOMES]
        table.add_row(kind, *map(str, row), str(sum(row)))
    total = [sum(counts[key] for key in counts if key[1] == outcome) for outcome in OUTCOMES]
    table.add_row("all", *map(str, total), str(sum(total)))
    return table


@contextlib.contextmanager
def material_in_use() -> Iterator[Material]:
    """The material in a temporary folder, which is the current one meanwhile."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield make_material(Path(folder))


def main() -> None:
    """Run all cases, print the counts and the failures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=20.0, help="of all cases together")
    parser.add_argument(
        "--cases", type=int, default=1000, help="of each kind of file; four times as many tables"
    )
    parser.add_argument("--commands", type=int, default=3000, help="in this process")
    parser.add_argument("--processes", type=int, default=40, help="commands in processes of their own")
    parser.add_argument("--only", help="one kind, as the table names it")
    parser.add_argument("--begin", type=int, default=0, help="number of the first case of each kind")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    cases = []
    with material_in_use() as material:
        for case in fuzz_all(material, options.seed, options):
            cases.append(case)
            if case.outcome in FAILURES:
                print(f"{case.outcome}: --seed {options.seed} --only {case.kind!r} --begin {case.index}")
                print(f"  {case.what[:400]}\n  {case.detail[-1500:]}", flush=True)
    Console(width=140).print(counts_table(cases))
    failed = sum(case.outcome in FAILURES for case in cases)
    print(f"{len(cases)} cases, {failed} failures")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
