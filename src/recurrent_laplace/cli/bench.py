"""`bench`: benchmarks against references."""

import importlib
import sys

from tyro.extras import SubcommandApp

from recurrent_laplace.benchmarks.options import (
    Bench,
    EvaluateBench,
    GrowthBench,
    PosteriorBench,
    SeedsBench,
    SolveBench,
    StartupBench,
    UpdateBench,
)
from recurrent_laplace.cli import fail

BENCHES: dict[str, type[Bench]] = {
    "posterior": PosteriorBench,
    "update": UpdateBench,
    "evaluate": EvaluateBench,
    "solve": SolveBench,
    "seeds": SeedsBench,
    "startup": StartupBench,
    "growth": GrowthBench,
}
"""Options of each benchmark; the module of the same name in `benchmarks` runs it."""

WIDTH = 140
"""Columns of the output when it is not a terminal."""


def main(argv: list[str]) -> None:
    """Run the command."""
    app = SubcommandApp()
    for name, options in BENCHES.items():
        app.command(name=name)(options)
    chosen = app.cli(prog="recurrent-laplace bench", args=argv)
    try:
        chosen.check()
    except ValueError as problem:
        fail(problem)
    (name,) = (name for name, options in BENCHES.items() if type(chosen) is options)
    _measure(name, chosen)


def _measure(name: str, options: Bench) -> None:
    from rich.console import Console

    from recurrent_laplace.benchmarks.child import ChildDiedError
    from recurrent_laplace.benchmarks.rows import make_table, write_json
    from recurrent_laplace.files import StorageError
    from recurrent_laplace.machine.memory import TooLargeError
    from recurrent_laplace.runs.provenance import describe_machine

    bench = importlib.import_module(f"recurrent_laplace.benchmarks.{name}")
    try:
        rows = list(bench.run(options, lambda line: print(line, file=sys.stderr, flush=True)))
        console = Console()
        if not console.is_terminal:
            console = Console(width=WIDTH)
        console.print(bench.title(options), highlight=False)
        console.print(make_table(bench.HEADINGS, rows))
        console.print(describe_machine(), highlight=False)
        if options.json is not None:
            write_json(rows, options.json)
    except (TooLargeError, StorageError) as problem:
        fail(problem)
    except ChildDiedError as problem:
        fail(problem, code=1)
    except KeyboardInterrupt:
        fail("stopped: nothing was written.", code=130)
