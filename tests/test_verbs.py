"""The verbs around runs: mistakes end in a sentence, and help says everything."""

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import shutil
import textwrap
import tomllib
from pathlib import Path

import filelock
import jax
import pytest
from verbs import Done, run_command

import recurrent_laplace as rl
from recurrent_laplace.evaluation import EvaluationConfig
from recurrent_laplace.experiments.runner import RunOptions
from recurrent_laplace.learning import LearningConfig
from recurrent_laplace.models import AgentConfig, PosteriorConfig
from recurrent_laplace.tasks import TASKS

# A program that another worker is just storing is compiled once more: no harm, and no error.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache"),
    pytest.mark.usefixtures("programs"),
]

# Most of the time goes into compiling: a plain cell and no norms save some of it.
TINY = ("--preset", "smoke", "--steps", "5", "--batch", "4", "--cell", "elman", "--no-layer-norm")
REGRESSION = ("train", "--task", "regression", *TINY)
GRID = ("train", "--task", "gridworld", "--task.size", "3", *TINY)


@pytest.fixture
def command(capsys):
    return functools.partial(run_command, capsys)


def refused(done: Done, *words: str) -> None:
    """One sentence of ours with these words, or the parser's framed message."""
    assert done.code == 2, done.out
    message = done.err.strip()
    assert "Traceback" not in message
    if "For full helptext" not in message:
        assert message.startswith("recurrent-laplace: ")
        assert len(message.splitlines()) == 1
    unframed = " ".join(re.sub("[│╭╰─╮╯]", " ", message).split())
    for word in words:
        assert word in unframed


def made_once(command, shared: Path, folder: Path, name: str, *args) -> Path:
    """A copy of a run that all tests of the session begin from."""
    out = shared / "verbs" / name
    with filelock.FileLock(shared / f"verbs-{name}.lock"):
        if not out.exists():
            assert command(*args, "--out", out).code == 0
    (directory,) = out.iterdir()
    return Path(shutil.copytree(directory, folder / "runs" / directory.name))


@pytest.fixture
def regression(command, shared, tmp_path) -> Path:
    return made_once(command, shared, tmp_path, "regression", *REGRESSION, "--updates", "3")


@pytest.fixture
def grid(command, shared, tmp_path) -> Path:
    """Untrained: for what is refused, that will do."""
    return made_once(command, shared, tmp_path, "grid", *GRID, "--updates", "0")


@pytest.fixture
def variational(command, shared, tmp_path) -> Path:
    options = ("--updates", "0", "--posterior", "variational", "--covariance", "diagonal")
    return made_once(command, shared, tmp_path, "variational", *REGRESSION, *options)


# Mistakes.


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--task", "maze"], ["task", "'maze'", *map(repr, TASKS)]),
        (["--posterior", "bayes"], ["posterior", "'bayes'", "'point'", "'variational'", "'laplace'"]),
        (["--preset", "huge"], ["--preset", "'huge'", "'smoke'", "'laptop'", "'paper'"]),
        (["--covariance", "full"], ["--covariance", "'full'", "diagonal", "dense"]),
        (["--updates", "-1"], ["updates", "at least 0", "-1"]),
        (["--updates", "many"], ["--updates", "'many'"]),
        (["--minibatches", "3"], ["minibatches", "divide", "8", "got 3"]),
        (["--batch", "0"], ["batch", "at least 1", "got 0"]),
        (["--seeds", "0"], ["seeds", "at least 1", "got 0"]),
        (["--seed", "-1"], ["seed", "at least 0", "-1"]),
        (["--learning-rate", "nan"], ["learning_rate", "(0, inf)", "nan"]),
        (["--posterior", "laplace", "--window", "all"], ["window 'all'", "accumulate 'none'", "'precision'"]),
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
def test_mistakes_in_train(args, words, command, tmp_path):
    # No updates, in case that a mistake is not seen.
    updates = [] if "--updates" in args else ["--updates", "0"]
    refused(command("train", "--preset", "smoke", "--out", tmp_path / "runs", *updates, *args), *words)
    assert not list(tmp_path.glob("runs/*/checkpoints"))


def test_no_directory_for_what_was_refused(command, tmp_path):
    for args in (["--batch", "0"], ["--log", "paper"], ["--task.size", "1"]):
        refused(command("train", "--preset", "smoke", "--out", tmp_path / "runs", *args))
        assert not (tmp_path / "runs").exists(), args


@pytest.mark.parametrize("below", ["", "deeper/down"])
def test_output_that_is_a_file(below, command, tmp_path, regression):
    file = tmp_path / "file"
    file.write_text("mine")
    refused(command("train", "--preset", "smoke", "--out", file / below), str(file), "is a file")
    refused(command("finetune", regression, "--updates", "0", "--out", file / below), str(file), "is a file")
    refused(command("posthoc", regression, "--tasks", "2", "--out", file / below), str(file), "is a file")
    assert file.read_text() == "mine"


