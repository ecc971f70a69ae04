"""Atomic files under company: several writers of one file, and temporary files of the living and the dead."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from recurrent_laplace.files import StorageError, is_temporary, remove_temporary, replacing, write_text
from recurrent_laplace.runs.checkpoints import Checkpoints

WRITER = """
import sys
from pathlib import Path
from recurrent_laplace.files import write_text

path, text = Path(sys.argv[1]), sys.argv[2] * 100_000
for _ in range(200):
    write_text(path, text)
"""

STUCK = """
import sys, time
from pathlib import Path
from recurrent_laplace.files import replacing

with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def test_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "oracle"
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, word]) for word in ("a", "b", "c")]
    texts = set()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            texts.add(path.read_text())
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert {len(text) for text in texts} == {100_000}
    assert texts <= {word * 100_000 for word in "abc"}
    assert [file.name for file in tmp_path.iterdir()] == ["oracle"]


def test_temporary_files_of_the_dead_are_swept_and_those_of_the_living_are_not(tmp_path):
    path = tmp_path / "table"
    command = [sys.executable, "-c", STUCK, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        (temporary,) = tmp_path.iterdir()
        assert is_temporary(temporary)
        remove_temporary(tmp_path)
        assert temporary.exists()
        process.send_signal(signal.SIGKILL)
    assert temporary.exists()
    remove_temporary(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_temporary_files_of_version_01_are_swept(tmp_path):
    (tmp_path / ".metrics.parquet.writing").write_text("half")
    (tmp_path / ".60.writing").mkdir()
    remove_temporary(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def calls(monkeypatch):
    """The calls of `fsync` and `replace`, in their order."""
    calls = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        calls.append(("fsync", Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        calls.append(("replace", target))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    return calls


def test_content_is_on_the_disk_before_the_name_is(tmp_path, calls):
    with replacing(tmp_path / "table") as temporary:
        temporary.write_text("whole")
    assert calls == [("fsync", temporary), ("replace", tmp_path / "table"), ("fsync", tmp_path)]


def test_checkpoint_is_on_the_disk_before_its_name_is(tmp_path, calls):
    Checkpoints(tmp_path, "a-run").save(3, {"x": jnp.arange(4.0)})
    renamed = calls.index(("replace", tmp_path / "3"))
    flushed = {path for call, path in calls[:renamed] if call == "fsync"}
    (temporary,) = {path.parent for path in flushed if path.name == "SHA256SUMS"}
    stored = [path.relative_to(tmp_path / "3") for path in (tmp_path / "3").rglob("*")]
    assert flushed >= {temporary, *(temporary / path for path in stored)}
    assert len(stored) > 5
    assert calls[renamed + 1 :] == [("fsync", tmp_path)]


def test_refusal_names_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_text(tmp_path / "file" / "below", "text")
    with pytest.raises(StorageError, match="cannot write"):
        write_text(tmp_path / "nowhere" / "below", "text")


def test_what_is_no_regular_file_is_not_replaced(tmp_path):
    """A rename would put a file in the place of a device such as /dev/null, where the user may do so."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    link = tmp_path / "link"
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(StorageError, match=f"^cannot write {path}: it is not a regular file"):
            write_text(path, "text")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]
