"""Run directories: their files, the commands that use them, and their numbers."""

import dataclasses
import json
import pickletools
import re
import shutil
import tomllib
from datetime import datetime
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import polars as pl
import pytest
from support.runs import SIZES, arrays, copy_of_run
from support.verbs import float32

import recurrent_laplace as rl
from recurrent_laplace.files import seal
from recurrent_laplace.runs.config import Parent, Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.evaluation import UPDATE, WEIGHTS, evaluate_missing, evaluation_is_current
from recurrent_laplace.runs.models import load_optimizer_state
from recurrent_laplace.runs.tables import read_about, write_table
from recurrent_laplace.tasks import Gridworld
from recurrent_laplace.tasks.held_out import test_keys as keys_of_test_tasks

pytestmark = pytest.mark.usefixtures("programs")

UPDATES = 8
FRESH_ID = "gridworld-point-bcc571762012"
"""Identity that version 0.1 gave to a fine-tune."""
SNAPSHOTS = {4, 6, 8}
TIMES = ("--updates", str(UPDATES), "--checkpoint-seconds", "0", "--final-learning-rate", "1e-4")
REGRESSION = ("train", "--task", "regression", *SIZES, *TIMES)
GRID = ("train", "--task", "gridworld", "--task.size", "3", *SIZES, *TIMES, "--final-entropy-weight", "0")

FILES = {"config.toml", "provenance.json", "metrics.parquet", "checkpoints", "log.txt", "status", ".lock"}
LENGTHS = [0, 1, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 100, 200]
METRICS_COLUMNS = {
    "run": pl.String,
    "seed": pl.Int64,
    "update": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}
EVALUATION_COLUMNS = {
    "run": pl.String,
    "configuration": pl.String,
    "seed": pl.Int64,
    "task": pl.Int64,
    "t": pl.Int64,
    "metric": pl.String,
    "value": pl.Float64,
}
COMMON_METRICS = {"loss", "gradient_norm", "kl", "entropy"}
CONTROL_METRICS = {"policy_loss", "value_loss", "policy_entropy", "clip_fraction"}
METRICS = {
    "grid": COMMON_METRICS | CONTROL_METRICS | {"return", "cumulative_regret"},
    "regression": COMMON_METRICS | {"cross_entropy", "squared_error", "predictive_stddev"},
}
CONTROL_EVALUATION = {"return", "cumulative_regret", "regret", "policy_entropy", "entropy", "kl"}
PREDICTIONS = {
    "cross_entropy",
    "squared_error",
    "coverage_50",
    "coverage_90",
    "calibration_error",
    "disagreement",
}
REGRESSION_EVALUATION = {f"{name}{suffix}" for name in PREDICTIONS for suffix in ("", "_strips", "_gaps")}
REGRESSION_EVALUATION |= {"entropy", "kl", "entropy_strips", "kl_strips"}


@pytest.fixture
def grid(command, shared, tmp_path) -> Path:
    """A plain RNN agent of a small grid."""
    return copy_of_run(command, shared, tmp_path, "grid", *GRID)


@pytest.fixture
def regression(command, shared, tmp_path) -> Path:
    """A plain RNN regressor."""
    return copy_of_run(command, shared, tmp_path, "regression", *REGRESSION)


@pytest.fixture
def several_seeds(command, shared, tmp_path) -> Path:
    """Three regressors in one program."""
    return copy_of_run(command, shared, tmp_path, "seeds", *REGRESSION, "--seeds", "3")


def made_partial(directory: Path) -> Path:
    """Make a run look as if it was stopped after 6 of its 8 updates."""
    shutil.rmtree(directory / "checkpoints/8")
    (directory / "status").write_text("interrupted\nstopped at update 6 of 8.\n")
    return directory


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def weights(directory: Path, update: int) -> dict[str, bytes]:
    return {
        name: array.tobytes() for name, array in arrays(directory, update).items() if name[:6] == "model."
    }


