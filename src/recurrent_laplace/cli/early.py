"""Arguments that are read before the main parser; does not import JAX."""

import argparse
import itertools
from pathlib import Path


def peek(argv: list[str], *flags: str) -> argparse.Namespace:
    """Values of some flags, read before the main parser, whose defaults depend on them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in flags:
        parser.add_argument(f"--{flag}")
    try:
        found = parser.parse_known_args(argv)[0]
    except argparse.ArgumentError:
        return parser.parse_args([])  # The main parser has the better error message.
    # The value of `--run=--` is an empty list up to Python 3.12.
    return argparse.Namespace(**{name: "--" if value == [] else value for name, value in vars(found).items()})


def peek_run(argv: list[str]) -> Path | None:
    """The run directory among the arguments; if there is none, the first positional argument."""
    values = [argument for argument in argv if not argument.startswith("-")]
    found = next((value for value in values if (Path(value) / "config.toml").exists()), None)
    if found is None:
        previous = dict(itertools.pairwise(["", *argv]))
        found = next(
            (value for before, value in previous.items() if value in values and before[:1] != "-"), None
        )
    return None if found is None else Path(found)
