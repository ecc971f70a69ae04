"""Commands of the command line and their output."""

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax

from recurrent_laplace import cli
from recurrent_laplace.runs.runner import COMPILATION

OURS = "recurrent-laplace: "
PATIENCE = 240
"""Timeout of a child process in seconds, much longer than any should take."""


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def check(self, code: int) -> "Done":
        assert self.code == code, f"exit code {self.code}\n{self.out}\n{self.err}"
        assert "Traceback" not in self.err, self.err
        return self

    def refused(self, *words: str, code: int = 2) -> str:
        """The one sentence of ours on stderr, or the parser's framed message, which has these words."""
        self.check(code)
        said = self.err.strip()
        if "For full helptext" not in said:
            # `report` names the runs that it leaves out; with a full disk tensorstore may log one more.
            lines = [
                line
                for line in said.splitlines()
                if line.startswith(OURS) or not ("No space left" in line or line.startswith("left out: "))
            ]
            (said,) = lines
            assert said.startswith(OURS)
        unframed = " ".join(re.sub("[│╭╰─╮╯]", " ", said).split())
        for word in words:
            assert word in unframed, unframed
        return said

    @property
    def path(self) -> Path:
        """The run directory, or the table, that the output names."""
        self.check(0)
        found = re.search(r"^(?:finished|written): (.*)$", self.out, re.MULTILINE)
        assert found is not None, self.out
        return Path(found[1])


def finish(process: subprocess.Popen) -> Done:
    """Wait for a child process with pipes; end it after the timeout."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return Done(process.returncode, out, err)


@contextmanager
def float32() -> Iterator[None]:
    """float32 in all threads, as in a user's process: `jax.enable_x64` is for the calling thread alone.

    A command that is refused may leave its compilation running, which must not see another precision.
    """
    before = jax.config.read("jax_enable_x64")
    jax.config.update("jax_enable_x64", False)
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name == COMPILATION:
                thread.join()
        jax.config.update("jax_enable_x64", before)


def run_command(capsys, *args) -> Done:
    """Run a command in this process, in float32 as users run it."""
    code = 0
    try:
        with float32():
            cli.main(list(map(str, args)))
    except SystemExit as end:
        code = int(end.code or 0)
    return Done(code, *capsys.readouterr())
