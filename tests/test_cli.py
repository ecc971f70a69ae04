"""The command line, as a child process, the way people use it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = [
    "--batch",
    "2",
    "--steps",
    "4",
    "--input-size",
    "8",
    "--hidden-size",
    "8",
    "--features",
    "4",
    "--repeats",
    "1",
]


def command(*args: str) -> subprocess.CompletedProcess:
    program = Path(sys.executable).parent / "recurrent-laplace"
    return subprocess.run([program, *args], capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.slow
def test_bench_writes_the_rows(tmp_path):
    out = tmp_path / "rows.json"
    names = ["rnn", "dense-sum"]
    done = command("bench", "posterior", *SMALL, "--only", *names, "--json", str(out))
    assert done.returncode == 0, done.stderr
    rows = json.loads(out.read_text())
    assert [row["name"] for row in rows] == names
    for row in rows:
        assert set(row) == {"name", "ours_ms", "reference_ms", "ratio", "peak_mb"}
        assert row["ratio"] == pytest.approx(row["reference_ms"] / row["ours_ms"])
        assert row["peak_mb"] > 0
        assert row["name"] in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch", "0"], ["batch", "at least 1", "got 0"]),
        (["--only", "dense"], ["only", "'dense-sum'", "got 'dense'"]),
        (["--seconds", "-1"], ["seconds", "(0, inf)", "got -1"]),
        (
            ["--batch", "1000000", "--only", "dense-all"],
            ["dense-all needs about", "TB", "available", "--batch"],
        ),
        (["--only", "rnn", *SMALL, "--json", "/no/such/folder/rows.json"], ["cannot write", "No such file"]),
    ],
)
def test_mistakes_end_in_one_sentence(args, words):
    done = command("bench", "posterior", *args)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    (sentence,) = done.stderr.strip().splitlines()
    for word in words:
        assert word in sentence


def test_unknown_verb_names_the_verbs():
    done = command("trian")
    assert done.returncode == 2
    assert "bench" in done.stderr
    assert "doctor" in done.stderr


def test_help_does_not_import_jax():
    script = "import sys, recurrent_laplace.cli; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_doctor_reports_the_known_problem():
    done = command("doctor")
    assert done.returncode == 0, done.stderr
    for word in ("jaxlib", "devices", "cores", "known problem", "extras"):
        assert word in done.stdout
