"""`doctor` imports what it calls present."""

import os
import subprocess
import sys
import time

import pytest

from recurrent_laplace.machine import doctor

BROKEN = {
    "raises": ("raise ImportError('no module\\n  named six')", "ImportError no module named six"),
    "exits": ("import sys; sys.exit(3)", "SystemExit 3"),
    "dies": ("import os; os._exit(7)", "its import ends Python with exit code 7"),
}


@pytest.fixture
def packages(tmp_path, monkeypatch):
    for name, (source, _) in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(source)
    (tmp_path / "works.py").write_text("print('loud'); print('works oddly', flush=True)")
    (tmp_path / "hangs.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.usefixtures("packages")
def test_a_package_that_cannot_be_imported_is_broken_and_says_why():
    broken = doctor.broken_packages(["works", *BROKEN, "json"])
    assert broken == {name: reason for name, (_, reason) in BROKEN.items()}


def test_files_of_the_current_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "colorsys.py").write_text("raise RuntimeError('a file of the current directory was run')")
    monkeypatch.chdir(tmp_path)
    assert doctor.broken_packages(["colorsys"]) == {}


@pytest.mark.usefixtures("packages")
def test_an_import_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS", 2)
    start = time.monotonic()
    broken = doctor.broken_packages(["works", "hangs"])
    assert broken == {"hangs": "its import did not finish within 2 s"}
    assert time.monotonic() - start < 20


def test_the_command_calls_a_broken_package_broken(tmp_path):
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").write_text("raise RuntimeError('built for another Python')")
    done = subprocess.run(
        [sys.executable, "-c", "from recurrent_laplace.cli import main; main()", "doctor"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if line.startswith("wandb"))
    assert lines == {"wandb": "broken: RuntimeError built for another Python"}
    present = next(line for line in done.stdout.splitlines() if line.startswith("extras present"))
    assert "wandb" not in present
