"""The command line: one verb each. What a verb needs is imported when it runs."""

import dataclasses
import sys
from typing import NoReturn

from tyro.extras import SubcommandApp

from recurrent_laplace.benchmarks.options import PosteriorBench


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, devices, threads, known problems, optional packages."""


def main(argv: list[str] | None = None) -> None:
    """Run one verb; a mistake in what was asked ends with one sentence and exit code 2."""
    bench = SubcommandApp()
    bench.command(name="posterior")(PosteriorBench)
    app = SubcommandApp()
    app.command(bench, name="bench", help="Measure: ours and a reference, side by side in one process.")
    app.command(name="doctor")(Doctor)
    command = app.cli(
        prog="recurrent-laplace", description="Turn a recurrent agent into a Bayesian one.", args=argv
    )
    match command:
        case PosteriorBench():
            _bench(command)
        case Doctor():
            from recurrent_laplace.experiments.doctor import report

            report()


def _bench(options: PosteriorBench) -> None:
    from rich.console import Console
    from rich.table import Table

    from recurrent_laplace.benchmarks.posterior import run, write_json
    from recurrent_laplace.experiments.memory import TooLargeError

    try:
        options.check()
    except ValueError as problem:
        _fail(problem)
    console = Console()
    sizes = f"B {options.batch}, T {options.steps}, D {options.input_size}, H {options.hidden_size}"
    console.print(f"Gradient of (unroll, one sample, KL): {sizes}, F {options.features}, float32.")
    table = Table("variant", "ours, ms", "reference, ms", "reference / ours", "memory of ours, MB")
    for column in table.columns[1:]:
        column.justify = "right"
    rows = []
    measured = run(options)
    try:
        for name in options.only:
            with console.status(f"{name}: compile, then take turns with the reference"):
                row = next(measured)
            rows.append(row)
            table.add_row(
                row.name,
                f"{row.ours_ms:.1f}",
                f"{row.reference_ms:.1f}",
                f"{row.ratio:.2f}",
                f"{row.peak_mb:.1f}",
            )
            if not console.is_terminal:
                console.print(f"{name}: {row.ours_ms:.1f} ms, reference {row.reference_ms:.1f} ms")
    except TooLargeError as problem:
        _fail(problem)
    console.print(table)
    if options.json is not None:
        try:
            write_json(rows, options.json)
        except OSError as problem:
            _fail(f"cannot write {options.json}: {problem.strerror}.")


def _fail(problem: object) -> NoReturn:
    print(f"recurrent-laplace: {problem}", file=sys.stderr)
    raise SystemExit(2)
