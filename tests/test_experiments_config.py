"""Runs in words: stored and read again, told apart by their identity, laid over each other, refused."""

import dataclasses
import itertools
import tomllib
from pathlib import Path

import hypothesis.strategies as st
import pytest
import tomli_w
from hypothesis import given

from recurrent_laplace import cli
from recurrent_laplace.cli import train as train_verb
from recurrent_laplace.experiments.config import Parent, Run
from recurrent_laplace.experiments.presets import PRESETS
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.models import AgentConfig, PosteriorConfig
from recurrent_laplace.tasks import TASKS, make_task

POSTERIORS = ("point", "variational", "laplace")
SOURCE = Path("config.toml")

# For every field a value that is allowed and not the default.
OTHER_VALUES = {
    "task regression": {"terms": 3, "period": 1.5, "noise_stddev": 0.1, "inputs": "strips"},
    "task bandit": {"arms": 4, "train_alpha": 0.5, "test_alpha": 0.5},
    "task gridworld": {"size": 4, "start": "corner", "episode_length": 9},
    "task beta_bandit": {"arms": 3, "successes": 2.0, "failures": 2.0},
    "task two_arm_bandit": {"alpha": 2.0},
    "task coin": {"hazard": 0.1, "heads": 2.0, "tails": 3.0},
    "agent": {
        "cell": "gru",
        "hidden_size": 7,
        "features": 5,
        "embedding_sizes": (3, 4),
        "head_sizes": (6,),
        "layer_norm": False,
        "policy_input": "belief_and_hidden",
        "reward_model": True,
    },
    "posterior": {
        "kind": "laplace",
        "covariance": "dense",
        "accumulate": "none",
        "window": "all",
        "forgetting": 0.9,
        "prior_stddev": 0.5,
        "damping_precision": 0.1,
        "temperature": 2.0,
        "space": "state",
    },
    "learning": {
        "updates": 3,
        "steps": 9,
        "batch": 12,
        "epochs": 2,
        "minibatches": 4,
        "learning_rate": 1e-4,
        "final_learning_rate": 0.0,
        "weight_decay": 1e-3,
        "gradient_norm": 0.5,
        "gradient_element": 2.0,
        "beta": 0.1,
        "training_samples": 5,
        "acting_samples": 3,
        "acting_policy": "mixture",
        "discount": 0.99,
        "trace_decay": 0.95,
        "clip": 0.1,
        "policy_weight": 0.5,
        "value_weight": 0.25,
        "reward_weight": 0.125,
        "entropy_weight": 0.0,
        "final_entropy_weight": 0.01,
    },
}
SECTIONS = {"agent": AgentConfig, "posterior": PosteriorConfig, "learning": LearningConfig}
FIELDS = [(section, field) for section, fields in OTHER_VALUES.items() for field in fields]


def changed(section: str, field: str) -> tuple[Run, Run]:
    """A run, and the same but for one field."""
    value = OTHER_VALUES[section][field]
    if section.startswith("task "):
        name = section.removeprefix("task ")
        return Run(config=Config(task=make_task(name))), Run(
            config=Config(task=make_task(name, **{field: value}))
        )
    return Run(config=Config()), Run(config=Config(**{section: SECTIONS[section](**{field: value})}))


def read_again(run: Run) -> Run:
    return Run.from_toml(run.to_toml(), SOURCE)


def test_no_field_is_left_out_of_these_tests():
    kinds = {f"task {name}": kind for name, kind in TASKS.items()} | SECTIONS
    assert {name: set(fields) for name, fields in OTHER_VALUES.items()} == {
        name: {field.name for field in dataclasses.fields(kind)} for name, kind in kinds.items()
    }


@pytest.mark.parametrize(("section", "field"), FIELDS)
def test_every_field_is_stored_and_part_of_the_identity(section, field):
    plain, other = changed(section, field)
    assert other.config != plain.config
    assert read_again(other) == other
    assert other.id != plain.id
    assert other.configuration != plain.configuration


def test_identities_of_all_changes_differ():
    runs = [changed(*field)[1] for field in FIELDS]
    assert len({run.id for run in runs}) == len(FIELDS)


