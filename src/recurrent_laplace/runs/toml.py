"""Configurations as TOML tables; does not import JAX, so that `train` can say at once what it does."""

import re
import tomllib
from pathlib import Path
from typing import Any

from recurrent_laplace.files import read_text

Tables = dict[str, Any]
"""A configuration as TOML tables: `[task]`, `[agent]`, `[posterior]`, `[learning]`."""

TOML_BYTES = 1_000_000
"""Maximum length of a TOML file: a configuration has about a thousand bytes, a sweep a few thousand."""
TOML_LEVELS = 100
"""Maximum number of parts of a dotted key: the parser's memory grows with the square of it."""
STRING_OR_COMMENT = re.compile(r""""(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?|#[^\n]*""")


def merge(*layers: Tables) -> Tables:
    """Merge tables; later ones take precedence."""
    merged: Tables = {}
    for layer in layers:
        for name, table in layer.items():
            merged[name] = merged.get(name, {}) | table if isinstance(table, dict) else table
    return merged


def parse_toml(text: str, source: Path) -> Tables:
    """Parse TOML; raise a one-sentence `ValueError` that names `source` if it is invalid."""
    if len(text) > TOML_BYTES:
        raise ValueError(f"{source} is longer than {TOML_BYTES} bytes: it is not a configuration.")
    try:
        if _levels(text) > TOML_LEVELS:
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError as problem:
        raise ValueError(f"{source} is not a configuration: its values are nested too deeply.") from problem
    except ValueError as problem:  # Integers with too many digits raise no `TOMLDecodeError`.
        raise ValueError(f"{source} is not valid TOML: {problem}.") from problem


def _levels(text: str) -> int:
    """Upper bound on the parts of the longest dotted key."""
    without_text = STRING_OR_COMMENT.sub("", text)
    return max(part.count(".") for part in re.split(r"[=,\n]", without_text)) + 1


def read_toml(path: Path) -> Tables:
    """Read a TOML file of at most `TOML_BYTES` bytes."""
    return parse_toml(read_text(path), path)
