"""What exact Bayes reaches: the oracles' own numbers on the test tasks, kept, compared and printed."""

import dataclasses
import io
from pathlib import Path

import jax
import numpy as np
import polars as pl
import pytest
from rich.console import Console

import recurrent_laplace as rl
from recurrent_laplace.evaluation.references import EXACT, evaluate_references, training_reference
from recurrent_laplace.evaluation.regression import QUERIES
from recurrent_laplace.evaluation.statistics import mean_interval, ratio_interval
from recurrent_laplace.oracles import (
    Greedy,
    GridOracle,
    SeriesOracle,
    TwoArmOracle,
    Walker,
    memoryless_return,
    play,
)
from recurrent_laplace.report.frames import MEMORYLESS, RUNS_SCHEMA, TESTS_SCHEMA, Frames
from recurrent_laplace.report.oracles import exact_tests, exact_training, with_oracles
from recurrent_laplace.runs import oracles
from recurrent_laplace.runs.config import Run, task_id
from recurrent_laplace.runs.oracles import oracle_table, training_id, training_table
from recurrent_laplace.runs.summary import compared, summary, summary_table
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, evaluation_frame
from recurrent_laplace.tasks.held_out import LENGTHS
from recurrent_laplace.tasks.held_out import test_keys as keys_of_test_tasks

TASKS = 3
GRID = rl.Gridworld(size=3)


def played(task, agent):
    """Rewards and regrets of each step, by the oracles themselves: one task at a time."""
    one = jax.jit(lambda a, b: play(task, agent, task.sample(a, test=True), steps=max(LENGTHS), key=b))
    results = [one(*keys) for keys in zip(*keys_of_test_tasks(TASKS), strict=True)]
    return np.array([result.reward for result in results]), np.array([result.regret for result in results])


@pytest.mark.parametrize(
    ("task", "agent"),
    [(GRID, Walker(GridOracle(GRID))), (rl.TwoArmBandit(), Greedy(TwoArmOracle(rl.TwoArmBandit())))],
    ids=["gridworld", "two arms"],
)
def test_references_are_the_oracles_on_the_test_tasks(task, agent):
    table = evaluate_references(task, tasks=TASKS)[EXACT]
    reward, regret = played(task, agent)
    for i, t in enumerate(LENGTHS):
        np.testing.assert_allclose(table["return"][:, i], reward[:, :t].sum(axis=1), atol=1e-9)
        np.testing.assert_allclose(table["cumulative_regret"][:, i], regret[:, :t].sum(axis=1), atol=1e-9)
        if t:
            np.testing.assert_allclose(table["regret"][:, i], regret[:, t - 1], atol=1e-9)
    assert np.isnan(table["regret"][:, 0]).all()


