"""Verbs of the command line, and what they said."""

import re
from pathlib import Path
from typing import NamedTuple

import jax

from recurrent_laplace import cli


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def path(self) -> Path:
        """The run's directory, or the table, that was announced."""
        assert self.code == 0, self.err
        found = re.search(r"^(?:finished|written): (.*)$", self.out, re.MULTILINE)
        assert found is not None, self.out
        return Path(found[1])


def run_command(capsys, *args) -> Done:
    """The command line, in float32 as people run it."""
    code = 0
    try:
        with jax.enable_x64(False):
            cli.main(list(map(str, args)))
    except SystemExit as end:
        code = int(end.code or 0)
    return Done(code, *capsys.readouterr())
