"""The command line as a subprocess, as users run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.verbs import Done

SMALL = "--batch 2 --steps 4 --input-size 8 --hidden-size 8 --features 4 --repeats 1"


def command(*args: str, cwd: Path | None = None) -> Done:
    program = Path(sys.executable).parent / "recurrent-laplace"
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=240, check=False, cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_bench_writes_the_rows(tmp_path):
    out = tmp_path / "rows.json"
    names = ["rnn", "dense-sum"]
    done = command("bench", "posterior", *SMALL.split(), "--only", *names, "--json", str(out))
    done.check(0)
    rows = json.loads(out.read_text())
    assert [row["name"] for row in rows] == names
    for row in rows:
        assert set(row) == {"name", "ours_ms", "reference_ms", "ratio", "peak_mb"}
        assert row["ratio"] == pytest.approx(row["reference_ms"] / row["ours_ms"])
        assert row["peak_mb"] > 0
        assert row["name"] in done.out


def test_too_little_memory_ends_in_one_sentence():
    done = command("bench", "posterior", "--batch", "1000000", "--only", "dense-all")
    done.refused("dense-all needs about", "TB", "available", "--batch")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["train", "--task=--"], "recurrent-laplace: task must be one of"),
        (["train", "--task="], "recurrent-laplace: task must be one of"),
        (["monitor", "--run=--"], "recurrent-laplace: there is no run at --."),
    ],
)
def test_two_dashes_after_an_equals_sign_are_a_value(args, sentence, tmp_path):
    assert command(*args, cwd=tmp_path).refused().startswith(sentence)
    assert not list(tmp_path.iterdir())


def test_unknown_verb_lists_the_verbs():
    done = command("trian").check(2)
    assert "bench" in done.err
    assert "doctor" in done.err


def test_help_does_not_import_jax():
    script = "import sys, recurrent_laplace.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_doctor_reports_the_known_problem():
    done = command("doctor").check(0)
    for word in ("jaxlib", "devices", "cores", "known problem", "extras"):
        assert word in done.out