@pytest.mark.parametrize(("task", "posterior"), list(itertools.product(TASKS, POSTERIORS)))
def test_round_trip(task, posterior):
    run = Run(config=Config(task=make_task(task), posterior=PosteriorConfig(kind=posterior)), seed=3, seeds=2)
    assert read_again(run) == run
    assert run.id.startswith(f"{task}-{posterior}-")


positive = st.floats(min_value=1e-30, max_value=1e30)
sizes = st.integers(1, 10**6)


@given(
    seed=st.integers(0, 2**31 - 1),
    seeds=sizes,
    learning=st.builds(LearningConfig, learning_rate=positive, beta=positive, clip=positive, updates=sizes),
    agent=st.builds(
        AgentConfig, hidden_size=sizes, head_sizes=st.lists(sizes, min_size=1, max_size=4).map(tuple)
    ),
    posterior=st.builds(
        PosteriorConfig,
        kind=st.sampled_from(POSTERIORS),
        accumulate=st.just("none"),
        window=sizes | st.just("all"),
        prior_stddev=positive,
    ),
    parent=st.none() | st.builds(Parent, run=st.text("abc-019", min_size=1), snapshot=sizes),
)
def test_round_trip_of_any_numbers(seed, seeds, learning, agent, posterior, parent):
    config = Config(agent=agent, posterior=posterior, learning=learning)
    run = Run(config=config, seed=seed, seeds=seeds, parent=parent)
    again = read_again(run)
    assert again == run
    assert again.id == run.id


def test_identity_depends_on_seeds_and_parent_but_the_configuration_not_on_seeds():
    runs = [
        Run(config=Config()),
        Run(config=Config(), seed=1),
        Run(config=Config(), seeds=2),
        Run(config=Config(), parent=Parent(run="x", snapshot=1)),
        Run(config=Config(), parent=Parent(run="x", snapshot=2)),
        Run(config=Config(), parent=Parent(run="y", snapshot=1)),
    ]
    assert len({run.id for run in runs}) == len(runs)
    assert runs[0].configuration == runs[1].configuration == runs[2].configuration
    assert len({run.configuration for run in runs}) == 4


def test_identity_does_not_depend_on_the_order_of_keys():
    run = Run(config=Config(task=make_task("bandit")), parent=Parent(run="x", snapshot=1))
    tables = tomllib.loads(run.to_toml())
    backwards = {
        name: dict(reversed(table.items())) if isinstance(table, dict) else table
        for name, table in reversed(tables.items())
    }
    text = tomli_w.dumps(backwards)
    assert text != run.to_toml()
    again = Run.from_toml(text, SOURCE)
    assert again == run
    assert again.id == run.id


@pytest.mark.parametrize(
    ("section", "field"), [("task", "period"), ("task", "noise_stddev"), ("learning", "clip")]
)
def test_whole_number_for_a_real_one_is_the_same_run(section, field):
    """`period = 2` and `period = 2.0` are the same number, so the same run."""
    tables = Run(config=Config(task=make_task("regression"))).tables()
    runs = []
    for value in (2, 2.0):
        tables[section][field] = value
        runs.append(Run.from_toml(tomli_w.dumps(tables), SOURCE))
    assert runs[0] == runs[1]
    assert runs[0].id == runs[1].id


# What would be run.


class AskedError(Exception):
    """What would have been run."""

    def __init__(self, run: Run):
        self.run = run


@pytest.fixture
def asked(monkeypatch):
    """What `train` would run for some arguments."""

    def instead(run, options, initial=None, *, group=None):
        raise AskedError(run)

    monkeypatch.setattr(train_verb, "train_run", instead)

    def ask(*args) -> Run:
        with pytest.raises(AskedError) as found:
            cli.main(["train", *map(str, args)])
        return found.value.run

    return ask


@pytest.mark.parametrize(("preset", "task", "posterior"), list(itertools.product(PRESETS, TASKS, POSTERIORS)))
def test_presets_are_valid_for_every_task_and_posterior(preset, task, posterior, asked):
    run = asked("--preset", preset, "--task", task, "--posterior", posterior)
    run.check()
    assert (run.config.task, run.config.posterior.kind) == (make_task(task), posterior)


