"""`doctor`: a report on this machine."""

import dataclasses

import tyro


@dataclasses.dataclass(frozen=True)
class Doctor:
    """Check this machine: versions, devices, threads, known problems, optional packages."""


def main(argv: list[str]) -> None:
    """Run the command."""
    tyro.cli(Doctor, prog="recurrent-laplace doctor", args=argv)
    from recurrent_laplace.machine.doctor import report

    report()
