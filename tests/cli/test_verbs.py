"""Verbs that work on runs: error messages, defaults, and help texts."""

import ast
import dataclasses
import inspect
import itertools
import re
import shutil
import textwrap
import tomllib
from pathlib import Path

import pytest
from support.runs import SIZES, copy_of_run
from support.verbs import float32

import recurrent_laplace as rl
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.learning import LearningConfig
from recurrent_laplace.models import AgentConfig, LaplaceConfig
from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.runs.runner import RunOptions
from recurrent_laplace.tasks import TASKS

pytestmark = pytest.mark.usefixtures("programs")

REGRESSION = ("train", "--task", "regression", *SIZES)
GRID = ("train", "--task", "gridworld", "--task.size", "3", *SIZES)


@pytest.fixture
def regression(command, shared, tmp_path) -> Path:
    return copy_of_run(command, shared, tmp_path, "verbs-regression", *REGRESSION, "--updates", "3")


@pytest.fixture
def grid(command, shared, tmp_path) -> Path:
    """An untrained run."""
    return copy_of_run(command, shared, tmp_path, "verbs-grid", *GRID, "--updates", "0")


@pytest.fixture
def variational(command, shared, tmp_path) -> Path:
    options = ("--updates", "0", "--posterior", "variational", "--covariance", "diagonal")
    return copy_of_run(command, shared, tmp_path, "verbs-variational", *REGRESSION, *options)