def test_presets_differ_in_size(asked):
    learnings = [asked("--preset", preset).config.learning for preset in PRESETS]
    steps = [learning.updates * learning.batch * learning.steps for learning in learnings]
    assert steps == sorted(set(steps))


@pytest.mark.parametrize("posterior", POSTERIORS)
@pytest.mark.parametrize(
    ("task", "steps", "updates"),
    [("regression", 50, 10_000), ("bandit", 50, 20_000), ("gridworld", 100, 20_000)],
)
def test_paper_preset_has_the_numbers_of_the_paper(task, steps, updates, posterior, asked):
    config = asked("--preset", "paper", "--task", task, "--posterior", posterior).config
    assert config.learning == LearningConfig(
        updates=updates,
        steps=steps,
        batch=256,
        epochs=1,
        minibatches=1,
        learning_rate=1e-3,
        final_learning_rate=None,
        weight_decay=1e-6,
        gradient_norm=1.0,
        gradient_element=5.0,
        beta=1e-2,
        training_samples=1,
        acting_samples=10,
        acting_policy="average",
        discount=0.9,
        trace_decay=0.9,
        clip=0.2,
        policy_weight=1.0,
        value_weight=1.0,
        entropy_weight=0.1,
        final_entropy_weight=None,
    )
    assert config.agent == AgentConfig(
        cell="lstm",
        hidden_size=128,
        features=64,
        embedding_sizes=(256, 256),
        head_sizes=(256, 256, 64),
        layer_norm=True,
        policy_input="task",
        reward_model=False,
    )
    assert config.posterior == PosteriorConfig(
        kind=posterior, prior_stddev=1.0, damping_precision=1.0, forgetting=1.0
    )


def test_paper_tasks_have_the_numbers_of_the_paper():
    regression, bandit, grid = (make_task(name) for name in ("regression", "bandit", "gridworld"))
    assert dataclasses.asdict(regression) == {
        "terms": 4,
        "period": 2.0,
        "noise_stddev": 0.0,
        "inputs": "interval",
    }
    assert dataclasses.asdict(bandit) == {"arms": 5, "train_alpha": 0.2, "test_alpha": 0.3}
    assert dataclasses.asdict(grid) == {"size": 5, "start": "uniform", "episode_length": 15}
    # Gridworld: z and the embedded observation. Bandit: z alone.
    assert (grid.policy_input, bandit.policy_input) == ("belief_and_observation", "belief")


# From files and flags to a run.


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path

    return write


def test_flag_beats_file_beats_preset(asked, file):
    mine = file("[learning]\nbatch = 5\nsteps = 6\n[agent]\nfeatures = 3\n")
    config = asked("--preset", "smoke", "--config", mine, "--batch", "7").config
    assert (config.learning.batch, config.learning.steps) == (7, 6)
    assert (config.agent.features, config.agent.hidden_size) == (3, 16)
    assert asked("--preset", "smoke").config.learning.batch == 8
    assert asked("--preset", "smoke", "--config", mine).config.learning.batch == 5


def test_task_and_posterior_of_file_choose_what_the_preset_says(asked, file):
    mine = file('[task]\nname = "bandit"\narms = 3\n[posterior]\nkind = "laplace"\n')
    config = asked("--preset", "paper", "--config", mine).config
    assert config.task == make_task("bandit", arms=3)
    assert config.posterior.kind == "laplace"
    assert config.learning.steps == 50
    config = asked("--preset", "paper", "--config", mine, "--task.arms", "4", "--posterior", "point").config
    assert config.task == make_task("bandit", arms=4)
    assert config.posterior.kind == "point"
    # Parameters of another task mean nothing.
    assert asked("--config", mine, "--task", "gridworld").config.task == make_task("gridworld")


@pytest.mark.parametrize("preset", PRESETS)
def test_configuration_of_a_run_makes_the_same_run_whatever_the_preset(preset, asked, file):
    """Also what a run has not, such as a final learning rate, comes from its file and not from a preset."""
    for own in PRESETS:
        run = asked("--preset", own, "--task", "bandit", "--posterior", "laplace")
        again = asked("--preset", preset, "--config", file(run.to_toml()))
        assert again.config == run.config, own
        assert again.id == run.id


