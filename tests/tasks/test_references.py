"""Tasks from outside of the package, named on the command line or in a configuration of the user."""

import os
import shutil
import subprocess
import sys
import tomllib
from unittest import mock

import polars as pl
import pytest
from support.own_task import LEVERS, forgotten
from support.runs import SIZES, run_of_version_01

from recurrent_laplace.cli.parsing import default_run
from recurrent_laplace.files import read_json
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.origin import check_origin, store_origin
from recurrent_laplace.tasks import TASKS, load_task, make_task, references
from recurrent_laplace.tasks.conformance import check_dynamics
from recurrent_laplace.tasks.references import task_class

pytestmark = pytest.mark.usefixtures("programs")

UNTRAINED = ("train", *SIZES, "--updates", "0")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the task `levers` in `mine.py`; what is imported from it is forgotten."""
    (tmp_path / "mine.py").write_text(LEVERS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # A file may change within the same second.
    with forgotten("mine", "moved", "package", "package.mine", "levers_package"):
        yield tmp_path


@pytest.fixture
def new_process(monkeypatch):
    """Forgets what was loaded, as a new process has."""

    def forget():
        for loaded in (references._LOADED, references._ORIGINS):
            loaded.clear()
        for name in ("levers", "CartPole-v1"):
            TASKS.pop(name, None)
        sys.modules.pop("mine", None)

    return forget


@pytest.fixture
def run(folder, new_process):
    """The directory of a run of the task `levers`, as `train` makes it before the first update."""
    load_task("mine:Levers")
    tables = {"task": {"name": "levers", "chance": 0.9}}
    directory = RunDirectory.at(folder / "runs", Run.of(tables))
    with directory.locked():
        store_origin(directory)
    new_process()
    return directory.path


# Names.


def test_the_current_folder_is_the_end_of_the_import_path(folder):
    (folder / "json.py").write_text("raise ImportError")
    assert load_task("mine:Levers") == "levers"
    assert sys.path[-1] == str(folder)
    assert sys.path.count(str(folder)) == 1
    assert load_task("mine:Levers") == "levers"
    assert make_task("levers", chance=0.7).chance == 0.7
    assert load_task("gridworld") == "gridworld"


def test_tasks_in_packages(folder):
    (folder / "package").mkdir()
    shutil.move("mine.py", "package/mine.py")
    assert load_task("package.mine:Levers") == "levers"


def test_installed_plugins(folder, command):
    installed = folder / "site"
    (installed / "levers_package-1.0.dist-info").mkdir(parents=True)
    info = installed / "levers_package-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: levers-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[recurrent_laplace.tasks]\nshiny = levers_package:Levers\nbroken = levers_package:Lever\n"
    )
    (installed / "levers_package.py").write_text(LEVERS)
    sys.path.append(str(installed))
    assert "shiny: installed plugin, levers_package:Levers" in command("tasks").check(0).out
    assert "levers_package" not in sys.modules
    assert load_task("shiny") == "levers"
    command("train", "--task", "shinny").refused("(did you mean 'shiny'?)", "'gridworld'")
    command("train", "--task", "broken").refused("the plugin 'broken' cannot be imported: AttributeError")


# Bad input.

DEFINITION = "class Levers(rl.AbstractControlTask):"


@pytest.mark.parametrize(
    ("task", "change", "words"),
    [
        ("mine:Lever", None, ["has no class 'Lever'", "mine.py", "(did you mean 'Levers'?)"]),
        ("mein:Levers", None, ["there is no module 'mein', neither installed nor in"]),
        ("mine.deeper:Levers", None, ["there is no module 'mine.deeper'"]),
        ("mine:", None, ["package.module:Class; got 'mine:'"]),
        ("../mine:Levers", None, ["package.module:Class; got '../mine:Levers'"]),
        ("mine:Levers", ("import jax\n", "import jaxx\n"), ["cannot be imported", "No module named 'jaxx'"]),
        (
            "mine:Levers",
            ("import jax\n", "1 / 0\n"),
            ["ZeroDivisionError: ", "(mine.py, line 7)"],
        ),
        ("mine:Levers", ("import jax\n", "import\n"), ["SyntaxError: ", "(mine.py, line 7)"]),
        ("mine:Levers", ("import jax\n", "raise SystemExit(3)\n"), ["SystemExit: 3 (mine.py, line 7)"]),
        ("mine:Levers", ("def step", "def stepp"), ["task mine:Levers lacks step, which"]),
        ("mine:Levers", ("    actions = 2\n", ""), ["task mine:Levers lacks action"]),
        ("mine:Levers", (DEFINITION, "class Levers:"), ["not a task", "rl.AbstractControlTask"]),
        ("mine:jnp", None, ["mine:jnp is not a task", "rl.AbstractControlTask"]),
        (
            "mine:Levers",
            ("frozen=True, ", ""),
            ["TypeError: cannot inherit non-frozen", "(mine.py, line 1"],
        ),
        ("mine:Levers", ("float = 0.8", "float"), ["parameter 'chance' of task mine:Levers needs a default"]),
        ("mine:Levers", ('"levers"', '"my levers"'), ["letters, digits", "'my levers'"]),
        ("mine:Levers", ('"levers"', '"gridworld"'), ["'gridworld' is taken by Gridworld"]),
        ("mine:Levers", ("chance: float", "reference: float"), ["a parameter called 'reference'"]),
        ("mine:Levers", ("float = 0.8", "float = 0.3"), ["chance must lie in [0.5, 1]; got 0.3"]),
        (
            "mine:Levers",
            ("reward[None]", "jnp.ones(2)"),
            ["observation of step of task 'levers' must have shape (1,), from observation_size; got (2,)"],
        ),
        (
            "mine:Levers",
            ("jnp.zeros(1)", "jnp.zeros((1, 1))"),
            ["observation of reset of task 'levers' must have shape (1,)", "got (1, 1)"],
        ),
        ("mine:Levers", ("state + 1", "state + 1.0"), ["same shapes and types", "int32[]; got float"]),
        ("mine:Levers", ("reward, yes", "reward[None], yes"), ["step of task 'levers'"]),
        (
            "mine:Levers",
            ("return state + 1, rl.Step", "return rl.Step"),
            ["step", "a pair; got a Step"],
        ),
        ("mine:Levers", ("problem, 1 - problem", "problem, lever"), ["step of task 'levers'", "NameError"]),
        ("gymnasium:CartPole-v1", None, ["Stable-Baselines3", "monitor --sb3", "--env CartPole-v1"]),
        ("CartPole-v1", None, ["environment of Gymnasium", "gymnax:NAME"]),
        ("ALE/Breakout-v5", None, ["environment of Gymnasium", "--env ALE/Breakout-v5"]),
        ("gym_maze:Maze-v0", None, ["environment of Gymnasium", "--env gym_maze:Maze-v0"]),
        ("gridwold", None, ["(did you mean 'gridworld'?)"]),
    ],
    ids=str,
)
def test_bad_references(task, change, words, folder, command):
    if change is not None:
        assert LEVERS.count(change[0]) >= 1
        (folder / "mine.py").write_text(LEVERS.replace(*change))
    command(*UNTRAINED, "--task", task).refused(*words)
    assert not (folder / "runs").exists()


def test_gymnax_is_not_installed(folder, command):
    absent = {"gymnax": None, "gymnax.environments": None}
    ours = [f"recurrent_laplace.interop.{name}" for name in ("gymnax", "gymnax_tasks")]
    with mock.patch.dict(sys.modules, absent):
        for name in ours:
            sys.modules.pop(name, None)
        command(*UNTRAINED, "--task", "gymnax:CartPole-v1").refused('pip install "recurrent-laplace[gymnax]"')


def test_tasks_of_the_package_pass_the_check_of_dynamics(monkeypatch):
    """The check is made of tasks that were loaded by a reference; here of all others."""
    origin = references.Origin("a:B", "b.py", "0")
    monkeypatch.setattr("recurrent_laplace.tasks.conformance.origin_of", lambda kind: origin)
    for name in TASKS:
        check_dynamics(make_task(name))


# Runs.


def test_a_run_records_the_reference_and_the_version(run, folder):
    table = tomllib.loads((run / "config.toml").read_text())["task"]
    assert table == {"name": "levers", "reference": "mine:Levers", "chance": 0.9}
    stored = read_json(run / "task.json")
    assert stored["reference"] == "mine:Levers"
    assert stored["file"] == str(folder / "mine.py")
    assert len(stored["digest"]) == 64


def test_the_identity_of_a_run_does_not_depend_on_the_module(run, folder):
    shutil.move("mine.py", "moved.py")
    load_task("moved:Levers")
    directory = RunDirectory.open(run)
    assert directory.run.tables()["task"]["reference"] == "moved:Levers"
    check_origin(directory)


def test_runs_of_the_package_have_neither(tmp_path):
    directory = RunDirectory.open(run_of_version_01(tmp_path))
    assert "reference" not in directory.run.tables()["task"]


VERBS = {
    "evaluate": ("evaluate", "RUN"),
    "finetune": ("finetune", "RUN", "--snapshot", "1"),
    "posthoc": ("posthoc", "RUN"),
    "export": ("export", "RUN"),
    "monitor": ("monitor", "--run", "RUN"),
    "faithfulness": ("faithfulness", "RUN"),
    "shiftbench": ("shiftbench", "--run", "RUN"),
    "report": ("report", "runs"),
    "resume": ("train", "--config", "RUN/config.toml", "--resume"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_directory_imports_nothing(verb, run, folder, command):
    (folder / "mine.py").write_text("raise RuntimeError('imported')")
    args = [word.replace("RUN", str(run)) for word in VERBS[verb]]
    command(*args).refused("task 'mine:Levers' is not loaded: add --task mine:Levers.")
    assert "mine" not in sys.modules


def test_a_hand_written_reference_is_refused_in_one_sentence(run, folder, command):
    text = (run / "config.toml").read_text().partition("\n")[2]
    for value in ("3", "[1]", '"no such"', '"two\\nlines"'):
        (run / "config.toml").write_text(text.replace('"mine:Levers"', value))
        command("evaluate", run).refused("config.toml")


def test_a_configuration_of_the_user_names_its_task(folder):
    (folder / "own.toml").write_text('[task]\nname = "mine:Levers"\nchance = 0.75\n')
    run = default_run("smoke", folder / "own.toml", None, None)
    assert run.tables()["task"] == {"name": "levers", "reference": "mine:Levers", "chance": 0.75}
    (folder / "own.toml").write_text('[task]\nreference = "mine:Levers"\nchance = 0.75\n')
    assert default_run("smoke", folder / "own.toml", None, None) == run
    (folder / "own.toml").write_text('[task]\nname = "gridworld"\nreference = "mine:Levers"\n')
    with pytest.raises(ValueError, match=r"mine:Levers has the name 'levers', and \[task\] has 'gridworld'"):
        default_run("smoke", folder / "own.toml", None, None)


def test_the_configuration_of_a_run_is_used_with_its_task(run):
    load_task("mine:Levers")
    chosen = default_run("smoke", run / "config.toml", "mine:Levers", None)
    assert chosen.id == run.name
    assert chosen.tables()["task"]["chance"] == 0.9


def test_another_version_of_the_task(folder, command, new_process):
    """Training refuses it, evaluation says so; where regret is not known, there is none."""
    train = (*UNTRAINED, "--task", "mine:Levers", "--resume")
    run = command(*train).path
    assert command(*train).path == run
    new_process()
    (folder / "mine.py").write_text(LEVERS + "\n# changed\n")
    said = f"{run} was trained with another version of the task mine:Levers: {folder / 'mine.py'} has SHA-256"
    command(*train).refused(said, "--out")
    for args in (("finetune", run, "--snapshot", "1"), ("posthoc", run, "--tasks", "2")):
        command(*args, "--task", "mine:Levers").refused(said)
    done = command("evaluate", run, "--task", "mine:Levers", "--tasks", "2")
    assert f"note: {said}" in done.err
    metrics = set(pl.read_parquet(done.path)["metric"])
    assert metrics == {"return", "policy_entropy", "entropy", "kl"}
    assert "regret" not in done.out


# Sweeps.

SWEEP = """
preset = "smoke"
[[stage]]
name = "all"
set.learning = { updates = 0, steps = 5, batch = 4 }
axes.task.name = ["gridworld", "mine:Levers"]
"""


def test_a_sweep_file_names_its_tasks(folder, command, new_process):
    (folder / "own.toml").write_text(SWEEP)
    listed = command("sweep", "own.toml", "--dry-run").check(0).out
    assert "levers: RNN" in listed
    assert "gridworld: RNN" in listed
    new_process()
    (folder / "own.toml").write_text(SWEEP.replace("Levers", "Lever"))
    command("sweep", "own.toml", "--status").refused("(did you mean 'Levers'?)")


def test_a_worker_loads_only_what_it_is_told(folder):
    """A worker runs with a safe path: the folder is an argument, and the sweep's file loads nothing."""
    out = folder / "out"
    out.mkdir()
    (out / "sweep.toml").write_text(SWEEP)
    worker = [sys.executable, "-P", "-m", "recurrent_laplace.sweeps.worker", str(out), "none"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    read, write = os.pipe()  # A worker stops when its standard input is closed.
    options = {"capture_output": True, "text": True, "env": environment, "cwd": "/", "stdin": read}
    done = subprocess.run(worker, check=False, **options)
    assert "task 'mine:Levers' is not loaded: add --task mine:Levers." in done.stderr
    told = [*worker, "--task=mine:Levers", f"--task-folder={folder}"]
    done = subprocess.run(told, check=False, **options)
    for end in (read, write):
        os.close(end)
    assert "stage must be one of 'all'; got 'none'" in done.stderr  # The plan could be read.


def test_tables_of_a_task():
    assert task_class({}) is TASKS["gridworld"]
    with pytest.raises(ValueError, match="task must be one of"):
        task_class({"name": ["gridworld"]})
