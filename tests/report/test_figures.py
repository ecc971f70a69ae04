"""Figures: values, colours, and labels of missing runs."""

import dataclasses

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text
from support.paper_runs import METHODS, cross_entropy, paper_frames, paper_run
from support.synthetic import synthetic_frames, synthetic_run

from recurrent_laplace.evaluation.references import EXACT
from recurrent_laplace.evaluation.statistics import mean_interval
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.figures.ablations import comparable
from recurrent_laplace.report.figures.control import better_half
from recurrent_laplace.report.figures.seeds import share_of_exact
from recurrent_laplace.report.figures.timing import times
from recurrent_laplace.report.methods import BAYESIAN, RNN, VARIANTS, Variant, join_labels
from recurrent_laplace.report.panels import Panel, average_updates, curve_of, unit_rows
from recurrent_laplace.report.selection import bandit_of, main_runs
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA
from recurrent_laplace.tasks.held_out import LENGTHS

NUMBERS = [entry.number for entry in FIGURES]


def figure(number, frames):
    drawn = FIGURES[number - 1].draw(frames)
    # This lays out the text; text that does not fit is a warning, and warnings are errors.
    drawn.draw_without_rendering()
    return drawn


def lines(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def texts(drawn):
    return " ".join(text.get_text() for text in drawn.findobj(Text) if text.get_text()).replace("\n", " ")


@pytest.fixture(scope="module")
def full():
    return paper_frames()


@pytest.fixture(scope="module")
def partial():
    """Runs of two tasks: an RNN, a VRNN, and a Laplace posterior, post hoc and fine-tuned."""
    runs = [
        paper_run(task, method, None if method == "rnn" else "diagonal", origin)
        for task in ("regression", "gridworld")
        for method, origin in (
            *(("rnn", "scratch"), ("vrnn", "scratch")),
            *(("precision", "posthoc"), ("precision", "finetuned")),
        )
    ]
    return synthetic_frames(*runs, seeds=2, tasks=2)


def test_there_are_sixteen_figures_with_texts():
    assert list(range(1, 17)) == NUMBERS
    assert len({entry.stem for entry in FIGURES}) == 16
    for entry in FIGURES:
        assert len(entry.alt) > 40
        assert entry.caption.endswith(".")
        assert entry.draw.__name__ == f"figure_{entry.number:02d}"


@pytest.mark.parametrize("number", NUMBERS)
def test_every_figure_is_drawn_from_everything(number, full):
    settings = dict(matplotlib.rcParams)
    drawn = figure(number, full)
    assert dict(matplotlib.rcParams) == settings
    assert drawn.runs <= set(full.runs["run"])
    assert bool(drawn.runs) == (number not in (4, 14))
    if number not in (4, 14, 15):
        assert "missing" not in texts(drawn)
        assert "no runs" not in texts(drawn)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_figure_is_drawn_from_little(number, partial):
    drawn = figure(number, partial)
    if number != 4:
        assert drawn.missing or "no runs" in texts(drawn)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_figure_is_drawn_from_one_seed_without_bands(number):
    drawn = figure(number, paper_frames(seeds=1))
    if number in (1, 2, 3, 6, 7, 8, 9, 11, 12, 13):
        assert "1 seed" in texts(drawn)
        assert not any(axes.collections for axes in drawn.axes)
        assert "99% interval" not in entries(drawn)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_figure_is_drawn_from_one_run_of_another_task(number):
    frames = synthetic_frames(synthetic_run(task="two_arm_bandit", updates=4), seeds=1)
    figure(number, frames)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_figure_is_drawn_beside_a_registered_method(number):
    """A posterior from outside of the package, with and without a window."""
    runs = [paper_run("regression", *method, "scratch") for method in (("rnn", None), ("precision", "dense"))]
    for window in (None, "1"):
        other = paper_run("regression", "precision", "dense", "scratch")
        runs.append(other | {"columns": other["columns"] | {"method": "sharp", "window": window}})
    drawn = figure(number, synthetic_frames(*runs, seeds=2, tasks=2))
    if number in (5, 15):
        assert "sharp" in texts(drawn)


def test_lines_are_means_over_seeds_and_bands_their_intervals(full):
    scratch, tuned, posthoc = figure(8, full).axes
    for axes in (scratch, tuned, posthoc):
        assert set(lines(axes)) == {variant.label for variant in VARIANTS}
        for variant in VARIANTS:
            line = lines(axes)[variant.label]
            values = np.array(
                [[cross_entropy(variant.method, variant.covariance, s, t) for t in LENGTHS] for s in range(5)]
            )
            np.testing.assert_array_equal(line.get_xdata(), LENGTHS)
            np.testing.assert_allclose(line.get_ydata(), values.mean(axis=0), rtol=1e-12)
            band = axes.collections[VARIANTS.index(variant)].get_paths()[0].vertices
            at_end = band[band[:, 0] == LENGTHS[-1], 1]
            interval = mean_interval(values[:, -1])
            np.testing.assert_allclose([at_end.min(), at_end.max()], [interval.low, interval.high])


def test_colours_are_the_papers(full):
    axes = figure(8, full).axes[0]
    channels = {
        name: np.array([int(to_hex(line.get_color())[i : i + 2], 16) for i in (1, 3, 5)])
        for name, line in lines(axes).items()
    }
    assert (channels["RNN"] == 0).all()
    assert len(set(channels["VRNN dense"])) == 1
    for name, strongest in (
        ("stationary Laplace dense", 0),
        ("sum of precisions dense", 1),
        ("sum of means and precisions dense", 2),
    ):
        assert channels[name].argmax() == strongest
        assert lines(axes)[name].get_linestyle() == "-"
        diagonal = name.replace("dense", "diagonal")
        assert (channels[diagonal] == channels[name]).all()
        assert lines(axes)[diagonal].get_linestyle() == "--"


def test_summed_means_are_only_in_the_complete_figures(full):
    for short, complete in ((1, 8), (2, 13)):
        assert not any("means" in name for axes in figure(short, full).axes for name in lines(axes))
        assert all("sum of means and precisions dense" in lines(axes) for axes in figure(complete, full).axes)


def test_the_cut_off_is_a_dashed_line(full):
    for axes in figure(1, full).axes:
        (mark,) = [line for line in axes.lines if line.get_label() == "_mark"]
        assert set(mark.get_xdata()) == {50}
        assert mark.is_dashed()


def test_missing_lines_are_counted_in_the_figure_and_named_beside_it(partial):
    drawn = figure(8, partial)
    assert [texts_of(axes) for axes in drawn.axes] == [
        "7 lines missing",
        "7 lines missing",
        "7 lines missing",
    ]
    scratch, others = drawn.missing
    _, tuned, posthoc = (axes.get_title() for axes in drawn.axes)
    words = "stationary Laplace, sum of precisions, sum of means and precisions"
    assert scratch.endswith(f": VRNN dense, {words}")
    words = "VRNN, stationary Laplace, sum of precisions dense, sum of means and precisions"
    assert others == f"{tuned}; {posthoc}: {words}"


def test_the_legend_has_only_what_is_drawn(partial, full):
    assert entries(figure(8, partial))[:2] == ["RNN", "VRNN"]
    assert "stationary Laplace" not in entries(figure(8, partial))
    assert "99% interval" in entries(figure(8, full))
    assert {"diagonal covariance", "dense covariance"} <= set(entries(figure(8, full)))


def entries(drawn):
    return [text.get_text() for legend in drawn.legends for text in legend.get_texts()]


def texts_of(axes):
    return " ".join(text.get_text() for text in axes.texts).replace("\n", " ")


def test_panels_without_any_line_say_so(partial):
    for number in (3, 9, 10):
        assert "no runs" in texts(figure(number, partial))
    assert texts(figure(14, partial)).count("no runs") == 10


def test_training_returns_with_one_and_five_samples_are_apart(full):
    five = paper_run("gridworld", "vrnn", "diagonal", samples=5)
    five["training"]["return"] = lambda seed, update: 100.0
    one = paper_run("gridworld", "vrnn", "diagonal")
    frames = synthetic_frames(one, five, paper_run("gridworld", "rnn", None))
    _, above, _, below = figure(3, frames).axes
    assert "1 sample," in above.get_title()
    assert "5 samples," in below.get_title()
    assert (lines(below)["VRNN diagonal"].get_ydata() == 100).all()
    assert (lines(above)["VRNN diagonal"].get_ydata() < 100).all()
    assert "RNN" in lines(below)


def test_many_updates_are_averaged_in_groups():
    rows = pl.DataFrame(
        {"unit": ["0"] * 1000, "x": np.arange(1.0, 1001.0), "value": np.arange(1.0, 1001.0) ** 2}
    )
    averaged = average_updates(rows, points=100).sort("x")
    assert len(averaged) == 100
    assert averaged["x"][0] == 5.5
    assert averaged["value"][0] == np.mean(np.arange(1, 11) ** 2)
    assert average_updates(rows, points=1000).equals(rows)


def test_seeds_of_runs_that_were_split_are_pooled():
    runs = [
        paper_run("regression", "precision", "dense", origin, run=f"part-{origin}-{first}", seed=first)
        for origin in ("scratch", "posthoc")
        for first in (0, 2)
    ]
    frames = synthetic_frames(*runs, seeds=2)
    shifted = pl.when(pl.col("run").str.ends_with("2")).then(pl.col("seed") + 2).otherwise("seed")
    # Runs from scratch share one configuration; post-hoc configurations differ, since they name the parent.
    same = pl.when(pl.col("origin") == "scratch").then(pl.lit("one")).otherwise("run").alias("configuration")
    frames = dataclasses.replace(
        frames,
        runs=frames.runs.with_columns(same),
        evaluation=frames.evaluation.with_columns(shifted.alias("seed")),
    )
    for origin in ("scratch", "posthoc"):
        panel = Panel(metric="cross_entropy", task="regression", origin=origin)
        _, curve = panel.curve(frames, Variant("precision", "dense"))
        assert curve is not None
        assert curve.units == 4
        expected = np.mean([cross_entropy("precision", "dense", seed % 2, 200) for seed in range(4)])
        np.testing.assert_allclose(curve.mean[-1], expected)


def test_main_lines_are_of_the_preferred_configuration(full):
    for variant in VARIANTS:
        runs = main_runs(full, "regression", "scratch", variant)
        assert len(runs) == 1
        row = runs.row(0, named=True)
        assert (row["beta"], row["samples"], row["features"]) == (1e-2, 1, 16)
        assert row["window"] == ("10" if variant.method == "stationary" else "1")
    (snapshot,) = main_runs(full, "bandit", "finetuned", BAYESIAN[0])["snapshot"]
    assert snapshot == 0.5
    (run,) = main_runs(full, "bandit", "posthoc", RNN)["origin"]
    assert run == "scratch"


def test_commonest_configuration_is_the_fallback():
    runs = [
        paper_run("regression", "stationary", "dense", window=window, beta=beta, features=features)
        for window, beta, features in (("all", 1.0, 16), ("all", 1e-4, 16), ("all", 1e-4, 32), ("5", 1e-4, 8))
    ]
    (row,) = main_runs(synthetic_frames(*runs), "regression", "scratch", BAYESIAN[3]).iter_rows(named=True)
    assert (row["window"], row["beta"], row["features"]) == ("all", 1e-4, 16)


def test_better_half_has_the_lower_final_values(full):
    runs = main_runs(full, "bandit", "scratch", RNN)
    rows = unit_rows(full, runs, "cumulative_regret", "t")
    assert set(better_half(rows)["unit"]) == {"0", "1", "2"}
    above, below = (figure(10, full).axes[i] for i in (0, 3))
    assert (lines(below)["RNN"].get_ydata()[1:] < lines(above)["RNN"].get_ydata()[1:]).all()
    # The runs have 1 or 5 samples.
    assert "5 to 10 agents" in above.get_title()


def test_ablations_compare_runs_that_differ_in_one_option(full):
    runs = full.runs.filter((pl.col("task") == "regression") & (pl.col("origin") == "scratch"))
    bayesian = runs.filter(pl.col("method") != "rnn")
    beta = comparable(bayesian, "beta")
    assert sorted(beta["beta"]) == [1e-4, 1e-2, 1.0]
    assert set(beta["window"]) == {"1"}
    assert comparable(bayesian.filter(pl.col("beta") == 1e-2), "beta").is_empty()
    titles = {axes.get_title(): lines(axes) for axes in figure(5, full).axes}
    assert list(titles["weight of the KL, beta"]) == [
        "RNN (5 agents)",
        "0.0001 (5 agents)",
        "0.01 (5 agents)",
        "1 (5 agents)",
    ]
    assert list(titles["covariance"])[1:] == ["dense (40 agents)", "diagonal (40 agents)"]


def test_missing_ablations_are_named(partial):
    assert texts(figure(5, partial)).count("no runs differ in this option alone") == 6


def test_fine_tuning_starts_at_the_snapshot(full):
    half, later = figure(11, full).axes
    for axes, begin in ((half, 20), (later, 30)):
        assert lines(axes)["VRNN dense"].get_xdata()[0] == begin + 1
        assert lines(axes)["RNN"].get_xdata()[0] == begin - 4
        levels = [line for line in axes.lines if line.get_label().endswith("from scratch")]
        assert len(levels) == len(BAYESIAN)
    rows = full.metrics.filter((pl.col("metric") == "return") & (pl.col("update") > 36))
    run = main_runs(full, "gridworld", "scratch", BAYESIAN[0])["run"][0]
    (level,) = [line for line in half.lines if line.get_label() == "_VRNN diagonal from scratch"]
    np.testing.assert_allclose(level.get_ydata(), rows.filter(pl.col("run") == run)["value"].mean())


def test_times_are_multiples_of_the_rnns(full):
    table = times(full, "gridworld")
    rows = {(r["method"], r["covariance"], r["samples"]): r for r in table.iter_rows(named=True)}
    assert rows["rnn", None, 1]["ratio"] == 1
    np.testing.assert_allclose(rows["vrnn", "dense", 1]["ratio"], 2.4)
    np.testing.assert_allclose(rows["vrnn", "dense", 5]["ratio"], 9)
    np.testing.assert_allclose(rows["vrnn", "dense", 1]["seconds"], 0.24 / 5)
    axes = figure(15, full).axes[2]
    np.testing.assert_allclose(lines(axes)["VRNN dense, 5 samples"].get_xdata(), [9])


def test_times_need_an_rnn():
    frames = synthetic_frames(paper_run("gridworld", "vrnn", "dense"))
    assert "no RNN to compare with" in texts(figure(15, frames))


def test_curves_without_values_are_none_and_nulls_are_left_out(full):
    assert curve_of(pl.DataFrame(schema={"unit": pl.String, "x": pl.Float64, "value": pl.Float64})) is None
    runs, curve = Panel(metric="entropy", task="gridworld").curve(full, RNN)
    assert len(runs) == 1
    assert curve is None
    _, curve = Panel(metric="kl", task="gridworld").curve(full, BAYESIAN[0])
    assert curve is not None
    assert curve.x[0] == 1


def with_posthoc(curve):
    wild = paper_run("regression", "stationary", "dense", "posthoc")
    wild["tests"]["cross_entropy"] = curve
    *_, axes = figure(1, synthetic_frames(paper_run("regression", "rnn", None), wild, seeds=2)).axes
    return axes


def test_huge_numbers_do_not_hide_the_others():
    axes = with_posthoc(lambda seed, t: 1000.0 * (1 + seed))
    assert axes.get_yscale() == "symlog"
    heights = axes.transData.transform([(1, 1.5), (1, 0.5), (1, 1500)])[:, 1]
    assert heights[0] - heights[1] > 0.05 * (heights[2] - heights[1])


def test_bands_that_are_much_wider_than_the_lines_are_cut():
    axes = with_posthoc(lambda seed, t: 4.0 * (1 + seed))
    assert axes.get_yscale() == "linear"
    low, high = axes.get_ylim()
    # The interval of these two seeds is 6 plus or minus 127.
    assert -5 < low < 0
    assert 6 < high < 12


def test_the_bandit_is_the_one_that_was_run():
    assert bandit_of(paper_frames(seeds=1)) == "bandit"
    assert bandit_of(synthetic_frames(synthetic_run(task="beta_bandit"))) == "beta_bandit"
    assert bandit_of(synthetic_frames(synthetic_run())) == "bandit"


def test_labels_are_joined_by_method():
    assert join_labels(VARIANTS[:4]) == "RNN, VRNN, stationary Laplace diagonal"


# Exact Bayes.


def with_exact(frames, *, level=1.0):
    """Frames with task identities and a table of exact Bayes."""
    runs = frames.runs.with_columns(task_id=pl.col("task") + "-0")
    rows = [
        {"run": name, "configuration": f"{task}-0{training}", "task": i, "t": t, "metric": metric, "value": v}
        for task in ("regression", "bandit", "gridworld")
        for metric in (("cross_entropy",) if task == "regression" else ("cumulative_regret", "return"))
        for training, lengths in (("", LENGTHS), ("-training-50", (50,)))
        for name, factor in ((EXACT, 1.0), ("told the goal", 7.0))
        for i, v in ((0, 0.5 * level * factor), (1, 1.5 * level * factor))
        for t in lengths
    ]
    oracle = pl.DataFrame(rows, schema=EVALUATION_SCHEMA)
    return dataclasses.replace(frames, runs=runs, oracle=oracle)


@pytest.mark.parametrize("number", [1, 3, 8, 10, 12])
def test_exact_bayes_is_a_dashed_line(number, full):
    drawn = figure(number, with_exact(full))
    for axes in drawn.axes:
        line = lines(axes)[EXACT]
        # The mean of 0.5 and 1.5; the other reference is not included.
        np.testing.assert_allclose(line.get_ydata(), 1.0)
        assert line.is_dashed()
        assert line.get_linewidth() < 1.2
        if number != 3:
            assert list(line.get_xdata()) == list(LENGTHS)
    (legend,) = drawn.legends
    assert EXACT in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("number", [2, 7, 13])
def test_figures_of_beliefs_have_no_exact_line(number, full):
    drawn = figure(number, with_exact(full))
    assert not any(EXACT in lines(axes) for axes in drawn.axes)
    assert EXACT not in texts(drawn)


def test_without_its_table_exact_bayes_is_not_drawn(full):
    for frames in (full, dataclasses.replace(with_exact(full), oracle=full.oracle)):
        drawn = figure(12, frames)
        assert not any(EXACT in lines(axes) for axes in drawn.axes)
        assert EXACT not in texts(drawn)


def test_exact_bayes_is_in_view_but_where_it_falls_without_end(full):
    for axes in figure(12, with_exact(full, level=500.0)).axes:
        assert axes.get_ylim()[1] > 500
    plain, deep = figure(1, full), figure(1, with_exact(full, level=-50.0))
    for before, after in zip(plain.axes, deep.axes, strict=True):
        assert after.get_yscale() == before.get_yscale() == "linear"
        low, high = before.get_ylim()
        assert after.get_ylim()[0] > low - (high - low)


def test_every_seed_is_a_dot_in_its_column():
    runs = [
        paper_run("gridworld", "precision", "diagonal", arm=arm, samples=samples)
        for arm, samples in (("released", 0), ("written", 5))
    ]
    axes = figure(16, synthetic_frames(*runs, seeds=3)).axes[2]
    place = VARIANTS.index(Variant("precision", "diagonal"))
    dots = {
        (round(float(line.get_ydata()[0]) - place, 2), line.get_markerfacecolor() == "none"): line.get_xdata()
        for line in axes.lines
        if line.get_marker() == "o"
    }
    assert set(dots) == {(-0.18, True), (0.18, False)}
    expected = [0.4 * 50 - METHODS.index("precision") + 0.1 * seed for seed in range(3)]
    for values in dots.values():
        np.testing.assert_allclose(sorted(values), expected)


def test_share_of_exact_bayes_is_an_interquartile_mean():
    frames = synthetic_frames(paper_run("gridworld", "precision", "diagonal"), seeds=2, tasks=5)
    rows = frames.tests("return").filter(pl.col("t") == 50)
    exact = [10.0, 10.0, 20.0, 40.0, 0.0]
    oracle = pl.DataFrame(
        [(EXACT, "gridworld", 0, task, 50, "return", value) for task, value in enumerate(exact)],
        schema=EVALUATION_SCHEMA,
        orient="row",
    )
    shares = rows["value"].mean() / np.array(exact[:4])
    found = share_of_exact(dataclasses.replace(frames, oracle=oracle), frames.runs, rows)
    # A task in which exact Bayes finds nothing has no share; of four, the middle two count.
    assert found is not None
    np.testing.assert_allclose(found.mean, np.sort(shares)[1:3].mean(), rtol=1e-6)
    assert share_of_exact(frames, frames.runs, rows) is None


def test_main_lines_of_control_have_equal_samples():
    samples = [("one", 1, 5), ("five", 5, 5), ("two", 2, 5)]
    for task, chosen in (("gridworld", "five"), ("regression", "one")):
        runs = [
            paper_run(task, "precision", "dense", run=f"{task}-{name}", samples=learned, acting_samples=acted)
            for name, learned, acted in samples
        ]
        main = main_runs(synthetic_frames(*runs, seeds=2), task, "scratch", Variant("precision", "dense"))
        assert main["run"].to_list() == [f"{task}-{chosen}"]
