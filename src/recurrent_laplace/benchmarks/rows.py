"""What every benchmark yields, and how it is shown and kept."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from recurrent_laplace.files import write_text

Say = Callable[[str], None]
"""Takes a line about how far the work is."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a result; its benchmark says what the reference is, and which way the ratio goes."""

    name: str
    ours_ms: float
    reference_ms: float
    ratio: float
    peak_mb: float
    more: dict[str, str] = dataclasses.field(default_factory=dict)
    """Further columns, for people: they are shown and not kept."""

    def kept(self) -> dict[str, str | float]:
        """The line as it is in the file."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "more"
        }


def make_table(headings: Sequence[str], rows: Sequence[Row]) -> Table:
    """The rows as a table; `headings` are of the columns that every row has."""
    table = Table(*headings, *rows[0].more)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        numbers = f"{row.ours_ms:.1f}", f"{row.reference_ms:.1f}", f"{row.ratio:.2f}", f"{row.peak_mb:.1f}"
        table.add_row(row.name, *numbers, *row.more.values())
    return table


def write_json(rows: Sequence[Row], path: Path) -> None:
    """The rows as a JSON list."""
    write_text(path, json.dumps([row.kept() for row in rows], indent=2) + "\n")
