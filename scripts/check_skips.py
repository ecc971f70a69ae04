"""Check that every test was executed in some target of `.ci/run`.

    python scripts/check_skips.py build/outcomes

reads the outcomes that the targets wrote, collects all tests in this environment, and fails if a test was
executed nowhere, unless `EXPECTED` holds it with a reason; or if `EXPECTED` holds one that was executed.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

EXPECTED: dict[str, str] = {}
"""Tests that no target executes, each with the reason."""


class Collected:
    """A plugin of pytest: the ids of the tests, and the files that were skipped whole."""

    def __init__(self) -> None:
        self.tests: list[str] = []
        self.skipped: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot be collected here."""
        if not report.passed:
            self.skipped.append(report.nodeid)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the tests."""
        self.tests = [item.nodeid for item in session.items]


def complaints(
    collected: Iterable[str], outcomes: Mapping[str, Mapping[str, str]], expected: Mapping[str, str]
) -> list[str]:
    """Return a sentence for each test whose execution is not as expected."""
    executed = {test for run in outcomes.values() for test, outcome in run.items() if outcome != "skipped"}
    skipped_in: dict[str, list[str]] = {}
    for target, run in outcomes.items():
        for test, outcome in run.items():
            if outcome == "skipped":
                skipped_in.setdefault(test, []).append(target)
    found = [
        f"{test} was executed in no target (skipped in: {', '.join(skipped_in.get(test, ())) or 'none'})."
        for test in sorted({*collected, *skipped_in} - executed - expected.keys())
    ]
    known = {*collected, *skipped_in}
    for test in sorted(expected):
        if test in executed:
            found.append(f"{test} was executed, but EXPECTED says that it is not: remove it there.")
        elif test not in known:
            found.append(f"{test} is in EXPECTED, but there is no such test: remove it there.")
    return found


def main() -> None:
    """Compare, print, and exit 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--without", metavar="MARKER", help="Leave out tests with this marker.")
    options = parser.parse_args()
    folder = options.folder
    outcomes = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    if not outcomes:
        sys.exit(f"{folder} must hold the outcomes of tests, but there are none: run the targets of .ci/run.")
    collected = Collected()
    chosen = ["-m", f"not {options.without}"] if options.without else []
    pytest.main(["--collect-only", "-qqq", "-p", "no:cacheprovider", *chosen], plugins=[collected])
    if not collected.tests:
        sys.exit("pytest must collect the tests, but it collected none.")
    found = [f"{file} cannot be collected here." for file in collected.skipped]
    found += complaints(collected.tests, outcomes, EXPECTED)
    for sentence in found:
        print(sentence)
    targets = ", ".join(outcomes)
    print(f"check-skips: {len(collected.tests)} tests, {len(found)} complaints, targets {targets}.")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
