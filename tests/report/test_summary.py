"""Summary and costs: their numbers are those of the tables."""

import dataclasses

import pytest
from support.synthetic import synthetic_frames, synthetic_run

from recurrent_laplace.report.claims import Gate, Verdict
from recurrent_laplace.report.costs import hours_of, total_hours, update_times, versions_of
from recurrent_laplace.report.summary import results, summarize

SESSION = {
    "commit": 40 * "b",
    "python": "3.11.7",
    "packages": {"jax": "0.10.2"},
    "processor": "EPYC",
    "cores": 2,
}
VRNN = {"method": "vrnn", "covariance": "diagonal", "parameters": 2000}
LAPLACE = {"method": "precision", "covariance": "diagonal"}


@pytest.fixture
def frames():
    """Runs of two seeds and an hour on two cores, apart from a post-hoc one of half an hour."""
    cost = {"seconds": 3600.0, "cores": 2}
    frames = synthetic_frames(
        synthetic_run(**cost),
        synthetic_run(**cost, **VRNN, update_seconds=0.3, samples=5),
        synthetic_run(**cost, **VRNN, update_seconds=0.5, samples=5),
        synthetic_run(**cost, **LAPLACE, update_seconds=0.2, samples=0),
        synthetic_run(seconds=1800.0, cores=2, origin="posthoc", updates=0, **LAPLACE),
        seeds=2,
    )
    name = frames.runs["run"][0]
    return dataclasses.replace(
        frames, provenance={name: [SESSION]}, left_out={"x": "failed"}, left_out_hours=0.5
    )


def verdict(id, outcome, column="written"):
    return Verdict(id, "text", "rule", outcome, "evidence.", 1, column)


def test_updates_are_compared_with_those_of_the_rnn(frames):
    rnn, vrnn, laplace = update_times(frames)
    assert (rnn.label, rnn.by_task["gridworld"]) == ("RNN", (pytest.approx(0.05), 1.0))
    assert vrnn.label == "VRNN diagonal, 5 samples"
    assert vrnn.by_task["gridworld"] == (pytest.approx(0.2), pytest.approx(4.0))
    assert laplace.label == "sum of precisions diagonal, window 1, mean of the belief"
    assert laplace.by_task["gridworld"] == (pytest.approx(0.1), pytest.approx(2.0))


def test_core_hours_are_by_task_and_origin(frames):
    (hours,) = hours_of(frames)
    assert hours.by_origin == {"scratch": 8.0, "posthoc": 1.0}
    assert hours.total == 9.0
    assert total_hours(frames) == 9.5


def test_versions_that_differ_are_both_named(frames):
    name = frames.runs["run"][1]
    other = SESSION | {"packages": {"jax": "0.11"}}
    both = dataclasses.replace(frames, provenance=frames.provenance | {name: [other]})
    assert versions_of(both) == ["python 3.11.7", "jax 0.10.2 and 0.11"]


def test_results_are_counted_by_column(frames):
    made = results(
        frames,
        [
            verdict("R1", "reproduced"),
            verdict("R2", "not reproduced"),
            verdict("T1", "reproduced"),
            verdict("T1", "on par", "released"),
        ],
    )
    assert made == [
        "As released: of 1 claim, 1 on par (T1).",
        "As written: of 3 claims, 2 reproduced (R1, T1) and 1 not reproduced (R2).",
    ]


def test_the_summary_has_the_sections_of_the_challenge(frames):
    gates = [Gate("RNN on gridworld", "written", "a", True), Gate("VRNN", "written", "b", False)]
    gates.append(Gate("Laplace", "written", "c", None))
    parts = {
        part.title: " ".join(part.paragraphs)
        for part in summarize(frames, [verdict("R1", "not decided")], gates)
    }
    assert list(parts) == [
        "Scope of reproducibility",
        "Methodology",
        "Results",
        "What was easy",
        "What was difficult",
        "Differences from the published code",
    ]
    assert "1 claim of 'Bayesian" in parts["Scope of reproducibility"]
    assert (
        "gridworld: 5 runs, 4 configurations from scratch with 2 seeds each and 40 updates."
        in parts["Methodology"]
    )
    assert "9.5 core-hours in all, on EPYC, 2 cores." in parts["Methodology"]
    assert f"Commit {40 * 'b'}." in parts["Methodology"]
    assert "1 of 3 gates passed; failed: VRNN; unknown: Laplace." in parts["Results"]
    assert "1 post-hoc run took 11.1% of the core-hours." in parts["What was easy"]
    assert "VRNN diagonal, 5 samples: 4;" in parts["What was easy"]
    assert "A Laplace agent has 50% of the parameters" in parts["What was easy"]
    assert "1 run failed or did not end" in parts["What was difficult"]
    assert "1 verdict 'not decided': more seeds" in parts["What was difficult"]


def test_runs_that_learn_nothing_have_no_results(frames):
    (sentence,) = results(dataclasses.replace(frames, judged=False), [verdict("R1", "not judged")])
    assert "No claim is judged" in sentence


def test_a_summary_without_records(frames):
    bare = dataclasses.replace(frames, provenance={}, left_out={}, left_out_hours=0.0)
    bare = dataclasses.replace(bare, runs=bare.runs.filter(bare.runs["origin"] == "posthoc"))
    parts = {part.title: part.paragraphs for part in summarize(bare, [], [])}
    assert parts["Methodology"][1:] == ["gridworld: 1 run.", "Computation: 1 core-hours in all."]
    assert parts["Results"] == []
