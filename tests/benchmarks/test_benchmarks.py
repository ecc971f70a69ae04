"""Benchmarks: both programs compute the same values, counts match, and rows are complete."""

import dataclasses
import functools
import json
import operator
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.verbs import float32

from recurrent_laplace.benchmarks import growth, solve
from recurrent_laplace.benchmarks.child import ChildDiedError, run_in_subprocess
from recurrent_laplace.benchmarks.count import multiplications
from recurrent_laplace.benchmarks.measure import time_together
from recurrent_laplace.benchmarks.options import GrowthBench, UpdateBench
from recurrent_laplace.benchmarks.posterior import build_posterior, objective
from recurrent_laplace.benchmarks.reference import Reference
from recurrent_laplace.benchmarks.training import Training, variant_config
from recurrent_laplace.benchmarks.update import run as run_update
from recurrent_laplace.benchmarks.update import title as update_title
from recurrent_laplace.benchmarks.variants import EVALUATED, METHODS, OPERATIONS, SCALED, VARIANTS
from recurrent_laplace.cells import LSTM, Memory
from recurrent_laplace.learning import make_train

FIELDS = {"name", "ours_ms", "reference_ms", "ratio", "peak_mb"}


@pytest.mark.parametrize("name", VARIANTS)
def test_references_and_ours_agree(name):
    k1, k2, k3, k4 = jax.random.split(jax.random.key(0), 4)
    memory = Memory(LSTM(3, 8, key=k1), features=4, key=k2)
    inputs, noise = jax.random.normal(k3, (13, 3)), jax.random.normal(k4, (13, 4))
    evaluate = jax.jit(jax.value_and_grad(lambda p: objective(p, inputs, noise)))
    value, gradient = evaluate(build_posterior(memory, VARIANTS[name]))
    evaluate_reference = jax.jit(jax.value_and_grad(lambda m: m.objective(VARIANTS[name], inputs, noise)))
    for fast in (False, True):
        expected_value, expected_gradient = evaluate_reference(Reference.like(memory, fast=fast))
        np.testing.assert_allclose(value, expected_value, rtol=1e-10)
        for weight in ("cell.weight_ih", "cell.weight_hh", "cell.bias", "readout.weight", "readout.bias"):
            ours, expected = map(operator.attrgetter(weight), (gradient.memory, expected_gradient))
            limit = 1e-10 * float(jnp.abs(expected).max())
            np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=limit)


@pytest.mark.parametrize("name", OPERATIONS)
def test_lapack_and_ours_agree(name):
    operation = solve.OPERATIONS[name]
    args = operation.arguments(jax.random.normal(jax.random.key(0), (3, 12, 12)))
    # One call of LAPACK per program, since concurrent calls can hang.
    np.testing.assert_allclose(
        jax.jit(operation.ours)(*args), jax.jit(operation.reference)(*args), rtol=1e-10, atol=1e-10
    )


# Counting.


def test_products_are_counted_as_often_as_they_run():
    a, b = jnp.ones((5, 3)), jnp.ones((3, 7))
    assert multiplications(jnp.matmul, a, b) == 5 * 3 * 7
    # The backward pass has one product per factor.
    assert multiplications(jax.grad(lambda a, b: jnp.sum(jnp.tanh(a @ b)), (0, 1)), a, b) == 3 * 5 * 3 * 7
    square = jnp.ones((4, 4))
    many = lambda x: jax.lax.scan(lambda x, _: (jax.jit(jnp.matmul)(x, square), None), x, length=6)[0]
    assert multiplications(many, square) == 6 * 4**3
    assert multiplications(jax.vmap(many), jnp.ones((2, 4, 4))) == 2 * 6 * 4**3
    choose = lambda x: jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)
    assert multiplications(choose, square) == 2 * 4**3


def test_products_of_an_update_match_a_count_by_hand():
    config = variant_config(METHODS["rnn"], "smoke", batch=3, steps=4, lookup=False)
    train = make_train(config)
    state = jax.eval_shape(train.init, jax.random.key(0))
    agent, task = config.agent, config.task
    (e,), (w,), h, f = agent.embedding_sizes, agent.head_sizes, agent.hidden_size, agent.features
    embedders = e * (task.observation_size + task.actions + 1)
    cell = 4 * h * (3 * e + h)
    heads = 2 * w * (f + e) + w * (task.actions + 1)
    step = embedders + cell + f * h + heads
    # The rollout makes one step more than it stores. The embedders' inputs get no gradient. The tolerance
    # covers the norms of the heads, and products that are traced and never used.
    by_hand = 3 * 5 * step + 3 * 4 * (3 * step - embedders)
    assert multiplications(train.update, state) == pytest.approx(by_hand, rel=0.05)


def test_exponents_are_slopes_of_logarithms():
    assert growth.exponent([2, 4, 8], [12, 48, 192]) == pytest.approx(2)


