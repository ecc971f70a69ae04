"""What a verb of the command line said."""

import re
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def path(self) -> Path:
        """The run's directory, or the table, that was announced."""
        assert self.code == 0, self.err
        found = re.search(r"^(?:finished|written): (.*)$", self.out, re.MULTILINE)
        assert found is not None, self.out
        return Path(found[1])
