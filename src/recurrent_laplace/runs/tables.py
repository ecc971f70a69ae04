"""Long-format tables of metrics, in memory and as parquet."""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import polars as pl

from recurrent_laplace.files import DamagedError, StorageError, replacing, storage_errors

METRICS_SCHEMA = {
    "run": pl.String,
    "seed": pl.Int64,
    "update": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}
EVALUATION_SCHEMA = {
    "run": pl.String,
    "configuration": pl.String,
    "seed": pl.Int64,
    "task": pl.Int64,
    "t": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}

Parsed = TypeVar("Parsed")

SEAL = "recurrent-laplace.checksum"
"""Metadata key of a table's checksum."""
MARK = "sha256:"
"""Prefix of a checksum."""
BLANK = MARK + 64 * "0"
"""Placeholder of a checksum while it is computed."""


def metrics_frame(
    run: str, seeds: Sequence[int], first_update: int, rows: Mapping[str, np.ndarray]
) -> pl.DataFrame:
    """Table of metrics of consecutive updates, arrays of shape `(updates, seeds)`; NaN becomes null."""
    count = len(next(iter(rows.values())))
    updates, columns = np.meshgrid(np.arange(first_update, first_update + count), seeds, indexing="ij")
    frames = [
        pl.DataFrame(
            {
                "run": run,
                "seed": columns.ravel(),
                "update": updates.ravel(),
                "metric": name,
                "value": np.asarray(values, dtype=np.float64).ravel(),
            },
            schema=METRICS_SCHEMA,
        )
        for name, values in sorted(rows.items())
    ]
    return pl.concat(frames).with_columns(pl.col("value").fill_nan(None)).sort("update", "seed", "metric")


def evaluation_frame(
    run: str, configuration: str, seed: int, lengths: Sequence[int], table: Mapping[str, np.ndarray]
) -> pl.DataFrame:
    """Table of metrics of test tasks, arrays of shape `(tasks, lengths)`; NaN becomes null."""
    count = len(next(iter(table.values())))
    tasks, steps = np.meshgrid(np.arange(count), lengths, indexing="ij")
    frames = [
        pl.DataFrame(
            {
                "run": run,
                "configuration": configuration,
                "seed": seed,
                "task": tasks.ravel(),
                "t": steps.ravel(),
                "metric": name,
                "value": values.ravel(),
            },
            schema=EVALUATION_SCHEMA,
        )
        for name, values in table.items()
    ]
    return pl.concat(frames).with_columns(pl.col("value").fill_nan(None))


def write_table(path: Path, frame: pl.DataFrame, about: Mapping[str, str] | None = None) -> None:
    """Write parquet atomically, with a checksum of the file and the strings of `about` in its metadata."""
    buffer = io.BytesIO()
    try:
        frame.write_parquet(buffer, metadata={**(about or {}), SEAL: BLANK})
        raw = buffer.getvalue()
        seal = f"{MARK}{hashlib.sha256(raw).hexdigest()}"
        with replacing(path) as temporary:
            temporary.write_bytes(raw.replace(BLANK.encode(), seal.encode()))
    except pl.exceptions.PolarsError as problem:
        raise StorageError(f"cannot write {path}: {str(problem).splitlines()[0]}.") from problem


def read_table(path: Path, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read parquet with these columns and verify its checksum; tables of version 0.1 have none."""
    frame = _read(path, pl.read_parquet)
    if dict(frame.schema) != dict(schema):
        raise StorageError(f"{path} has the columns {frame.columns}; expected {list(schema)}.")
    return frame


def read_about(path: Path) -> dict[str, str]:
    """Metadata strings of a table."""
    return dict(_read(path, pl.read_parquet_metadata))


def _read(path: Path, parse: Callable[[io.BytesIO], Parsed]) -> Parsed:
    """Read a file, verify its checksum and parse it."""
    with storage_errors("read", path):
        raw = path.read_bytes()
    _check_digest(path, raw)
    try:
        return parse(io.BytesIO(raw))
    except (OSError, pl.exceptions.PolarsError) as problem:
        line = (str(problem).strip() or "it is not a parquet file").splitlines()[0]
        raise DamagedError(f"cannot read {path}: {line}") from problem


def _check_digest(path: Path, raw: bytes) -> None:
    """Raise `DamagedError` for a changed table. Its digest is that of the file with `BLANK` in its place."""
    if SEAL.encode() not in raw and MARK.encode() not in raw:
        return
    start = raw.rfind(MARK.encode())
    end = start + len(BLANK)
    digest = hashlib.sha256(raw[:start] + BLANK.encode() + raw[end:]).hexdigest()
    if raw[start:end] != f"{MARK}{digest}".encode():
        raise DamagedError(f"{path} was changed after it was written: its checksum differs.")