def table(frame: pl.DataFrame, metric: str) -> np.ndarray:
    """Values of a metric, with tasks in rows and lengths in columns; null is NaN."""
    rows = frame.filter(pl.col("metric") == metric).sort("task", "t")
    return rows["value"].to_numpy().astype(float).reshape(-1, len(LENGTHS))


# Files of a run directory.


def test_directory_has_the_files_of_the_design(grid):
    assert {path.name for path in grid.iterdir()} == FILES
    assert (grid / "status").read_text() == "finished\n"
    lines = (grid / "log.txt").read_text().splitlines()
    for line in lines:
        assert datetime.fromisoformat(line.split()[0]).utcoffset() is not None
    assert lines[0].endswith(f"begins: {UPDATES} updates")
    assert lines[-1].endswith(f"finished {UPDATES} updates")


def test_name_is_the_hash_of_the_configuration(grid, regression, command):
    assert re.fullmatch(r"gridworld-point-[0-9a-f]{12}", grid.name)
    assert re.fullmatch(r"regression-point-[0-9a-f]{12}", regression.name)
    config = tomllib.loads((grid / "config.toml").read_text())
    assert config["schema"] == 1
    assert config["task"] == {"name": "gridworld", "size": 3, "start": "uniform", "episode_length": 15}
    assert "parent" not in config


def test_snapshots_are_kept_and_scheduled_states_dropped(grid):
    scheduled = {
        int(line.rsplit(maxsplit=1)[1])
        for line in (grid / "log.txt").read_text().splitlines()
        if "checkpoint at update" in line
    }
    assert scheduled > SNAPSHOTS, "other checkpoints were written"
    assert {path.name for path in (grid / "checkpoints").iterdir()} == {str(update) for update in SNAPSHOTS}
    for update in SNAPSHOTS:
        assert arrays(grid, update)["update"] == update
    assert len({tuple(weights(grid, update).values()) for update in SNAPSHOTS}) == len(SNAPSHOTS)


@pytest.mark.parametrize("kind", METRICS)
def test_metrics_table(kind, request):
    directory, names = request.getfixturevalue(kind), METRICS[kind]
    frame = pl.read_parquet(directory / "metrics.parquet")
    assert dict(frame.schema) == METRICS_COLUMNS
    assert frame["run"].unique().to_list() == [directory.name]
    assert frame["seed"].unique().to_list() == [0]
    assert set(frame["metric"]) == names
    for _, rows in frame.group_by("metric"):
        assert rows["update"].to_list() == list(range(1, UPDATES + 1))
    # A point belief has neither: they are null, not zero and not NaN.
    nothing = pl.col("metric").is_in(["kl", "entropy"])
    assert frame.filter(nothing)["value"].null_count() == 2 * UPDATES
    assert np.all(np.isfinite(frame.filter(~nothing)["value"].to_numpy()))


def test_provenance(regression, command):
    (session,) = json.loads((regression / "provenance.json").read_text())["sessions"]
    assert session.keys() >= {"command", "python", "platform", "processor", "cores", "devices", "xla_flags"}
    assert session["packages"].keys() >= {"recurrent-laplace", "jax", "jaxlib", "equinox", "optax", "numpy"}
    assert session["packages"]["recurrent-laplace"] == rl.__version__
    assert session["packages"]["jax"] == jax.__version__
    assert session["updates"] == UPDATES
    assert session["devices"]
    assert datetime.fromisoformat(session["began"]) <= datetime.fromisoformat(session["ended"])
    made_partial(regression)
    assert command(*REGRESSION, "--resume", "--out", regression.parent).code == 0
    first, second = json.loads((regression / "provenance.json").read_text())["sessions"]
    assert first == session
    assert second["began"] >= first["ended"]


