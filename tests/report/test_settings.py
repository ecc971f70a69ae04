"""Options of runs: those without effect are absent, those that differ are told apart."""

import dataclasses

import pytest
from support.synthetic import synthetic_frames, synthetic_run

import recurrent_laplace as rl
from recurrent_laplace.models import LaplaceConfig, PointConfig, VariationalConfig
from recurrent_laplace.report.settings import TaskSettings, active_options, option_names, settings_of
from recurrent_laplace.runs.config import Parent, Run

LEARNING = rl.LearningConfig(updates=40, batch=8, beta=1e-2, final_learning_rate=0.0)


def run_of(posterior, task=None, **learning):
    task = rl.Gridworld() if task is None else task
    changed = dataclasses.replace(LEARNING, **learning)
    return Run(config=rl.Config(task=task, posterior=posterior, learning=changed))


@pytest.fixture
def frames():
    """An RNN, a VRNN with two weights of the KL in two runs of a seed each, and a post-hoc belief."""
    vrnn = {"method": "vrnn", "covariance": "diagonal", "seeds": 1}
    made = {
        "a": (run_of(PointConfig()), {}),
        "b": (run_of(VariationalConfig(covariance="diagonal")), vrnn),
        "c": (run_of(VariationalConfig(covariance="diagonal")), vrnn | {"seed": 3}),
        "d": (run_of(VariationalConfig(covariance="diagonal"), beta=1e-4), vrnn | {"beta": 1e-4}),
        "e": (
            run_of(LaplaceConfig(covariance="diagonal"), updates=0),
            {"method": "precision", "covariance": "diagonal", "origin": "posthoc"},
        ),
    }
    runs = [synthetic_run(run=name, **columns) for name, (_, columns) in made.items()]
    frames = synthetic_frames(*runs, seeds=1)
    return dataclasses.replace(frames, configured={name: run for name, (run, _) in made.items()})


def test_options_that_differ_are_told_apart(frames):
    (settings,) = settings_of(frames)
    assert settings.task == "gridworld"
    assert settings.shared["learning.batch"] == "8"
    assert settings.shared["learning.final_learning_rate"] == "0"
    assert settings.shared["agent.embedding_sizes"] == "256, 256"
    assert settings.shared["agent.layer_norm"] == "yes"
    assert settings.varied == ["learning.updates", "learning.beta"]
    assert [(row.words.split(",")[0], row.values, row.seeds, row.runs) for row in settings.rows] == [
        ("RNN", {"learning.updates": "40", "learning.beta": "-"}, "0", 1),
        ("VRNN diagonal", {"learning.updates": "40", "learning.beta": "0.01"}, "0, 3", 2),
        ("VRNN diagonal", {"learning.updates": "40", "learning.beta": "0.0001"}, "0", 1),
        ("sum of precisions diagonal", {"learning.updates": "0", "learning.beta": "-"}, "0", 1),
    ]
    # What distinguishes a row is not named twice.
    assert not {"posterior.kind", "task.name"} & {*settings.shared, *settings.varied}


def test_names_are_ordered_by_section():
    first = TaskSettings("a", {"learning.beta": "1", "task.size": "5"}, ["learning.updates"], [])
    second = TaskSettings("b", {"posterior.space": "state", "agent.cell": "gru"}, ["task.terms"], [])
    names = ["task.size", "task.terms", "agent.cell", "posterior.space", "learning.beta", "learning.updates"]
    assert option_names([first, second]) == names


def test_options_without_effect_are_absent():
    point, control = active_options(run_of(PointConfig())), active_options(run_of(VariationalConfig()))
    assert "learning.beta" not in point
    assert "posterior.covariance" not in point
    assert control["learning.clip"] == 0.2
    assert "learning.predictive_floor" not in control
    assert "posterior.window" not in control
    regression = active_options(run_of(VariationalConfig(), task=rl.Regression()))
    assert not {"learning.clip", "agent.policy_input"} & set(regression)
    assert regression["learning.predictive_floor"] == 0.0
    posthoc = active_options(run_of(LaplaceConfig(), updates=0))
    assert {key for key in posthoc if key.startswith("learning.")} == {
        *("learning.updates", "learning.acting_samples", "learning.acting_policy", "learning.lookup"),
    }


def test_runs_of_unknown_configuration_are_left_out(frames):
    assert settings_of(dataclasses.replace(frames, configured={})) == []


def test_a_child_has_its_own_options():
    child = dataclasses.replace(
        run_of(PointConfig(), updates=20), parent=Parent(run="a", snapshot=20, start=20)
    )
    assert active_options(child)["learning.updates"] == 20