LEADING = {"T": 1, "H": 2, "F": 1, "W": 1, "B": 1}
"""Leading power of each size in the cost of a method; exceptions are in `FASTER`."""
FASTER = {
    ("laplace-dense", "F"): 3,
    ("laplace-dense-window", "F"): 3,
    ("laplace-dense-all", "F"): 3,
    ("vrnn-dense", "F"): 3,
    ("laplace-dense-all", "T"): 2,
}


def test_theoretical_costs_grow_no_faster_than_the_method_needs():
    bench = GrowthBench(input_size=2, steps=2**14)
    for axis in growth.AXES:
        posteriors_by_size = {
            size: jax.eval_shape(functools.partial(growth.posteriors_at, bench, axis, size))
            for size in (2**10, 2**14)
        }
        for name in posteriors_by_size[2**10]:
            counts = []
            for size, posteriors in posteriors_by_size.items():
                shape = dataclasses.replace(bench, **{axis.field: size})
                counts.append(growth.theoretical_cost(posteriors[name], shape.steps, shape.batch))
            allowed = FASTER.get((name, axis.letter), LEADING[axis.letter])
            for values in zip(*counts, strict=True):
                assert growth.exponent(list(posteriors_by_size), values) <= allowed + 0.01, (
                    name,
                    axis.letter,
                )


# Measuring.


def test_programs_alternate_until_the_time_limit():
    calls = []
    programs = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    times = time_together(programs, {"a": (), "b": ()}, repeats=3, seconds=60)
    assert calls == ["a", "b"] * 4  # One round to warm up.
    assert set(times) == {"a", "b"}
    calls.clear()
    time_together(programs, {"a": (), "b": ()}, repeats=3, seconds=1e-9)
    assert calls == ["a", "b"] * 2


def _die():
    os._exit(1)


@pytest.mark.slow
def test_death_of_the_subprocess_is_reported():
    with pytest.raises(ChildDiedError, match="died"):
        run_in_subprocess(_die)


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_training_makes_one_update_per_call():
    with float32():
        config = variant_config(METHODS["rnn"], "smoke", batch=2, steps=2)
        training = Training.single_seed(config)
        for update in (1, 2):
            (state,) = training()
            assert int(state.update) == update
    assert training.compile_seconds > 0
    assert training.peak_mb > 0


# The command line.


@pytest.fixture
def bench(command, tmp_path):
    """Run `recurrent-laplace bench`; returns its rows and its output."""

    def call(*args):
        file = tmp_path / "rows.json"
        printed = command("bench", *args, "--json", file).check(0)
        rows = json.loads(file.read_text())
        for row in rows:
            assert set(row) == FIELDS
            assert all(isinstance(row[field], float) for field in FIELDS - {"name"})
            assert row["ours_ms"] > 0
            assert row["reference_ms"] > 0
            assert row["peak_mb"] > 0
        assert "Machine:" in printed.out
        return rows, printed

    return call


TINY = ("--preset", "smoke", "--batch", 2, "--steps", 2, "--repeats", 1)


@pytest.mark.slow
def test_update_has_a_row_for_each_method_and_the_rate(bench):
    rows, printed = bench("update", *TINY, "--product-size", 64)
    assert [row["name"] for row in rows] == [*METHODS, "rnn-rate"]
    *methods, rate = rows
    for row in methods:
        assert row["reference_ms"] == rows[0]["ours_ms"]
        assert row["ratio"] == pytest.approx(row["ours_ms"] / row["reference_ms"])
    assert rate["ratio"] == pytest.approx(rate["reference_ms"] / rate["ours_ms"])
    assert "compile, s" in printed.out
    assert "turn 1" in printed.err


@pytest.mark.slow
def test_update_always_has_the_rnn():
    with float32():
        options = UpdateBench(
            only=("laplace-diagonal",), preset="smoke", batch=2, steps=2, repeats=1, product_size=8
        )
        names = [row.name for row in run_update(options, lambda line: None)]
    assert names == ["rnn", "laplace-diagonal", "rnn-rate"]


def test_update_can_run_at_the_mean():
    options = UpdateBench(
        only=("laplace-dense",), preset="smoke", acting_samples=0, training_samples=0, kl_fraction=0.25
    )
    options.check()
    assert "the mean in acting, the mean in the loss, KL of 25% of the tasks" in update_title(options)
    config = variant_config(METHODS["laplace-dense"], "smoke", acting_samples=0, training_samples=0)
    assert config.learning.acting_samples == config.learning.training_samples == 0


@pytest.mark.slow
def test_evaluate_measures_in_subprocesses(bench):
    rows, _ = bench("evaluate", "--preset", "smoke", "--tasks", 2, "--only", "laplace-dense-all")
    assert [row["name"] for row in rows] == ["rnn", "laplace-dense-all"]
    assert set(EVALUATED) == {*METHODS, "laplace-dense-all"}
    for row in rows:
        assert row["ratio"] == pytest.approx(row["ours_ms"] / rows[0]["ours_ms"])
        assert row["peak_mb"] > 100  # The process has imported JAX.