def test_configuration_of_a_run_with_a_parent_makes_a_run_without(asked, file):
    run = Run(config=Config(), seed=4, seeds=2, parent=Parent(run="x", snapshot=3))
    again = asked("--config", file(run.to_toml()), "--preset", "paper")
    assert again == Run(config=run.config)


WRONG_FILES = {
    "unknown section": (
        "[learnign]\nbatch = 3",
        ["'learnign'", "'task'", "'agent'", "'posterior'", "'learning'"],
    ),
    "key outside of a section": ("batch = 3", ["'batch'", "'learning'"]),
    "unknown key": ("[learning]\nbacth = 3", ["'bacth'", "'batch'", "[learning]"]),
    "unknown key of the agent": ("[agent]\nhiden = 3", ["'hiden'", "'hidden_size'", "[agent]"]),
    "unknown key of the task": ("[task]\nsizes = 3", ["'sizes'", "'size'", "[task]"]),
    "key of another task": ('[task]\nname = "bandit"\nsize = 3', ["'size'", "'arms'"]),
    "unknown task": ('[task]\nname = "maze"', ["'maze'", "'gridworld'"]),
    "unknown posterior": ('[posterior]\nkind = "bayes"', ["'bayes'", "'laplace'"]),
    "unknown word": ('[agent]\ncell = "rnn"', ["cell", "'rnn'", "'lstm'"]),
    "word for a number": ('[learning]\nlearning_rate = "fast"', ["learning_rate", "number", "'fast'"]),
    "truth for a number": ("[learning]\nlearning_rate = true", ["learning_rate", "number", "True"]),
    "list for a number": ("[learning]\nbeta = [1]", ["beta", "number"]),
    "word for no value": ('[learning]\nfinal_learning_rate = "x"', ["final_learning_rate", "number", "'x'"]),
    "word for a size": ('[agent]\nhidden_size = "wide"', ["hidden_size", "whole number", "'wide'"]),
    "real for a size": ("[learning]\nbatch = 2.5", ["batch", "whole number", "2.5"]),
    "real for updates": ("[learning]\nupdates = 2.5", ["updates", "whole number", "2.5"]),
    "size for sizes": ("[agent]\nembedding_sizes = 3", ["embedding_sizes", "3"]),
    "words for sizes": ('[agent]\nembedding_sizes = ["a"]', ["embedding_sizes", "'a'"]),
    "number for truth": ("[agent]\nlayer_norm = 1", ["layer_norm", "true or false", "1"]),
    "word for a window": ('[posterior]\nwindow = "some"', ["window", "'some'"]),
    "number for a word": ("[posterior]\ncovariance = 3", ["covariance", "'dense'", "3"]),
    "number for a task": ("task = 3", ["task", "3"]),
    "word for a section": ('posterior = "laplace"', ["posterior", "laplace"]),
    "several of a section": ('[[task]]\nname = "bandit"', ["task"]),
    "table for a word": ("[agent.cell]\nkind = 1", ["cell", "'lstm'"]),
    "out of range": ("[learning]\ndiscount = 1.5", ["discount", "[0, 1]", "1.5"]),
    "no TOML": ("[learning", ["mine.toml", "TOML"]),
}


@pytest.mark.parametrize("mistake", WRONG_FILES)
def test_wrong_file_ends_in_one_sentence(mistake, file, tmp_path, capsys):
    text, words = WRONG_FILES[mistake]
    out = tmp_path / "runs"
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "--preset", "smoke", "--config", str(file(text)), "--out", str(out)])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    for word in words:
        assert word in line
    assert not out.exists()


def test_keys_that_were_added_later_leave_the_identity_of_earlier_runs_alone():
    # The identity that this configuration had before there was a `space`.
    run = Run(config=Config(task=make_task("gridworld")))
    assert run.configuration == "90f8af0df6e9"
    moved = dataclasses.replace(run.config, posterior=PosteriorConfig(space="state"))
    assert Run(config=moved).configuration != run.configuration
