"""Files of constraints say what pyproject.toml says."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LEFT_OUT = {"lint", "docs", "references"}


def pins(name: str) -> dict[str, str]:
    """Version of each package, from lines that are nothing but a name and a version."""
    lines = (ROOT / "constraints" / name).read_text().splitlines()
    found = [re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)", line) for line in lines if line[:1] != "#"]
    assert all(found), "a line is neither a comment nor a pin"
    return {match[1]: match[2] for match in found if match}


def test_the_lowest_versions_are_the_lower_bounds():
    bounds = {}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        (specifier,) = requirement.specifier
        assert specifier.operator == ">=", requirement
        bounds[canonicalize_name(requirement.name)] = specifier.version
    assert pins("lowest.txt") == bounds


def test_the_tested_versions_are_allowed_and_hold_every_direct_dependency():
    tested = pins("tested.txt")
    extras = PROJECT["optional-dependencies"]
    texts = [text for name in extras.keys() - LEFT_OUT for text in extras[name]]
    for requirement in map(Requirement, [*PROJECT["dependencies"], *texts]):
        assert requirement.specifier.contains(tested[canonicalize_name(requirement.name)]), requirement