def test_nothing_is_pickled(grid, regression):
    for path in (*grid.rglob("*"), *regression.rglob("*")):
        if path.is_file():
            # A file is a pickle only if it can be parsed as one to its end.
            with pytest.raises(ValueError, match=r"."):
                list(pickletools.genops(path.read_bytes()))
    forbidden = re.compile(
        r"^\s*(import|from)\s+(pickle|cloudpickle|dill|joblib|shelve|marshal)\b|allow_pickle\s*=\s*True",
        re.MULTILINE,
    )
    source = Path(rl.__file__).parent
    found = [path.name for path in source.rglob("*.py") if forbidden.search(path.read_text())]
    # This file reads pickles of other libraries without executing anything in them: test_sb3_files.py.
    assert found == ["sb3_files.py"]


# Runs that exist already.


def test_existing_run_is_an_error_without_resume(grid, command):
    before = contents(grid)
    done = command(*GRID, "--out", grid.parent)
    assert done.code == 2
    assert f"{grid} exists already and is finished" in done.err
    assert "--resume" in done.err
    made_partial(grid)
    del before["status"]
    done = command(*GRID, "--out", grid.parent)
    assert done.code == 2
    assert f"{grid} exists already and is partial (interrupted, 6 of 8 updates stored)" in done.err
    after = contents(grid)
    assert {name: after[name] for name in before if "checkpoints/8/" not in name} == {
        name: content for name, content in before.items() if "checkpoints/8/" not in name
    }


def test_finished_run_is_accepted_with_resume(grid, command):
    before = contents(grid)
    done = command(*GRID, "--resume", "--out", grid.parent)
    assert done.path == grid
    assert "compiling" not in done.out
    assert contents(grid) == before


def test_resume_begins_a_run_that_is_not_there(tmp_path, command):
    done = command(*REGRESSION, "--resume", "--updates", "2", "--out", tmp_path / "new" / "deeper")
    assert (done.path / "status").read_text() == "finished\n"


# Several seeds.


@pytest.mark.slow
def test_several_seeds_are_the_single_runs(several_seeds, regression, command, tmp_path):
    frame = pl.read_parquet(several_seeds / "metrics.parquet")
    assert frame["seed"].unique().sort().to_list() == [0, 1, 2]
    assert frame.group_by("seed", "metric").len()["len"].unique().to_list() == [UPDATES]
    other = command(*REGRESSION, "--seed", "1", "--out", tmp_path).path
    names = ["loss", "squared_error", "gradient_norm", "predictive_stddev"]
    wanted = pl.col("metric").is_in(names) & (pl.col("update") <= 3)
    for seed, single in ((0, regression), (1, other)):
        own = frame.filter(wanted & (pl.col("seed") == seed))["value"].to_numpy()
        alone = pl.read_parquet(single / "metrics.parquet").filter(wanted)["value"].to_numpy()
        assert len(own) == 3 * len(names)
        # The two programs order their float32 sums differently.
        np.testing.assert_allclose(own, alone, rtol=1e-4)
    losses = frame.filter((pl.col("metric") == "loss") & (pl.col("update") == 1))["value"]
    assert losses.n_unique() == 3

    tested = pl.read_parquet(command("evaluate", several_seeds, "--tasks", "8").path)
    assert dict(tested.schema) == EVALUATION_COLUMNS
    assert set(tested["metric"]) == REGRESSION_EVALUATION
    counts = tested.group_by("seed").len().sort("seed")
    assert counts["seed"].to_list() == [0, 1, 2]
    assert counts["len"].unique().to_list() == [8 * len(LENGTHS) * len(REGRESSION_EVALUATION)]
    alone = pl.read_parquet(command("evaluate", other, "--tasks", "8").path)
    own = tested.filter(pl.col("seed") == 1)
    np.testing.assert_allclose(table(own, "squared_error"), table(alone, "squared_error"), rtol=1e-3)
    # The configuration is the same, the runs are not.
    assert tested["configuration"].unique().to_list() == alone["configuration"].unique().to_list()
    assert tested["run"].unique().to_list() == [several_seeds.name] != alone["run"].unique().to_list()


