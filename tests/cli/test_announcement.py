"""The first line of `train`: what it says, when it is silent, and that it does not wait for JAX."""

import subprocess
import sys

import pytest

from recurrent_laplace.cli.announcement import announce_training, describe_training
from recurrent_laplace.runs.presets import load_preset

FOLDER = "; the run is written to a folder of "


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", "train: task gridworld, posterior point, preset laptop, 500 updates; the run is written to a "),
        ("--task coin --preset=smoke --out here", "train: task coin, posterior point, preset smoke, "),
        ("--posterior laplace", "train: task gridworld, posterior laplace, preset laptop, 500 updates"),
        ("--posterior laplace --updates 7", "train: task gridworld, posterior laplace, preset laptop, 7 "),
        ("--processes 2 --process 0", "train: task gridworld, "),
    ],
)
def test_line_has_the_values_of_the_arguments(args, expected):
    line = describe_training(args.split())
    assert line is not None
    assert line.startswith(expected)
    assert line.endswith(FOLDER + ("here" if "--out" in args else "runs"))


def test_updates_are_those_of_the_preset():
    updates = load_preset("paper", "gridworld", "point")["learning"]["updates"]
    assert f", {updates} updates" in str(describe_training(["--preset", "paper"]))


def test_configuration_file_overrides_the_preset(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text('[task]\nname = "coin"\n[posterior]\nkind = "laplace"\n[learning]\nupdates = 12\n')
    line = describe_training(["--config", str(file)])
    assert line == f"train: task coin, posterior laplace, configuration {file}, 12 updates{FOLDER}runs"
    line = describe_training(["--config", str(file), "--task", "gridworld", "--updates", "3"])
    assert line == f"train: task gridworld, posterior laplace, configuration {file}, 3 updates{FOLDER}runs"


@pytest.mark.parametrize(
    "args",
    [
        ["--help"],
        ["--task", "gridworld", "-h"],
        ["--preset", "laptpo"],
        ["--config", "nowhere.toml"],
        ["--config", "/dev/stdin"],
        ["--process", "1"],
        ["--task"],
    ],
)
def test_silent_where_the_parser_speaks(args, capsys):
    announce_training(args)
    out, err = capsys.readouterr()
    assert err == ""
    assert out == "" or args == ["--task"]


@pytest.mark.parametrize("text", ["task = 3", "[task", "[task]\nname = [1]", "learning = [1]", "\0"])
def test_damaged_configuration_is_left_to_the_parser(text, tmp_path, capsys):
    file = tmp_path / "own.toml"
    file.write_text(text)
    announce_training(["--config", str(file)])
    assert capsys.readouterr().err == ""


def test_nothing_heavy_is_imported_before_the_line():
    program = (
        "import sys; from recurrent_laplace.cli.announcement import announce_training; announce_training([]);"
        "print(*{'jax', 'numpy', 'tyro', 'rich', 'polars', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    line, heavy = done.stdout.split("\n")[:2]
    assert line.startswith("train: ")
    assert heavy == ""


def test_closed_output_is_left_to_what_follows(monkeypatch):
    class Closed:
        def write(self, text):
            raise BrokenPipeError

        def flush(self):
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    announce_training([])
