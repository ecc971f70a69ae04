"""Every example runs as it is, from any folder, and is short enough to be read."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


# A line that each must print. Numbers are left open where they depend on the machine's rounding.
EXPECTED = {
    "add_a_cell": r"^Jacobian and jacfwd differ by \d\.\de-1\d$",
    "add_a_posterior": r"^update and unroll differ by \d\.\de[+-]\d\d$",
    "deploy": r"^with the library, saved and continued:$",
    "add_a_task": r"^regret of 20 doors: \d\.\d\d at first, \d\.\d\d in the end$",
    "online": r"^t 12  skipped: the input has NaN or infinity",
    "posthoc": r"^weights unchanged: True$",
}
OTHER_LIBRARIES = {
    "flax_agent": r"^largest difference from Flax's own .*: \de-0\d$",
    "sb3_alarm": r"^nothing +\d+ +\d+ +(\d+|inf) +\d+$",
    "sb3_uncertainty": r"^ *50 +-?\d+\.\d+ +\d",
    "torch_lstm": r"^largest difference from torch's own .*: \de-0\d$",
}
EACH = [
    *(pytest.param(name, marks=pytest.mark.slow) for name in EXPECTED),
    *(pytest.param(name, marks=pytest.mark.interop) for name in OTHER_LIBRARIES),
]
EXPECTED |= OTHER_LIBRARIES


def run(name: str, folder: Path) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []
    return done.stdout


def test_every_example_is_known():
    # One draws the README's picture and is long for that.
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*EXPECTED, "belief"}


@pytest.mark.parametrize("name", EXPECTED)
def test_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 80


@pytest.mark.parametrize("name", EACH)
def test_runs(name, tmp_path):
    out = run(name, tmp_path)
    assert re.search(EXPECTED[name], out, re.MULTILINE), out
    assert "nan" not in out
    match name:
        case "add_a_task":
            first, last = re.findall(r"\d\.\d\d", out.splitlines()[-1])
            assert float(last) < float(first) / 2, out
        case "online":
            entropies = [float(value) for value in re.findall(r"entropy +([\d.]+)", out)]
            prior, first, second = entropies[0], entropies[1:9], entropies[9:]
            assert len(second) == 7, "one of the eight inputs is skipped"
            assert second[0] > first[-1], "a reset forgets"
            for episode in (first, second):
                assert sorted([prior, *episode], reverse=True) == [prior, *episode]
        case "sb3_alarm" | "sb3_uncertainty":
            assert "Predicts the next observation " in out, "the belief is informative"
        case "posthoc":
            rows = [line.split() for line in out.splitlines() if re.match(r" +\d+ ", line)]
            entropies = [float(row[1]) for row in rows]
            assert len(rows) == 6
            assert sorted(entropies, reverse=True) == entropies, "with forgetting 1 entropy can only fall"