# Evaluation.


@pytest.fixture
def tested(grid, command) -> dict[str, pl.DataFrame]:
    """Tables of the same agent: 8 tasks, 16 tasks, and 8 with greedy actions."""
    calls = {"8": ["--tasks", "8"], "16": ["--tasks", "16"], "greedy": ["--tasks", "8", "--greedy"]}
    return {
        name: pl.read_parquet(command("evaluate", grid, *options).path) for name, options in calls.items()
    }


def test_evaluation_of_an_agent(tested, grid):
    assert {path.name for path in grid.glob("*.parquet")} == {
        "metrics.parquet",
        "evaluation-8-tasks.parquet",
        "evaluation-16-tasks.parquet",
        "evaluation-8-tasks-greedy.parquet",
    }
    for frame in tested.values():
        assert dict(frame.schema) == EVALUATION_COLUMNS
        assert set(frame["metric"]) == CONTROL_EVALUATION
        assert frame["t"].unique().sort().to_list() == LENGTHS
        assert frame["run"].unique().to_list() == [grid.name]
        assert frame["seed"].unique().to_list() == [0]
        assert (
            frame.filter(pl.col("metric").is_in(["entropy", "kl"]))["value"].null_count() == frame.height / 3
        )
        assert not frame["value"].is_nan().any()

    # Test tasks do not depend on their number.
    assert tested["16"]["task"].max() == 15
    assert (
        tested["16"]
        .filter(pl.col("task") < 8)
        .sort("metric", "task", "t")
        .equals(tested["8"].sort("metric", "task", "t"))
    )
    assert not np.array_equal(table(tested["greedy"], "return"), table(tested["8"], "return"))

    # Return of an agent that knows the goal, from the tasks themselves.
    task = Gridworld(size=3)
    with jax.enable_x64(False):
        problems = jax.vmap(lambda key: task.sample(key, test=True))(keys_of_test_tasks(16)[0])
    distance = np.abs(np.asarray(problems.start) - np.asarray(problems.goal)).sum(axis=1)
    best = np.array(LENGTHS)[None, :] // distance[:, None]
    for frame in tested.values():
        paid, regret = table(frame, "return"), table(frame, "cumulative_regret")
        np.testing.assert_allclose(paid + regret, best[: len(paid)], atol=1e-4)
        assert np.all(paid == np.round(paid))
        assert np.all(np.diff(paid, axis=1) >= 0)
        assert np.all(paid[:, 0] == 0)
        np.testing.assert_array_less(table(frame, "policy_entropy")[:, 1:], np.log(4) + 1e-5)
    assert table(tested["8"], "return")[:, -1].mean() > 0


def test_evaluation_of_snapshots(grid, command):
    half = command("evaluate", grid, "--snapshot", "0.5", "--tasks", "8")
    assert half.path.name == "evaluation-update-4-8-tasks.parquet"
    assert "evaluated at update 4 of 8" in half.out
    assert read_about(half.path)[UPDATE] == "4"
    last = command("evaluate", grid, "--snapshot", "1", "--tasks", "8").path
    assert last.name == "evaluation-8-tasks.parquet"
    assert not pl.read_parquet(last).equals(pl.read_parquet(half.path))
    command("evaluate", grid, "--snapshot", "0.3").refused("has no snapshot 0.3; it has: 0.5, 0.75, 1")


def test_train_evaluates_its_snapshots(grid, command):
    done = command(*GRID, "--out", grid.parent, "--resume", "--evaluate-snapshots")
    names = ["evaluation-update-4.parquet", "evaluation-update-6.parquet", "evaluation.parquet"]
    assert [path.name for path in sorted(grid.glob("evaluation*"))] == names
    assert [Path(line.split()[1]).name for line in done.out.splitlines() if line[:9] == "evaluated"] == names
    again = command(*GRID, "--out", grid.parent, "--resume", "--evaluate-snapshots")
    assert "evaluated" not in again.out


