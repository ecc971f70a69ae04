"""`doctor`: is this machine in order."""

import dataclasses

import tyro


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, devices, threads, known problems, optional packages."""


def main(argv: list[str]) -> None:
    """Print a report."""
    tyro.cli(Doctor, prog="recurrent-laplace doctor", args=argv)
    from recurrent_laplace.experiments.doctor import report

    report()
