"""The command and the preset of a directory of runs."""

import pytest
import tomli_w

from recurrent_laplace.files import write_sealed
from recurrent_laplace.report.commands import command_of, preset_of, scale_of
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.looks import Reproduction, look_tables


@pytest.fixture
def smoke(tmp_path):
    """A reproduction of which only the plan exists."""
    tables, source = load_sweep("reproduce-smoke")
    reproduction = Reproduction.make(tmp_path / "a b", tables, source)
    reproduction.write(1, look_tables(tables, 1))
    return reproduction.path


def test_a_reproduction_is_named_by_its_scale(smoke):
    assert scale_of(smoke) == "smoke"
    assert command_of(smoke) == f"recurrent-laplace reproduce --scale smoke --out '{smoke}'"
    assert preset_of(smoke) == "smoke"
    # A look is a sweep.
    assert preset_of(smoke / "look-1") == "smoke"
    assert str(command_of(smoke / "look-1")).startswith("recurrent-laplace sweep ")


def test_a_reproduction_of_another_version_has_no_command(tmp_path):
    tables, _ = load_sweep("reproduce-night")
    write_sealed(tmp_path / "reproduction.toml", tomli_w.dumps(tables | {"rules": "2020-01-01"}))
    assert scale_of(tmp_path) is None
    assert command_of(tmp_path) is None
    assert preset_of(tmp_path) == "reproduction"


def test_other_directories_have_neither(tmp_path):
    assert (command_of(tmp_path), preset_of(tmp_path), scale_of(tmp_path)) == (None, None, None)