def test_evaluations_of_other_tasks_or_weights_are_not_current(grid, command):
    """Version 0.1 recorded no number of tasks: there were 128."""
    directory = RunDirectory.open(grid)
    with float32():
        (path,) = evaluate_missing(directory, tasks=8)
    assert path.name == "evaluation.parquet"
    assert evaluation_is_current(directory, tasks=8)
    assert not evaluation_is_current(directory)
    assert not evaluation_is_current(directory, UPDATES // 2, tasks=8)
    about = read_about(path)
    write_table(path, pl.read_parquet(path), {UPDATE: about[UPDATE], WEIGHTS: about[WEIGHTS]})
    assert evaluation_is_current(directory)
    assert not evaluation_is_current(directory, tasks=8)
    write_table(path, pl.read_parquet(path), {UPDATE: about[UPDATE], WEIGHTS: "0"})
    assert not evaluation_is_current(directory)


def test_evaluation_says_what_is_possible(grid, command):
    """The table has exact Bayes on the same tasks below the agent, and stores it beside the runs."""
    done = command("evaluate", grid, "--tasks", "8")
    frame = pl.read_parquet(done.path)
    (stored,) = grid.parent.glob("oracle-gridworld-*.parquet")
    exact = pl.read_parquet(stored)
    assert dict(exact.schema) == EVALUATION_COLUMNS
    assert exact["task"].n_unique() == 128
    first = exact.filter((pl.col("run") == "exact Bayes") & (pl.col("task") < 8))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.out.splitlines()]
    begin = [row[:1] for row in rows].index(["return"])
    names = ("return", "exact Bayes", "told the goal", "share of exact Bayes")
    assert tuple(row[0] for row in rows[begin : begin + 4]) == names
    own, best = (table(each, "return")[:, -1].mean() for each in (frame, first))
    shown = dict(zip(names, (row[-1] for row in rows[begin : begin + 4]), strict=True))
    assert shown["return"].startswith(f"{own:.3g} ±")
    assert shown["exact Bayes"].startswith(f"{best:.3g} ±")
    assert shown["share of exact Bayes"].startswith(f"{own / best:.0%} ±")
    # The agent that is told the goal is best, and exact Bayes is near it.
    told = table(exact.filter(pl.col("run") == "told the goal"), "return")[:, -1].mean()
    assert 0.7 * told < table(exact.filter(pl.col("run") == "exact Bayes"), "return")[:, -1].mean() < told


# Other posteriors on the same weights.


@pytest.mark.slow
def test_posthoc_there_and_back(grid, command):
    original = pl.read_parquet(command("evaluate", grid, "--tasks", "8").path)
    written = command("posthoc", grid, "--posterior", "laplace").path
    bayesian = written.parent
    assert written.name == "evaluation.parquet"
    assert bayesian.parent == grid.parent
    assert re.fullmatch(r"gridworld-laplace-[0-9a-f]{12}", bayesian.name)
    assert {path.name for path in bayesian.iterdir()} == FILES | {"evaluation.parquet"}
    config = tomllib.loads((bayesian / "config.toml").read_text())
    assert config["parent"] == {"run": grid.name, "snapshot": UPDATES}
    assert config["learning"]["updates"] == 0
    assert weights(bayesian, 0) == weights(grid, UPDATES)

    frame = pl.read_parquet(written)
    assert dict(frame.schema) == EVALUATION_COLUMNS
    assert frame["t"].unique().sort().to_list() == LENGTHS
    assert frame["task"].unique().sort().to_list() == list(range(128))
    entropy, kl = table(frame, "entropy"), table(frame, "kl")
    # The prior has unit variances in 8 dimensions, and accumulation only reduces the entropy.
    np.testing.assert_allclose(entropy[:, 0], 4 * np.log(2 * np.pi * np.e), rtol=1e-5)
    assert np.all(np.diff(entropy.mean(axis=0)) < 0)
    assert np.all(np.isnan(kl[:, 0]))
    assert np.all(kl[:, 1:] > 0)

    # Back to a point posterior: exactly the same agent.
    back = command("posthoc", bayesian, "--posterior", "point", "--tasks", "8").path
    assert tomllib.loads((back.parent / "config.toml").read_text())["parent"]["run"] == bayesian.name
    assert weights(back.parent, 0) == weights(grid, UPDATES)
    assert back.name == "evaluation-8-tasks.parquet"
    again = pl.read_parquet(back).sort("metric", "task", "t")
    assert again["value"].equals(original.sort("metric", "task", "t")["value"])

    # The derived run exists now.
    done = command("posthoc", bayesian, "--posterior", "point", "--tasks", "8")
    assert done.code == 2
    assert "exists already" in done.err
    assert command("posthoc", bayesian, "--posterior", "point", "--tasks", "8", "--resume").path == back