# Error messages.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--task", "maze"], ["task", "'maze'", *map(repr, TASKS)]),
        (["--posterior", "bayes"], ["posterior", "'bayes'", "'point'", "'variational'", "'laplace'"]),
        (
            ["--cell", "lstmm"],
            ["recurrent-laplace: cell must be one of", "(did you mean 'lstm'?)", "'lstmm'"],
        ),
        (["--preset", "huge"], ["--preset", "'huge'", "'smoke'", "'laptop'", "'paper'"]),
        (["--covariance", "full"], ["--covariance", "'full'", "diagonal", "dense"]),
        (["--updates", "-1"], ["updates", "at least 0", "-1"]),
        (["--updates", "many"], ["--updates", "'many'"]),
        (["--minibatches", "3"], ["minibatches", "divide", "8", "got 3"]),
        (["--batch", "0"], ["batch", "at least 1", "got 0"]),
        (["--seeds", "0"], ["seeds", "at least 1", "got 0"]),
        (["--seed", "-1"], ["seed", "at least 0", "-1"]),
        (["--seed", "4294967296"], ["seed", "2^32 - 1", "4294967296"]),
        (["--seed", "4294967290", "--seeds", "7"], ["seed", "2^32 - 1", "4294967296", "of 7 seeds"]),
        (["--prior-stddev", "1e-200"], ["prior_stddev", "[1e-18, 1e+18]", "1e-200"]),
        (["--learning-rate", "nan"], ["learning_rate", "(0, inf)", "nan"]),
        (["--posterior", "laplace", "--window", "all"], ["got 'all'", "accumulate='none'", "'precision'"]),
        (["--window", "0"], ["window", "at least 1", "got 0"]),
        (["--embedding-sizes"], ["embedding_sizes", "at least one"]),
        (["--task.size", "1"], ["size", "at least 2", "got 1"]),
        (["--task.arms", "3"], ["--task.arms"]),
        (["--task", "bandit", "--task.size", "3"], ["--task.size"]),
        (["--hiden-size", "3"], ["--hiden-size"]),
        (["--log", "paper"], ["logger", "'paper'", "'tensorboard'", "'wandb'"]),
        (["--config", "no-such.toml"], ["no-such.toml", "No such file"]),
        (["--checkpoint-seconds", "nan"], ["checkpoint_seconds", "nan"]),
        (["--checkpoint-seconds", "-1"], ["checkpoint_seconds", "-1"]),
    ],
    ids=lambda texts: " ".join(texts),
)
def test_invalid_options_of_train(args, words, command, tmp_path):
    # Without updates, in case the mistake is not detected.
    updates = [] if "--updates" in args else ["--updates", "0"]
    command("train", "--preset", "smoke", "--out", tmp_path / "runs", *updates, *args).refused(*words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verb", ["finetune", "posthoc", "export"])
def test_unknown_posterior_is_answered_with_the_nearest(verb, command, grid):
    words = "recurrent-laplace: posterior must be one of 'point'", "(did you mean 'laplace'?)", "'laplacian'"
    command(verb, grid, "--posterior", "laplacian").refused(*words)


@pytest.mark.parametrize("below", ["", "deeper/down"])
def test_output_directory_that_is_a_file(below, command, tmp_path, regression):
    file = tmp_path / "file"
    file.write_text("mine")
    for args in (
        ("train", "--preset", "smoke"),
        ("finetune", regression, "--updates", "0"),
        ("posthoc", regression, "--tasks", "2"),
    ):
        command(*args, "--out", file / below).refused(str(file), "is a file")
    assert file.read_text() == "mine"


@pytest.mark.parametrize("verb", ["evaluate", "finetune", "posthoc"])
def test_path_that_is_no_run(verb, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command(verb).refused("RUN")
    command(verb, tmp_path / "nothing").refused("there is no run at", str(tmp_path / "nothing"))
    (tmp_path / "notes.txt").write_text("mine")
    command(verb, tmp_path).refused(str(tmp_path), "is not the directory of a run", "config.toml")
    command(verb, tmp_path / "notes.txt").refused(str(tmp_path / "notes.txt"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_run_without_checkpoints(command, regression):
    shutil.rmtree(regression / "checkpoints")
    for verb in ("evaluate", "finetune"):
        command(verb, regression).refused(str(regression), "its last checkpoint is gone", "train --config")


@pytest.mark.parametrize("verb", ["finetune", "posthoc"])
@pytest.mark.parametrize("snapshot", ["0.1", "-1", "2", "nan", "inf", "1e+308"])
def test_missing_snapshot(verb, snapshot, command, regression):
    before = sorted(regression.parent.rglob("*"))
    command(verb, regression, "--snapshot", snapshot).refused("no snapshot", snapshot, "it has:", ", 1.")
    assert sorted(regression.parent.rglob("*")) == before


def test_every_listed_snapshot_can_be_used(command, regression):
    """With three updates, the snapshots are at one and two thirds, which print inexactly."""
    listed = command("finetune", regression, "--snapshot", "0").err.strip().partition("it has: ")[2]
    for fraction, updates in zip(listed.rstrip(".").split(", "), (1, 2, 3), strict=True):
        done = command("finetune", regression, "--snapshot", fraction, "--updates", "0")
        config = tomllib.loads((done.path / "config.toml").read_text())
        assert config["parent"]["snapshot"] == updates


def test_posterior_that_does_not_fit_the_weights(command, variational):
    before = sorted(variational.parent.rglob("*"))
    for verb in ("posthoc", "finetune"):
        done = command(verb, variational, "--snapshot", "1", "--covariance", "dense")
        done.refused("VRNN, dense does not fit the weights", "rotation_head")
    assert sorted(variational.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--task.size", "4"], ["observations of size 8 and 4 actions", "6 and 4"]),
        (["--task", "bandit"], ["observations of size 1 and 5 actions", "6 and 4"]),
        (["--task", "regression"], ["'regression'", "trained to act"]),
        (["--task", "maze"], ["'maze'", "'gridworld'"]),
        (["--task.size", "1"], ["size", "at least 2"]),
        (["--tasks", "0"], ["tasks", "at least 1", "got 0"]),
        (["--tasks", "all"], ["--tasks", "'all'"]),
    ],
    ids=lambda texts: " ".join(texts),
)
def test_invalid_options_of_evaluate(args, words, command, grid):
    before = sorted(grid.rglob("*"))
    command("evaluate", grid, *args).refused(*words)
    assert sorted(grid.rglob("*")) == before


def test_regressor_cannot_be_evaluated_on_a_control_task(command, regression):
    command("evaluate", regression, "--task", "gridworld").refused("'gridworld'", "trained to predict")


# Arguments and defaults.


@pytest.mark.parametrize("verb", ["evaluate", "finetune", "posthoc"])
def test_options_may_come_before_the_run(verb, command, grid):
    """`evaluate --tasks 2 RUN` is the same as `evaluate RUN --tasks 2`."""
    options = {
        "evaluate": ["--tasks", "2"],
        "finetune": ["--covariance", "dense", "--snapshot", "1", "--updates", "0"],
        "posthoc": ["--prior-stddev", "2", "--tasks", "2"],
    }
    assert command(verb, *options[verb], grid).path.exists()


def test_run_can_be_the_working_directory(command, grid, monkeypatch):
    monkeypatch.chdir(grid)
    assert command("evaluate", ".", "--tasks", "2").code == 0
    assert (grid / "evaluation-2-tasks.parquet").exists()
    # Next to the parent, not inside it.
    derived = command("finetune", ".", "--snapshot", "1", "--updates", "0", "--beta", "0.5").path
    assert derived.resolve().parent == grid.resolve().parent


def test_task_parameters_are_flags(grid):
    assert tomllib.loads((grid / "config.toml").read_text())["task"]["size"] == 3


def test_derived_runs_are_next_to_their_parent(command, regression, monkeypatch):
    monkeypatch.chdir(regression.parent)
    done = command("finetune", regression.name, "--snapshot", "1", "--updates", "0", "--beta", "0.5")
    assert done.path.resolve().parent == regression.parent.resolve()


def test_announced_next_command_works(command, regression):
    done = command(*REGRESSION, "--updates", "3", "--resume", "--out", regression.parent)
    found = re.search(r"next: recurrent-laplace (.*)", done.out)
    assert found is not None
    verb, run = found[1].split()
    assert (verb, Path(run)) == ("evaluate", regression)


# Help texts and lists.


def field_docstrings(kind: type) -> dict[str, str]:
    """The string below each field, including those of base classes."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    bases = [field_docstrings(base) for base in kind.__bases__ if dataclasses.is_dataclass(base)]
    inherited = {name: text for base in reversed(bases) for name, text in base.items()}
    return inherited | {
        ast.unparse(field.target): str(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def flag_of(kind: type, field: str) -> str:
    return f"--{'task.' if kind in TASKS.values() else ''}{field.replace('_', '-')}"


KINDS = f"--posterior {{{','.join(POSTERIORS)}}}"


def assert_explained(help_text: str, *kinds: type) -> None:
    """Check that every field is a flag, followed by its docstring."""
    text = " ".join(re.sub("[│|]", " ", help_text).split())
    for kind in kinds:
        docstrings = field_docstrings(kind)
        for field in dataclasses.fields(kind):
            docstring = " ".join(docstrings[field.name].split())
            assert len(docstring) > 10
            # The type of the value is between the two.
            line = rf"{flag_of(kind, field.name)}(?![\w.-]).{{0,90}}? {re.escape(docstring)}"
            assert re.search(line, text), field.name


@pytest.mark.parametrize("task", TASKS)
def test_help_of_train_has_every_field_with_its_docstring(task, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = command("train", "--task", task, "--help")
    assert done.code == 0
    assert_explained(done.out, AgentConfig, LaplaceConfig, LearningConfig, RunOptions, TASKS[task])
    text = " ".join(done.out.split())
    assert "```" not in text  # Examples in docstrings are for those who write Python.
    presets = "--preset {smoke,small,laptop,reproduction,paper}"
    for flag in ("--task STR", presets, "--seed INT", "--seeds INT", KINDS):
        assert re.search(rf"{flag}( │)* [A-Z][a-z]+ ", text), flag


@pytest.mark.parametrize(
    ("verb", "kinds"),
    [
        ("evaluate", [EvaluationConfig]),
        ("finetune", [LaplaceConfig, LearningConfig, RunOptions]),
        ("posthoc", [LaplaceConfig, EvaluationConfig]),
    ],
)
def test_help_of_the_other_verbs(verb, kinds, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = command(verb, "--help")
    assert done.code == 0
    assert "```" not in done.out
    assert_explained(done.out, *kinds)
    assert " ".join(done.out.split()).startswith(f"usage: recurrent-laplace {verb} [-h]")


@pytest.mark.parametrize("verb", ["posthoc", "sweep", "reproduce", "report", "tasks", "export", "monitor"])
def test_help_shows_no_default_of_options_that_have_none(verb, command):
    done = command(verb, "--help")
    assert done.code == 0
    assert "{None}" not in done.out
    assert "(default: )" not in done.out


@pytest.mark.parametrize("columns", ["80", "200"])
def test_tasks_lists_all_with_their_parameters(columns, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    listed = command("tasks")
    assert listed.code == 0
    text = " ".join(re.sub("[│┃|]", " ", listed.out).split())
    for name, task in TASKS.items():
        assert name in text
        assert field_docstrings(task).keys() >= {field.name for field in dataclasses.fields(task)}
        for field in dataclasses.fields(task):
            # As a name, or as a flag.
            assert field.name in text or field.name.replace("_", "-") in text
            assert str(field.default) in text


def test_plot_of_a_task(command, tmp_path):
    out = tmp_path / "grid.png"
    assert command("tasks", "--draw", "gridworld", "--out", out).code == 0
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert out.stat().st_size > 2000


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--draw", "maze"], ["'maze'", "'gridworld'"]),
        (["--draw", "gridworld", "--out", "grid.xyz"], [".png", ".pdf", ".svg", "'.xyz'"]),
        (["--draw", "gridworld", "--out", "file/grid.png"], ["file"]),
        (["--drow", "gridworld"], ["--drow"]),
    ],
    ids=lambda texts: " ".join(texts),
)
def test_invalid_options_of_tasks(args, words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    command("tasks", *args).refused(*words)


@pytest.mark.slow
def test_monitor_writes_a_page_of_a_run(command, grid, tmp_path):
    few = ("--run", grid, "--episodes", 3, "--steps", 6, "--out", tmp_path / "m.html")
    done = command("monitor", *few, "--fit-episodes", 8)
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == str(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert page.count("<figure") == 7
    for words in (
        "value stddev",
        "policy moved",
        "What is the belief worth?",
        "LikelihoodPosterior",
        "surprise",
    ):
        assert words in page
    assert "means over steps" in done.out
    # The verdict is the same sentence in the terminal and on the page.
    said = " ".join(done.out.split())
    assert said.startswith("The belief is ")
    assert "the next reward" in said
    done = command("monitor", *few, "--no-forecast")
    assert done.code == 0, done.err
    page = (tmp_path / "m.html").read_text()
    assert page.count("<figure") == 4
    for words in ("Is it informative?", "LaplacePosterior"):
        assert words in page
    # A posterior that was chosen is monitored as it is.
    assert command("monitor", *few, "--posterior", "laplace").code == 0
    assert "LaplacePosterior" in (tmp_path / "m.html").read_text()


def test_invalid_options_of_monitor(command, grid, tmp_path):
    command("monitor").refused("one agent must be named")
    command("monitor", "--run", grid, "--sb3", "x.zip").refused("one agent must be named")
    command("monitor", "--sb3", tmp_path / "x.zip").refused("--env must name the environment")
    command("monitor", "--run", grid, "--episodes", 0).refused("episodes must be a whole number")
    command("monitor", "--run", grid, "--fit-episodes", 3).refused(
        "fit_episodes must be a whole number of at"
    )
    command("monitor", "--run", grid, "--out", tmp_path).refused("the page cannot be written")
    command("monitor", "--run", tmp_path / "none").refused("none")


def test_an_exported_agent_can_be_loaded(command, grid, tmp_path):
    out = tmp_path / "agent.safetensors"
    assert command("export", grid, "--out", out).code == 0
    with float32():
        agent = rl.load(out)
    assert isinstance(agent, rl.Agent)
    assert command("export", grid, "--posterior", "laplace", "--out", tmp_path / "a.jaxexport").code == 0
    assert (tmp_path / "a.jaxexport").stat().st_size > 1000
    command("export", grid, "--seed-index", 1, "--out", out).refused("there is no number 1")
