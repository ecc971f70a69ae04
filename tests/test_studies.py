"""The fuzz study runs, and finds nothing in a few cases of each kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "studies" / "fuzz.py"


@pytest.mark.slow
def test_fuzz():
    few = ("--cases", "2", "--commands", "10", "--processes", "0", "--minutes", "2")
    # Its material is evaluated beside exact Bayes, which unoptimised code takes a minute for.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, FUZZ, *few], capture_output=True, text=True, timeout=400, env=environment
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    count, rest = done.stdout.splitlines()[-1].split(" ", 1)
    assert rest == "cases, 0 failures"
    assert int(count) >= 2 * 20  # Two of each kind of file; a busy machine may leave out some of the rest.