@pytest.mark.parametrize("verb", ["evaluate", "finetune", "posthoc"])
def test_what_is_no_run(verb, command, tmp_path):
    refused(command(verb, tmp_path / "nothing"), "there is no run at", str(tmp_path / "nothing"))
    (tmp_path / "notes.txt").write_text("mine")
    refused(command(verb, tmp_path), str(tmp_path), "is not the directory of a run", "config.toml")
    refused(command(verb, tmp_path / "notes.txt"), str(tmp_path / "notes.txt"))
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("verb", ["evaluate", "finetune", "posthoc"])
def test_without_a_run_it_says_that_one_is_missing(verb, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(command(verb), "RUN")


def test_run_without_a_state(command, regression):
    shutil.rmtree(regression / "checkpoints")
    refused(command("evaluate", regression), str(regression), "no checkpoint", "train")
    refused(command("finetune", regression), str(regression), "no snapshot 0.5", "none")


@pytest.mark.parametrize("verb", ["finetune", "posthoc"])
@pytest.mark.parametrize("snapshot", ["0.1", "-1", "2", "nan", "inf"])
def test_snapshot_that_does_not_exist(verb, snapshot, command, regression):
    before = sorted(regression.parent.rglob("*"))
    refused(command(verb, regression, "--snapshot", snapshot), "no snapshot", snapshot, "it has:", ", 1.")
    assert sorted(regression.parent.rglob("*")) == before


def test_every_snapshot_that_is_listed_can_be_asked_for(command, regression):
    """Of three updates, the half and three quarters are one and two thirds: not exact in print."""
    listed = command("finetune", regression, "--snapshot", "0").err.strip().partition("it has: ")[2]
    shares = listed.rstrip(".").split(", ")
    assert len(shares) == 3
    for share, updates in zip(shares, (1, 2, 3), strict=True):
        done = command("finetune", regression, "--snapshot", share, "--updates", "0")
        config = tomllib.loads((done.path / "config.toml").read_text())
        assert config["parent"]["snapshot"] == updates


def test_posterior_that_does_not_fit_the_weights(command, variational):
    before = sorted(variational.parent.rglob("*"))
    for verb in ("posthoc", "finetune"):
        done = command(verb, variational, "--snapshot", "1", "--covariance", "dense")
        refused(done, "dense variational posterior does not fit", "diagonal")
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
def test_mistakes_in_evaluate(args, words, command, grid):
    before = sorted(grid.rglob("*"))
    refused(command("evaluate", grid, *args), *words)
    assert sorted(grid.rglob("*")) == before


def test_regressor_does_not_act(command, regression):
    refused(command("evaluate", regression, "--task", "gridworld"), "'gridworld'", "trained to predict")


# What must work.


@pytest.mark.parametrize("verb", ["evaluate", "finetune", "posthoc"])
def test_options_may_come_before_the_run(verb, command, grid):
    """`evaluate --tasks 2 RUN` is as good as `evaluate RUN --tasks 2`."""
    options = {
        "evaluate": ["--tasks", "2"],
        "finetune": ["--covariance", "dense", "--snapshot", "1", "--updates", "0"],
        "posthoc": ["--prior-stddev", "2", "--tasks", "2"],
    }
    assert command(verb, *options[verb], grid).path.exists()


def test_run_can_be_where_one_is(command, grid, monkeypatch):
    monkeypatch.chdir(grid)
    assert command("evaluate", ".", "--tasks", "2").code == 0
    assert (grid / "evaluation-2-tasks.parquet").exists()
    # Beside it, and not inside of it.
    derived = command("finetune", ".", "--snapshot", "1", "--updates", "0", "--beta", "0.5").path
    assert derived.resolve().parent == grid.resolve().parent


def test_parameter_of_a_task_as_a_flag(command, grid):
    assert tomllib.loads((grid / "config.toml").read_text())["task"]["size"] == 3


def test_derived_runs_are_put_beside_their_parent_from_anywhere(command, regression, monkeypatch, tmp_path):
    monkeypatch.chdir(regression.parent)
    done = command("finetune", regression.name, "--snapshot", "1", "--updates", "0", "--beta", "0.5")
    assert done.path.resolve().parent == regression.parent.resolve()


def test_announced_next_command_works(command, regression):
    done = command(*REGRESSION, "--updates", "3", "--resume", "--out", regression.parent)
    found = re.search(r"next: recurrent-laplace (.*)", done.out)
    assert found is not None
    verb, run = found[1].split()
    assert (verb, Path(run)) == ("evaluate", regression)


# Help and lists.


def words_of(kind: type) -> dict[str, str]:
    """The string below each field."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        ast.unparse(field.target): str(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def flag_of(kind: type, field: str) -> str:
    name = "posterior" if (kind, field) == (PosteriorConfig, "kind") else field
    return f"--{'task.' if kind in TASKS.values() else ''}{name.replace('_', '-')}"


def assert_explained(help_text: str, *kinds: type) -> None:
    """Every field is there as a flag, followed by what it means."""
    text = " ".join(re.sub("[│|]", " ", help_text).split())
    for kind in kinds:
        meanings = words_of(kind)
        for field in dataclasses.fields(kind):
            meaning = " ".join(meanings[field.name].split())
            assert len(meaning) > 10
            # Between the two: what kind of value it takes.
            line = rf"{flag_of(kind, field.name)}(?![\w.-]).{{0,90}}? {re.escape(meaning)}"
            assert re.search(line, text), field.name


@pytest.mark.parametrize("task", TASKS)
def test_help_of_train_has_every_field_with_its_meaning(task, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = command("train", "--task", task, "--help")
    assert done.code == 0
    assert_explained(done.out, AgentConfig, PosteriorConfig, LearningConfig, RunOptions, TASKS[task])
    text = " ".join(done.out.split())
    for flag in ("--task STR", "--preset {smoke,small,laptop,paper}", "--seed INT", "--seeds INT"):
        assert re.search(rf"{flag}( │)* [A-Z][a-z]+ ", text), flag


@pytest.mark.parametrize(
    ("verb", "kinds"),
    [
        ("evaluate", [EvaluationConfig]),
        ("finetune", [PosteriorConfig, LearningConfig, RunOptions]),
        ("posthoc", [PosteriorConfig, EvaluationConfig]),
    ],
)
def test_help_of_the_other_verbs(verb, kinds, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    done = command(verb, "--help")
    assert done.code == 0
    assert_explained(done.out, *kinds)
    assert " ".join(done.out.split()).startswith(f"usage: recurrent-laplace {verb} [-h]")


def test_help_shows_no_source_code(command, monkeypatch):
    """Examples in docstrings are for those who write Python."""
    monkeypatch.setenv("COLUMNS", "100")
    for task in TASKS:
        assert "```" not in command("train", "--task", task, "--help").out, task


@pytest.mark.parametrize("columns", ["80", "200"])
def test_tasks_lists_all_with_their_parameters(columns, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    listed = command("tasks")
    assert listed.code == 0
    text = " ".join(re.sub("[│┃|]", " ", listed.out).split())
    for name, task in TASKS.items():
        assert name in text
        assert words_of(task).keys() == {field.name for field in dataclasses.fields(task)}
        for field in dataclasses.fields(task):
            # As a name, or as the flag that sets it.
            assert field.name in text or field.name.replace("_", "-") in text
            assert str(field.default) in text


def test_drawing_of_a_task(command, tmp_path):
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
def test_mistakes_in_tasks(args, words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    refused(command("tasks", *args), *words)


@pytest.mark.slow
def test_monitor_writes_a_page_of_a_run(command, grid, tmp_path):
    done = command("monitor", "--run", grid, "--episodes", 3, "--steps", 6, "--out", tmp_path / "m.html")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == str(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert page.count("<figure") == 4
    for words in ("value stddev", "policy moved", "Is it informative?", "LaplacePosterior"):
        assert words in page
    assert "means over steps" in done.out


def test_monitor_refuses_what_it_cannot_play(command, grid, tmp_path):
    refused(command("monitor"), "one agent must be named")
    refused(command("monitor", "--run", grid, "--sb3", "x.zip"), "one agent must be named")
    refused(command("monitor", "--sb3", tmp_path / "x.zip"), "--env must name the environment")
    refused(command("monitor", "--run", grid, "--episodes", 0), "episodes must be a whole number")
    refused(command("monitor", "--run", grid, "--out", tmp_path), "the page cannot be written")
    refused(command("monitor", "--run", tmp_path / "none"), "none")


def test_an_exported_agent_can_be_loaded(command, grid, tmp_path):
    out = tmp_path / "agent.safetensors"
    assert command("export", grid, "--out", out).code == 0
    with jax.enable_x64(False):
        agent = rl.load(out)
    assert isinstance(agent, rl.Agent)
    assert command("export", grid, "--posterior", "laplace", "--out", tmp_path / "a.jaxexport").code == 0
    assert (tmp_path / "a.jaxexport").stat().st_size > 1000
    refused(command("export", grid, "--seed-index", 1, "--out", out), "there is no number 1")
