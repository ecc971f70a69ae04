"""The commit of the installed package."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from recurrent_laplace.runs import provenance
from recurrent_laplace.runs.provenance import commit, describe_session

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def installed(monkeypatch):
    """Replace the record of how the package was installed."""

    def install(record):
        found = SimpleNamespace(read_text=lambda name: None if record is None else json.dumps(record))
        monkeypatch.setattr(provenance.importlib.metadata, "distribution", lambda name: found)

    return install


def test_an_installation_from_a_repository_has_its_commit(installed):
    installed({"url": "file:///x", "vcs_info": {"vcs": "git", "commit_id": COMMIT}})
    assert commit() == COMMIT


@pytest.mark.parametrize("record", [None, {"url": "file:///x", "dir_info": {}}])
def test_a_copy_of_the_files_has_none(installed, record):
    installed(record)
    assert commit() is None


def test_an_editable_installation_has_that_of_its_files(installed, tmp_path, monkeypatch):
    installed({"url": "file:///x", "dir_info": {"editable": True}})
    file = tmp_path / "provenance.py"
    monkeypatch.setattr(provenance, "__file__", str(file))
    assert commit() is None  # No repository.
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a"]
    file.write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert commit() == head.stdout.strip()
    file.write_text("changed")
    assert commit() == f"{head.stdout.strip()}-dirty"
    monkeypatch.setenv("PATH", "")
    assert commit() is None  # No git.


def test_a_session_records_it():
    session = describe_session([])
    assert session["commit"] == commit()
    assert 1 <= session["available_cores"] <= session["cores"]