def test_who_was_told_the_goal_walks_shortest_paths():
    told = evaluate_references(GRID, tasks=TASKS)["told the goal"]
    problems = jax.vmap(lambda key: GRID.sample(key, test=True))(keys_of_test_tasks(TASKS)[0])
    distance = np.abs(np.asarray(problems.start) - np.asarray(problems.goal)).sum(axis=1)
    np.testing.assert_array_equal(told["return"], np.array(LENGTHS)[None] // distance[:, None])


@pytest.mark.slow
def test_references_of_the_dirichlet_bandit_are_those_of_its_two_priors():
    task = rl.DirichletBandit()
    tested, trained = evaluate_references(task, tasks=64), training_reference(task, tasks=64, steps=50)
    at = LENGTHS.index(50)
    regrets = {name: float(table["cumulative_regret"][:, at].mean()) for name, table in tested.items()}
    # 3.9 and 4.9 (test_oracles.py), over 64 tasks.
    assert 2 < regrets[EXACT] < 7
    assert 2 < regrets["Thompson"] < 8
    assert list(trained) == [EXACT]
    assert trained[EXACT]["return"].shape == (64, 1)
    # Training has the smaller concentration, so better best arms.
    assert trained[EXACT]["return"].mean() > tested[EXACT]["return"][:, at].mean()


@pytest.mark.slow
def test_independent_arms_are_pulled_by_their_index():
    tables = evaluate_references(rl.BetaBandit(), tasks=128)
    regrets = {name: np.asarray(table["cumulative_regret"][:, -1]) for name, table in tables.items()}
    # The same tasks: 2.4 against 3.2.
    assert mean_interval(regrets["Thompson"] - regrets[EXACT]).low > 0


@pytest.mark.slow
def test_regression_is_bayesian_linear_regression_at_the_same_queries():
    task = rl.Regression()
    table = evaluate_references(task, tasks=2)[EXACT]
    oracle = SeriesOracle(task)
    unroll = jax.jit(oracle.unroll)
    key_problem, key = (keys[1] for keys in keys_of_test_tasks(2))
    key_pairs, key_queries, _ = jax.random.split(key, 3)
    for suffix, inputs in (("", "interval"), ("_strips", "strips")):
        own = dataclasses.replace(task, inputs=inputs)
        problem = own.sample(key_problem, test=True)
        x, y = own.pairs(problem, key_pairs, max(LENGTHS))
        query_x, query_y = own.queries(problem, key_queries, QUERIES)
        beliefs = unroll(x, y)
        for t in (0, 3, 200):
            at = oracle.prior() if t == 0 else jax.tree.map(lambda leaf, t=t: leaf[t - 1], beliefs)
            prediction = at.predict(query_x)
            column = LENGTHS.index(t)
            expected = -np.mean(prediction.log_prob(query_y))
            np.testing.assert_allclose(table[f"cross_entropy{suffix}"][1, column], expected, rtol=1e-6)
            error = np.mean((query_y - prediction.mean) ** 2)
            found = table[f"squared_error{suffix}"][1, column]
            np.testing.assert_allclose(found, error, rtol=1e-6, atol=1e-12)
    # Nine values tell everything; in strips they hardly tell of what is between them.
    assert (table["cross_entropy"][:, LENGTHS.index(25)] < -3).all()
    assert (table["squared_error_gaps"] >= 0).all()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OtherGrid(rl.Gridworld):
    """A task of one's own whose exact belief is not known, though it is like another."""

    name = "other_grid"


rl.register_support(OtherGrid, oracle=None, references=None)


def test_a_task_of_ones_own_has_no_references(tmp_path):
    assert evaluate_references(OtherGrid(), tasks=2) == {}
    assert training_reference(OtherGrid(), tasks=2, steps=5) == {}
    for table in (oracle_table(tmp_path, OtherGrid()), training_table(tmp_path, OtherGrid(), steps=5)):
        assert table.is_empty()
        assert dict(table.schema) == EVALUATION_SCHEMA
    assert not list(tmp_path.iterdir())


# Comparisons.


def test_ratio_of_means_has_the_interval_of_a_bootstrap():
    random = np.random.default_rng(0)
    below = random.uniform(1, 3, size=400)
    above = 0.7 * below + random.normal(size=400)
    ratio = ratio_interval(above, below)
    assert ratio.mean == pytest.approx(above.mean() / below.mean())
    chosen = random.integers(400, size=(4000, 400))
    again = above[chosen].mean(axis=1) / below[chosen].mean(axis=1)
    low, high = np.quantile(again, [0.005, 0.995])
    # The quantiles of 4000 draws are themselves off by a few hundredths of the interval.
    assert ratio.high - ratio.low == pytest.approx(high - low, rel=0.1)
    exact = ratio_interval(0.5 * below, below)
    assert (exact.low, exact.high) == pytest.approx((0.5, 0.5))


def test_nothing_is_no_share_of_nothing():
    assert np.isnan(ratio_interval(np.ones(3), np.zeros(3)).mean)
    assert np.isnan(ratio_interval(np.full(2, np.nan), np.ones(2)).mean)
    assert ratio_interval(np.array([1.0, np.nan, 3.0]), np.array([2.0, 5.0, 6.0])).mean == 0.5


def made_up(run: str, **metrics: float) -> pl.DataFrame:
    """Values that grow with the task and the length."""
    grid = 1 + np.arange(4)[:, None] + np.arange(len(LENGTHS))[None]
    grid = grid * (np.array(LENGTHS) > 0)
    return evaluation_frame(run, "c", 0, LENGTHS, {name: factor * grid for name, factor in metrics.items()})


def printed(table, width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def cells(lines: list[str], name: str) -> list[list[str]]:
    """The cells of the rows with this name, in order."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]
    return [row[1:] for row in rows if row[0] == name]


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_has_what_is_possible_below_the_agents_numbers(width):
    frame = made_up("agent", **{"return": 3.0, "cumulative_regret": 4.0, "entropy": 1.0})
    exact = pl.concat(
        [
            made_up(EXACT, **{"return": 6.0, "cumulative_regret": 2.0}),
            made_up("told the goal", **{"return": 8.0, "cumulative_regret": 0.0}),
        ]
    )
    lines = printed(summary_table(frame, exact, width), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    names = [line.strip("│").split("│")[0].strip() for line in lines if line.startswith("│")]
    assert names == [
        *("return", EXACT, "told the goal", "share of exact Bayes"),
        *("cumulative_regret", EXACT, "told the goal", "times exact Bayes"),
        "entropy",
    ]
    # Every task has half of the return and twice the regret: nothing is unsure about that.
    assert cells(lines, "share of exact Bayes")[0][-1] == "50% ± 0.0%"
    assert cells(lines, "times exact Bayes")[0][-1] == "2 ± 0"
    own, other = summary(frame), summary(exact.filter(pl.col("run") == EXACT))
    assert cells(lines, "return")[0][-1].startswith(f"{own['return', 200].mean:.3g} ±")
    assert cells(lines, EXACT)[0][-1].startswith(f"{other['return', 200].mean:.3g} ±")
    if width == 200:
        assert cells(lines, "share of exact Bayes")[0][0] == "-"


def test_cross_entropies_are_compared_by_their_difference():
    frame = made_up("agent", cross_entropy=1.0, cross_entropy_gaps=1.0, entropy=1.0)
    exact = made_up(EXACT, cross_entropy=-2.0, cross_entropy_gaps=0.5, coverage_50=0.5)
    found = compared(frame, exact)
    assert {metric for metric, _ in found} == {"cross_entropy", "cross_entropy_gaps"}
    values = 1 + np.arange(4) + LENGTHS.index(50)
    np.testing.assert_allclose(found["cross_entropy", 50], mean_interval(3 * values))
    np.testing.assert_allclose(found["cross_entropy_gaps", 50], mean_interval(0.5 * values))


def test_numbers_near_nothing_fit_into_eighty_columns():
    tiny = {"squared_error": 3e-10, "squared_error_strips": 1.234e-3, "calibration_error_strips": 1.0}
    lines = printed(summary_table(made_up("agent", **tiny), made_up(EXACT, **tiny), 80), 80)
    assert "…" not in "".join(lines)
    assert cells(lines, "squared_error")[0][0] == "1e-09 ± 1e-09"
    assert cells(lines, "calibration_error_strips")[0][0].startswith("3.5 ±")


def test_without_references_the_table_is_the_agents():
    frame = made_up("agent", **{"return": 3.0})
    lines = printed(summary_table(frame, pl.DataFrame(schema=EVALUATION_SCHEMA), 80), 80)
    assert len(cells(lines, "return")) == 1
    assert EXACT not in "".join(lines)


# Tables beside the runs.


@pytest.fixture
def computed(monkeypatch):
    """Tables of numbers that are known at once, and a list of what was asked for."""
    asked = []

    def tested(task, *, tasks):
        asked.append((task, tasks))
        values = np.arange(tasks * len(LENGTHS), dtype=float).reshape(tasks, len(LENGTHS))
        return {EXACT: {"return": values}, "told the goal": {"return": 2 * values}}

    def trained(task, *, tasks, steps):
        asked.append((task, tasks, steps))
        return {EXACT: {"return": np.full((tasks, 1), 0.5 * steps)}}

    monkeypatch.setattr(oracles, "evaluate_references", tested)
    monkeypatch.setattr(oracles, "training_reference", trained)
    return asked


def test_a_table_is_computed_once_for_a_task(computed, tmp_path):
    first = oracle_table(tmp_path, GRID)
    assert dict(first.schema) == EVALUATION_SCHEMA
    assert first["configuration"].unique().to_list() == [task_id(GRID)]
    assert [path.name for path in tmp_path.iterdir()] == [f"oracle-{task_id(GRID)}.parquet"]
    assert oracle_table(tmp_path, GRID).equals(first)
    # The first tasks are the same however many there are, so that no other table is needed.
    assert oracle_table(tmp_path, GRID, tasks=5).equals(first.filter(pl.col("task") < 5))
    assert computed == [(GRID, 128)]
    assert oracle_table(tmp_path, GRID, tasks=200)["task"].max() == 199
    oracle_table(tmp_path, rl.Gridworld(size=4))
    training_table(tmp_path, GRID, steps=7)
    assert training_table(tmp_path, GRID, steps=7)["t"].unique().to_list() == [7]
    assert computed[1:] == [(GRID, 200), (rl.Gridworld(size=4), 128), (GRID, 256, 7)]


def test_a_damaged_table_is_computed_again(computed, tmp_path):
    table = oracle_table(tmp_path, GRID)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:50], whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]):
        path.write_bytes(damaged)
        assert oracle_table(tmp_path, GRID).equals(table)
        assert path.read_bytes() == whole


def test_identities_of_tasks_are_of_their_parameters():
    assert task_id(GRID) == task_id(rl.Gridworld(size=3)) != task_id(rl.Gridworld(size=4))
    assert task_id(GRID).startswith("gridworld-")
    assert task_id(rl.TwoArmBandit()) != task_id(rl.BetaBandit())


def frames_of(folder: Path, *runs: Run) -> Frames:
    """As `load_frames` would make them, of directories that have no more than a configuration."""
    rows = []
    for run in runs:
        (folder / run.id).mkdir()
        (folder / run.id / "config.toml").write_text(run.to_toml())
        task, learning = run.config.task, run.config.learning
        row = {"run": run.id, "path": run.id, "task": task.name, "task_id": task_id(task)}
        rows.append(row | {"updates": learning.updates, "steps": learning.steps})
    nothing = pl.DataFrame(schema=TESTS_SCHEMA)
    runs_frame = pl.DataFrame(rows, schema=RUNS_SCHEMA)
    return Frames(runs_frame, pl.DataFrame(), nothing, left_out={}, provenance={}, folder=folder)


def test_reports_compute_what_is_not_there(computed, tmp_path):
    learning = rl.LearningConfig(steps=10)
    grid, again = (Run(config=rl.Config(task=GRID, learning=learning), seed=seed) for seed in (0, 1))
    series = Run(config=rl.Config(task=rl.Regression(), learning=learning))
    bare = frames_of(tmp_path, grid, again, series)
    assert bare.oracle.is_empty()
    assert exact_tests(bare, bare.runs, "return").is_empty()
    assert exact_training(bare, bare.runs, "return") is None

    oracle_table(tmp_path, GRID)
    said: list[str] = []
    frames = with_oracles(bare, said.append)
    assert computed == [(GRID, 128), (GRID, 256, 10), (rl.Regression(), 128)]
    assert said == ["exact Bayes on gridworld", "exact Bayes on regression"]
    assert set(frames.oracle["configuration"]) == {
        task_id(GRID),
        training_id(task_id(GRID), 10),
        task_id(rl.Regression()),
    }
    runs = frames.runs.filter(pl.col("task") == "gridworld")
    rows = exact_tests(frames, runs, "return")
    assert rows["t"].to_list() == list(LENGTHS)
    values = np.arange(128 * len(LENGTHS)).reshape(128, -1).mean(axis=0)
    np.testing.assert_allclose(rows["value"], values)
    assert exact_training(frames, runs, "return") == 5.0
    assert exact_tests(frames, runs, "cross_entropy").is_empty()


def test_exact_bayes_plays_the_tasks_of_the_runs(computed, tmp_path):
    run = Run(config=rl.Config(task=GRID, learning=rl.LearningConfig(steps=10)))
    bare = frames_of(tmp_path, run)
    tests = pl.DataFrame(
        [(run.id, run.configuration, 0, 50, "return", 1.0, [1.0] * 200)], schema=TESTS_SCHEMA, orient="row"
    )
    frames = with_oracles(dataclasses.replace(bare, evaluation=tests))
    assert computed == [(GRID, 200), (GRID, 256, 10)]
    walk = frames.oracle.filter(pl.col("run") == MEMORYLESS).sort("t")
    assert walk["t"].to_list() == list(LENGTHS)
    assert walk["configuration"].unique().to_list() == [task_id(GRID)]
    assert walk["value"][-2:].to_list() == [memoryless_return(GRID, steps=steps) for steps in (100, 200)]


def test_frames_from_elsewhere_have_no_folder_to_look_in(computed, tmp_path):
    frames = dataclasses.replace(frames_of(tmp_path), folder=None)
    assert with_oracles(frames) is frames
    assert not computed
