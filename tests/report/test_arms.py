"""Arms and columns: what belongs to the code as released, and to the paper as written."""

import dataclasses

import polars as pl
import pytest
from support.synthetic import synthetic_frames, synthetic_run

import recurrent_laplace as rl
from recurrent_laplace.report.arms import arm_of
from recurrent_laplace.report.claims import CLAIMS, COLUMNS, judge, judge_gates
from recurrent_laplace.report.claims.columns import RELEASED, WEAKER, WRITTEN
from recurrent_laplace.runs.config import Run

LAPLACE = rl.LaplaceConfig()
CURVES = {"entropy": lambda seed, t: 40 - 0.1 * t, "kl": lambda seed, t: 10 / (1 + t)}
METHODS = ("vrnn", "stationary", "precision", "mean_and_precision")


def learning(**options):
    return rl.LearningConfig(**options)


@pytest.mark.parametrize(
    ("task", "posterior", "options", "arm"),
    [
        (rl.Gridworld(), LAPLACE, learning(training_samples=0, acting_samples=0), "released"),
        (rl.Gridworld(), LAPLACE, learning(training_samples=5), "written"),
        (rl.DirichletBandit(), rl.VariationalConfig(), learning(training_samples=0), "released"),
        (rl.Gridworld(), rl.PointConfig(), learning(training_samples=0), None),
        # Post hoc, the samples of the loss are inactive.
        (rl.Gridworld(), LAPLACE, learning(updates=0, acting_samples=0), "released"),
        (rl.Gridworld(), LAPLACE, learning(updates=0, training_samples=0, acting_samples=5), "written"),
        (rl.Regression(terms=3), LAPLACE, learning(predictive_floor=0.694), "released"),
        (rl.Regression(terms=3), rl.PointConfig(), learning(predictive_floor=0.694), "released"),
        (rl.Regression(terms=3), LAPLACE, learning(), "written"),
        (rl.Regression(), LAPLACE, learning(predictive_floor=0.694), "written"),
        (rl.Regression(), rl.PointConfig(), learning(training_samples=0), "written"),
    ],
)
def test_arm_of_a_run(task, posterior, options, arm):
    assert arm_of(Run(config=rl.Config(task=task, posterior=posterior, learning=options))) == arm


def grid_run(method, arm="written", *, settles=True, **columns):
    tests = CURVES | {"return": lambda seed, t: 0.2 * t}
    tests |= {} if settles else {"kl": lambda seed, t: 1.0 + t / 10}
    covariance = None if method == "rnn" else "diagonal"
    columns = {"window": "10" if method == "stationary" else "1"} | columns
    return synthetic_run(method=method, covariance=covariance, arm=arm, steps=100, tests=tests, **columns)


def g1(runs):
    (claim,) = (claim for claim in CLAIMS if claim.id == "G1")
    frames = synthetic_frames(grid_run("rnn"), *runs)
    return {verdict.column: verdict for verdict in judge(frames, [claim])}


def test_columns_have_verdicts_of_their_own():
    runs = [
        grid_run(method, arm, settles=arm == "released")
        for arm in ("released", "written")
        for method in METHODS
    ]
    verdicts = g1(runs)
    assert {column: verdict.verdict for column, verdict in verdicts.items()} == {
        "released": "reproduced",
        "written": "not reproduced",
    }


def test_the_third_line_is_of_a_smaller_weight():
    runs = [grid_run(method, settles=beta < 1e-2, beta=beta) for beta in (1e-2, 1e-4) for method in METHODS]
    verdicts = g1(runs)
    assert verdicts["released"].verdict == "not decided"
    assert verdicts["written"].verdict == "not reproduced"
    assert verdicts["written, beta 1e-4"].verdict == "reproduced"
    # Post hoc, the weight of the KL has no effect, so that there is no third line.
    (claim,) = (claim for claim in CLAIMS if claim.id == "G2")
    posthoc = grid_run("precision", origin="posthoc", updates=0, snapshot=1.0)
    frames = synthetic_frames(grid_run("rnn"), *runs, posthoc)
    assert [verdict.column for verdict in judge(frames, [claim])] == ["released", "written"]


def test_another_weight_is_judged_if_it_is_the_only_one():
    verdicts = g1([grid_run(method, beta=0.5) for method in METHODS])
    assert verdicts["written"].verdict == "reproduced"
    # But not in place of a missing run of the usual weight.
    runs = [grid_run(method, beta=0.5 if method == "vrnn" else 1e-2) for method in METHODS]
    verdict = g1(runs)["written"]
    assert verdict.verdict == "not decided"
    assert "VRNN from scratch on gridworld" in verdict.summary


def test_control_agents_act_with_as_many_samples_as_they_learn_with():
    odd = [grid_run(method, settles=False, samples=1, acting_samples=5) for method in METHODS]
    same = [grid_run(method, samples=5, acting_samples=5) for method in METHODS]
    assert g1([*odd, *same])["written"].verdict == "reproduced"


def test_gates_of_a_column():
    runs = [grid_run("rnn"), grid_run("vrnn"), grid_run("precision", "released")]
    frames = synthetic_frames(*runs)
    gates = {(gate.name, gate.column): gate for gate in judge_gates(frames)}
    assert set(gates) == {
        ("RNN on gridworld", "released"),
        ("RNN on gridworld", "written"),
        ("diagonal VRNN from scratch on gridworld", "written"),
        ("diagonal sum of precisions from scratch on gridworld", "released"),
    }
    gate = gates["diagonal VRNN from scratch on gridworld", "written"]
    assert gate.passed
    assert "return of diagonal VRNN from scratch on gridworld is 20 at T, 4.00 times" in gate.words
    weaker = judge_gates(synthetic_frames(*runs, grid_run("vrnn", beta=1e-4)))
    assert ("RNN on gridworld", "written, beta 1e-4") in {(gate.name, gate.column) for gate in weaker}
    unknown = judge_gates(dataclasses.replace(frames, oracle=frames.oracle.filter(pl.lit(False))))
    assert {(gate.passed, gate.words) for gate in unknown} == {
        (None, "exact Bayes on gridworld"),
        (None, "the memoryless walk on gridworld"),
    }


def test_columns_are_in_order():
    assert COLUMNS[:3] == (RELEASED, WRITTEN, WEAKER)
    assert [column.name for column in COLUMNS] == ["released", "written", "written, beta 1e-4", "both"]
