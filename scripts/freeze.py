"""Write constraints/tested.txt: the versions that are installed here of every direct dependency.

    .venv/bin/python scripts/freeze.py constraints/tested.txt

reads the core dependencies and the extras of pyproject.toml, and everything that the core needs in turn. Run
it in the environment that `.ci/run` passed with. Versions come from the metadata of the installed packages,
so no index, host or path can end up in the file.
"""

import argparse
import importlib.metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
# What works on the code, not with it; `references` holds exact versions already.
LEFT_OUT = ("lint", "docs", "references")
HEADER = """\
# Versions of the core's dependencies and of the extras' direct ones that CI passes with:
#     pip install -c constraints/tested.txt recurrent-laplace
# Written by scripts/freeze.py.
"""


def direct() -> tuple[list[Requirement], list[Requirement]]:
    """Requirements of the core, and of the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_extras = [text for name, texts in extras.items() if name not in LEFT_OUT for text in texts]
    return [Requirement(text) for text in project["dependencies"]], [Requirement(text) for text in of_extras]


def applies(requirement: Requirement) -> bool:
    """Whether this Python and platform need it, without extras."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def closure(requirements: list[Requirement]) -> set[str]:
    """Names of what `requirements` need in turn, themselves included."""
    found: set[str] = set()
    waiting = [requirement.name for requirement in requirements]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found:
            continue
        found.add(name)
        needed = (Requirement(text) for text in importlib.metadata.requires(name) or ())
        waiting += [requirement.name for requirement in needed if applies(requirement)]
    return found


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    core, extras = direct()
    names = closure(core) | {canonicalize_name(requirement.name) for requirement in extras}
    # Without local parts ("+cpu"), which no index but the builder's own has.
    versions = {name: Version(importlib.metadata.version(name)).public for name in names}
    pins = "".join(f"{name}=={versions[name]}\n" for name in sorted(names))
    options.out.write_text(HEADER + pins)


if __name__ == "__main__":
    main()
