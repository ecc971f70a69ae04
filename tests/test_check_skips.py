"""The check that every test is executed somewhere."""

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "check_skips.py"
OUTCOMES = {"test": {"a": "passed", "b": "skipped"}, "test-slow": {"b": "failed", "c": "skipped"}}


@pytest.fixture(scope="module")
def complaints():
    return runpy.run_path(str(SCRIPT))["complaints"]


@pytest.mark.parametrize(
    ("collected", "expected", "sentences"),
    [
        ("ab", {}, ["c was executed in no target (skipped in: test-slow)."]),
        ("abc", {"c": "why"}, []),
        ("abcd", {"c": "why"}, ["d was executed in no target (skipped in: none)."]),
        ("abc", {"c": "", "a": ""}, ["a was executed, but EXPECTED says that it is not: remove it there."]),
        ("abc", {"c": "", "z": ""}, ["z is in EXPECTED, but there is no such test: remove it there."]),
    ],
)
def test_every_test_is_executed_or_expected_not_to_be(complaints, collected, expected, sentences):
    assert complaints(collected, OUTCOMES, expected) == sentences
