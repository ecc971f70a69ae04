"""Saving figures: atomic, and always with the same bytes."""

import errno
import os
import re

import pytest
from matplotlib.figure import Figure

from recurrent_laplace.files import StorageError
from recurrent_laplace.report.style import save_figure


def small_figure():
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([0, 1])
    return figure


MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml", ".PNG": b"\x89PNG"}


@pytest.mark.parametrize("suffix", MAGIC)
def test_the_suffix_is_the_format_and_the_bytes_are_always_the_same(suffix, tmp_path):
    path = tmp_path / "new" / "folder" / f"figure{suffix}"
    assert save_figure(small_figure(), str(path)) == path
    first = path.read_bytes()
    assert first.startswith(MAGIC[suffix])
    save_figure(small_figure(), path)
    assert path.read_bytes() == first
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["figure.bmp", "figure"])
def test_other_suffixes_are_refused(name, tmp_path):
    suffix = name.removeprefix("figure")
    message = f"the suffix of a figure's file name must be one of '.png', '.pdf', '.svg'; got {suffix!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        save_figure(small_figure(), tmp_path / "folder" / name)
    assert not list(tmp_path.iterdir())


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "figure.png"
    path.write_text("old")
    figure = small_figure()

    def fail(where, **options):
        where.write_text("half")
        # As of a write: without a file name.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    figure.savefig = fail
    with pytest.raises(StorageError, match=rf"^cannot write {path}: No space left on device\.$"):
        save_figure(figure, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
