"""Checksums of tables, TOML and JSON files: every changed byte is noticed, and old files are still read."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from recurrent_laplace.files import StorageError, read_json, read_sealed, write_json, write_sealed
from recurrent_laplace.runs.provenance import read_sessions, write_sessions
from recurrent_laplace.runs.tables import (
    METRICS_SCHEMA,
    metrics_frame,
    read_about,
    read_table,
    write_table,
)

FRAME = metrics_frame("a-run", [0, 1], 1, {"loss": np.arange(6.0).reshape(3, 2)})
TOML = 'seed = 1\n\n[task]\nname = "bandit"\narms = 5\n'
SESSIONS = [
    {"command": ["train", "--seed", "1"], "began": "2026-01-01T00:00:00+00:00", "update_seconds": 0.5}
]


def read_metrics(path: Path) -> Any:
    return read_table(path, METRICS_SCHEMA).rows()


KINDS: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "table": (lambda path: write_table(path, FRAME, {"update": "3"}), read_metrics),
    "texts of a table": (lambda path: write_table(path, FRAME, {"update": "3"}), read_about),
    "toml": (lambda path: write_sealed(path, TOML), read_sealed),
    "json": (lambda path: write_json(path, {"attempts": 1, "error": "", "since": 0.1}), read_json),
    "provenance": (lambda path: write_sessions(path, SESSIONS), read_sessions),
}


def read_or_refuse(read: Callable[[Path], Any], path: Path) -> Any:
    """What is read, or None where it is refused in one sentence that names the file."""
    try:
        return read(path)
    except StorageError as refusal:
        said = str(refusal)
    assert str(path) in said
    assert len(said.splitlines()) == 1
    return None


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_counts(kind, tmp_path):
    write, read = KINDS[kind]
    path = tmp_path / "file"
    write(path)
    original, value = path.read_bytes(), read(path)
    generator = random.Random(0)
    for position in range(len(original)):
        changed = bytearray(original)
        changed[position] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        found = read_or_refuse(read, path)
        # White space of JSON has no meaning.
        assert found is None or (kind in ("json", "provenance") and found == value)


@pytest.mark.parametrize("kind", KINDS)
def test_every_truncation_is_noticed(kind, tmp_path):
    write, read = KINDS[kind]
    path = tmp_path / "file"
    write(path)
    original, value = path.read_bytes(), read(path)
    for length in range(len(original)):
        path.write_bytes(original[:length])
        found = read_or_refuse(read, path)
        # Without its last line break a JSON file is still whole; a few characters are a comment in TOML.
        assert found is None or found == value or (kind == "toml" and length < len("# sha256"))


def test_files_of_version_01_are_read(tmp_path):
    path = tmp_path / "file"
    FRAME.write_parquet(path)
    assert read_table(path, METRICS_SCHEMA).equals(FRAME)
    path.write_text(TOML)
    assert read_sealed(path) == TOML
    path.write_text('{"sessions": []}')
    assert read_sessions(path) == []


def test_tables_keep_texts(tmp_path):
    write_table(tmp_path / "table", FRAME, {"update": "3", "weights": "abc"})
    about = read_about(tmp_path / "table")
    assert (about["update"], about["weights"]) == ("3", "abc")
    assert pl.read_parquet(tmp_path / "table").equals(FRAME)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        '{"sessions": {}}',
        '{"sessions": [1]}',
        '{"sessions": [{"command": 5}]}',
        '{"sessions": [{"command": [5]}]}',
        '{"sessions": [{"update_seconds": "a"}]}',
        '{"sessions": [{"update_seconds": NaN}]}',
        '{"sessions": [{"update_seconds": Infinity}]}',
        '{"sessions": [{"update_seconds": -1.0}]}',
        '{"sessions": [{"update_seconds": 1e308}]}',
        '{"sessions": [{"compile_seconds": true}]}',
        '{"sessions": [{"packages": []}]}',
        '{"sessions": ' + 100_000 * "[" + "}",
    ],
    ids=lambda text: text[:40],
)
def test_provenance_of_the_wrong_types_is_refused(text, tmp_path):
    path = tmp_path / "provenance.json"
    path.write_text(text)
    with pytest.raises(StorageError, match="damaged"):
        read_sessions(path)


def test_long_texts_are_not_read(tmp_path):
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(StorageError, match="16 MiB"):
        read_sealed(path)
