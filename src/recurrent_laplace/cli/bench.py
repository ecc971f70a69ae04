"""`bench`: measurements."""

from tyro.extras import SubcommandApp

from recurrent_laplace.benchmarks.options import PosteriorBench
from recurrent_laplace.cli import fail


def main(argv: list[str]) -> None:
    """Run one benchmark."""
    app = SubcommandApp()
    app.command(name="posterior")(PosteriorBench)
    _bench_posterior(app.cli(prog="recurrent-laplace bench", args=argv))


def _bench_posterior(options: PosteriorBench) -> None:
    from rich.console import Console
    from rich.table import Table

    from recurrent_laplace.benchmarks.posterior import run, write_json
    from recurrent_laplace.experiments.memory import TooLargeError

    try:
        options.check()
    except ValueError as problem:
        fail(problem)
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
        fail(problem)
    console.print(table)
    if options.json is not None:
        try:
            write_json(rows, options.json)
        except OSError as problem:
            fail(f"cannot write {options.json}: {problem.strerror}.")