def test_posthoc_variational_has_a_fresh_head(grid, command, tmp_path):
    options = ["--posterior", "variational", "--snapshot", "0.5", "--tasks", "8"]
    written = command("posthoc", grid, *options, "--out", tmp_path / "x").path
    assert written.parent.parent == tmp_path / "x"
    own, parent = weights(written.parent, 0), weights(grid, UPDATES // 2)
    assert {name: own[name] for name in parent} == parent
    assert {name.split(".")[2] for name in own.keys() - parent.keys()} == {"log_eigenvalue_head"}
    frame = pl.read_parquet(written)
    assert frame.filter(pl.col("metric") == "entropy")["value"].null_count() == 0
    assert tomllib.loads((written.parent / "config.toml").read_text())["parent"]["snapshot"] == UPDATES // 2


@pytest.mark.parametrize("parent", ["grid", "several_seeds"])
def test_finetune_as_the_same_posterior_is_the_parents_own_continuation(parent, request, command):
    parent = request.getfixturevalue(parent)
    tuned = command("finetune", parent, "--snapshot", "0.5").path
    config = tomllib.loads((tuned / "config.toml").read_text())
    half = UPDATES // 2
    assert config["parent"] == {"run": parent.name, "snapshot": half, "start": half}
    own, expected = arrays(tuned, UPDATES - half), arrays(parent, UPDATES)
    assert own.keys() == expected.keys()
    for name in own:
        assert own[name].tobytes() == expected[name].tobytes(), name
    metrics, parents = (pl.read_parquet(run / "metrics.parquet").drop("run") for run in (tuned, parent))
    shifted = parents.filter(pl.col("update") > half).with_columns(pl.col("update") - half)
    assert metrics.equals(shifted)
    # Interrupted after 3 of its 4 updates and resumed, it is the same.
    shutil.rmtree(tuned / "checkpoints" / str(UPDATES - half))
    (tuned / "status").write_text("interrupted\n")
    assert command("finetune", parent, "--snapshot", "0.5", "--resume").path == tuned
    resumed = arrays(tuned, UPDATES - half)
    assert all(resumed[name].tobytes() == own[name].tobytes() for name in own)


def test_finetune_continues_the_moments_and_begins_those_of_new_parameters_at_zero(regression):
    directory = RunDirectory.open(regression)
    config = dataclasses.replace(directory.run.config, posterior=rl.VariationalConfig())
    with float32():
        state = load_optimizer_state(directory, UPDATES // 2)
        model = rl.with_posterior(state.model, config.posterior, key=jax.random.key(0))
        continued = rl.make_train(config, start=UPDATES // 2).continue_from(state, model)
    assert int(continued.update) == UPDATES // 2
    old = dict(jax.tree.leaves_with_path(state.optimizer))
    new = dict(jax.tree.leaves_with_path(continued.optimizer))
    added = new.keys() - old.keys()
    assert {jax.tree_util.keystr(path).split(".")[-2] for path in added} == {"log_eigenvalue_head"}
    assert not any(np.any(new[path]) for path in added)
    for path, leaf in old.items():
        np.testing.assert_array_equal(new[path], leaf)


def test_finetune_with_a_fresh_optimizer(regression, command):
    tuned = command("finetune", regression, "--snapshot", "0.75", "--fresh-optimizer").path
    assert tuned.parent == regression.parent
    config = tomllib.loads((tuned / "config.toml").read_text())
    assert config["parent"] == {"run": regression.name, "snapshot": 6}
    assert config["learning"]["updates"] == 2
    own = tomllib.loads((regression / "config.toml").read_text())
    assert {name: config[name] for name in ("task", "agent", "posterior")} == {
        name: own[name] for name in ("task", "agent", "posterior")
    }
    assert pl.read_parquet(tuned / "metrics.parquet")["update"].unique().sort().to_list() == [1, 2]
    assert weights(tuned, 2).keys() == weights(regression, 8).keys()
    # Other tasks than the parent's and a fresh optimiser lead to other weights.
    assert weights(tuned, 2) != weights(regression, 8)
    assert (tuned / "status").read_text() == "finished\n"


def test_finetune_of_a_parent_without_a_state_of_the_optimizer(regression, command):
    checkpoint = regression / "checkpoints" / str(UPDATES // 2)
    kept = {name: array for name, array in arrays(regression, UPDATES // 2).items() if name[:6] == "model."}
    shutil.rmtree(checkpoint / "arrays")
    ocp.PyTreeCheckpointer().save((checkpoint / "arrays").absolute(), kept)
    (checkpoint / "SHA256SUMS").unlink()
    seal(checkpoint)
    command("finetune", regression).refused("no state of the optimiser at update 4", "--fresh-optimizer")
    assert command("finetune", regression, "--fresh-optimizer").code == 0


def test_identity_of_a_fresh_finetune_is_that_of_version_01():
    parent = Parent(run="gridworld-point-0123456789ab", snapshot=4)
    fresh = Run(config=rl.Config(), parent=parent)
    assert fresh.id == FRESH_ID
    assert "start" not in fresh.tables()["parent"]
    continued = dataclasses.replace(fresh, parent=dataclasses.replace(parent, start=4))
    assert continued.id != fresh.id
    for run in (fresh, continued):
        assert Run.from_toml(run.to_toml(), Path("config.toml")) == run


@pytest.mark.parametrize("posterior", ["laplace", "variational"])
def test_finetune_starts_from_the_weights_of_the_snapshot(posterior, regression, command, tmp_path):
    options = ["--posterior", posterior, "--covariance", "dense", "--updates", "0"]
    tuned = command("finetune", regression, *options, "--out", tmp_path / "tuned").path
    assert tuned.parent == tmp_path / "tuned"
    own, parent = weights(tuned, 0), weights(regression, UPDATES // 2)
    assert {name: own[name] for name in parent} == parent
    assert (own.keys() == parent.keys()) == (posterior == "laplace")
    config = tomllib.loads((tuned / "config.toml").read_text())
    assert config["parent"] == {"run": regression.name, "snapshot": UPDATES // 2}
    assert config["posterior"]["kind"] == posterior
    assert config["posterior"]["covariance"] == "dense"
    for name, array in arrays(tuned, 0).items():
        if name.startswith("optimizer."):
            assert not np.any(array), name


def test_finetune_of_several_seeds(several_seeds, command):
    options = ["--snapshot", "1", "--updates", "0", "--posterior", "variational"]
    tuned = command("finetune", several_seeds, *options).path
    own, parent = arrays(tuned, 0), arrays(several_seeds, UPDATES)
    for name in parent:
        if name.startswith("model."):
            assert own[name].tobytes() == parent[name].tobytes()
    head = own["model.posterior.log_eigenvalue_head.weight"]
    assert head.shape[0] == 3
    assert len({seed.tobytes() for seed in head}) == 3
    assert len({key.tobytes() for key in (*own["key"], *parent["key"])}) == 6
