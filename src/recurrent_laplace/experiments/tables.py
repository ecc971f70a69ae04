"""Long tables of numbers, in memory and as parquet."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from recurrent_laplace.files import StorageError, replacing

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


def metrics_frame(
    run: str, seeds: Sequence[int], first_update: int, rows: Mapping[str, np.ndarray]
) -> pl.DataFrame:
    """Metrics of consecutive updates, arrays of shape `(updates, seeds)`; NaN becomes null."""
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
    """Metrics of test tasks, arrays of shape `(tasks, lengths)`; NaN becomes null."""
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


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """Write parquet, atomically."""
    with replacing(path) as temporary:
        try:
            frame.write_parquet(temporary)
        except pl.exceptions.PolarsError as problem:
            raise StorageError(f"cannot write {path}: {str(problem).splitlines()[0]}.") from problem


def read_table(path: Path, schema: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read parquet with these columns, or say in one sentence why not."""
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        line = (str(problem).strip() or "it is no parquet file").splitlines()[0]
        raise StorageError(f"cannot read {path}: {line}") from problem
    if dict(frame.schema) != dict(schema):
        raise StorageError(f"{path} has the columns {frame.columns}; expected {list(schema)}.")
    return frame
