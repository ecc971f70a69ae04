"""Rows of benchmark results, as a table and as JSON."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from recurrent_laplace.files import write_text

ProgressCallback = Callable[[str], None]
"""Receives one line of progress."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of results; the benchmark defines the reference and the direction of the ratio."""

    name: str
    ours_ms: float
    reference_ms: float
    ratio: float
    peak_mb: float
    more: dict[str, str] = dataclasses.field(default_factory=dict)
    """Further columns of the printed table, which are not written to the file."""

    def to_json(self) -> dict[str, str | float]:
        """The row as it is written to the file."""
        return {name: value for name, value in vars(self).items() if name != "more"}


def make_table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    """Format the rows as a table; `headings` are those of the columns that every row has.

    Rows without the further columns of the last row are left to the JSON file.
    """
    columns = rows[-1].more
    table = Table(*headings, *columns)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in (row for row in rows if row.more.keys() == columns.keys()):
        numbers = f"{row.ours_ms:.1f}", f"{row.reference_ms:.1f}", f"{row.ratio:.2f}", f"{row.peak_mb:.1f}"
        table.add_row(row.name, *numbers, *row.more.values())
    return table


def write_json(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a JSON list."""
    write_text(path, json.dumps([row.to_json() for row in rows], indent=2) + "\n")