def test_solve_has_a_row_for_each_size(bench):
    rows, _ = bench("solve", "--count", 3, "--sizes", 2, 9, "--only", "cholesky", "--repeats", 1)
    assert [row["name"] for row in rows] == ["cholesky-2", "cholesky-9"]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["reference_ms"] / row["ours_ms"])


@pytest.mark.slow
def test_seeds_compares_together_with_one_by_one(bench):
    rows, _ = bench("seeds", *TINY, "--seeds", 2, "--only", "rnn")
    (row,) = rows
    assert row["name"] == "rnn"
    assert row["ratio"] == pytest.approx(row["ours_ms"] / row["reference_ms"])


@pytest.mark.slow
def test_startup_measures_commands_and_compiling(bench):
    rows, _ = bench("startup", "--preset", "smoke", "--repeats", 1, "--only", "rnn")
    names = ["help", "import", "import-train", "compile-rnn", "first-line-rnn", "first-update-rnn"]
    assert [row["name"] for row in rows] == names
    for row in rows:
        assert row["ratio"] == pytest.approx(row["ours_ms"] / row["reference_ms"])
    by_name = {row["name"]: row for row in rows}
    # The first line is printed before JAX is imported.
    assert by_name["first-line-rnn"]["ours_ms"] < by_name["import-train"]["ours_ms"]
    assert by_name["first-line-rnn"]["ours_ms"] < by_name["first-update-rnn"]["ours_ms"]


@pytest.mark.slow
def test_growth_fits_every_series(bench, tmp_path):
    sizes = "--steps 3 --hidden-size 3 --features 2 --window 2 --batch 1 --input-size 2 --repeats 1"
    series = "--windows 2 3 --lengths 3 4 --batches --hidden-sizes --feature-sizes"
    only = "--only rnn laplace-dense-window"
    plot = tmp_path / "growth.svg"
    rows, printed = bench("growth", *f"{sizes} {series} {only}".split(), "--plot", plot)
    assert {"rnn", "laplace-dense-window"} <= set(SCALED)
    assert [row["name"] for row in rows] == [
        *("rnn/T=3", "laplace-dense-window/T=3", "rnn/T=4", "laplace-dense-window/T=4"),
        *("rnn/T", "laplace-dense-window/T"),
        *("laplace-dense-window/W=2", "laplace-dense-window/W=3", "laplace-dense-window/W"),
    ]
    by_name = {row["name"]: row for row in rows}
    slope = np.log(by_name["rnn/T=4"]["ours_ms"] / by_name["rnn/T=3"]["ours_ms"]) / np.log(4 / 3)
    assert by_name["rnn/T"]["ratio"] == pytest.approx(slope)
    assert "<svg" in plot.read_text()
    assert "counted" in printed.out
    assert "rnn/T=3" not in printed.out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["posterior", "--batch", "0"], ["batch", "at least 1", "got 0"]),
        (["posterior", "--only", "dense"], ["only", "'dense-sum'", "got 'dense'"]),
        (["posterior", "--seconds", "-1"], ["seconds", "(0, inf)", "got -1"]),
        (["posterior", "--json", "/no/such/folder/rows.json"], ["cannot write", "No such file"]),
        (["update", "--only", "lstm"], ["only", "'laplace-dense'", "got 'lstm'"]),
        (["update", "--steps", "0"], ["steps", "at least 1", "got 0"]),
        (["update", "--acting-samples", "-1"], ["acting_samples", "at least 0", "got -1"]),
        (["update", "--batch", "10000000"], ["update --only rnn needs about", "TB", "--batch"]),
        (["evaluate", "--tasks", "-3"], ["tasks", "at least 1", "got -3"]),
        (["solve", "--sizes", "8", "0"], ["sizes", "at least 1", "got 0"]),
        (["solve", "--count", "1000000000"], ["solve --sizes 8 needs about", "TB", "--count"]),
        (["seeds", "--seeds", "0"], ["seeds", "at least 1", "got 0"]),
        (["startup", "--only"], ["only", "at least one", "got none"]),
        (["growth", "--windows", "3"], ["windows", "two or more", "got (3,)"]),
        (
            ["growth", "--only", "rnn", "--lengths", "--hidden-sizes", "--feature-sizes", "--batches"],
            ["nothing to measure", "'laplace-dense-window'"],
        ),
        (["growth", "--plot", "growth.txt"], ["plot", "'.png'", "got '.txt'"]),
        (["growth", "--json", "/no/such/folder/rows.json"], ["cannot write", "No such file"]),
    ],
)
def test_invalid_options_end_in_one_sentence(args, words, command):
    command("bench", *args).refused(*words)
