"""Runs in words: stored and read again, told apart by their identity, laid over each other, refused."""

import dataclasses
import itertools
import tomllib
from pathlib import Path

import hypothesis.strategies as st
import pytest
import tomli_w
from hypothesis import given
from support.configurations import FIELDS, OTHER_VALUES

from recurrent_laplace import cli
from recurrent_laplace.cli import train as train_verb
from recurrent_laplace.learning import Config, LearningConfig
from recurrent_laplace.models import AgentConfig, LaplaceConfig, PointConfig, VariationalConfig
from recurrent_laplace.models.posterior_config import POSTERIORS, posterior_class
from recurrent_laplace.runs.config import Parent, Run
from recurrent_laplace.runs.presets import PRESETS
from recurrent_laplace.tasks import TASKS, make_task

SOURCE = Path("config.toml")

SECTIONS = {AgentConfig: "agent", LaplaceConfig: "posterior", LearningConfig: "learning"}


def changed(kind: type, field: str) -> tuple[Run, Run]:
    """A run, and the same but for one field."""
    parts = kind(), kind(**{field: OTHER_VALUES[kind][field]})
    return tuple(Run(config=Config(**{SECTIONS.get(kind, "task"): part})) for part in parts)


def read_again(run: Run) -> Run:
    return Run.from_toml(run.to_toml(), SOURCE)


def test_no_field_is_left_out_of_these_tests():
    kinds = {*TASKS.values(), *SECTIONS}
    assert {kind: set(values) for kind, values in OTHER_VALUES.items()} == {
        kind: {field.name for field in dataclasses.fields(kind)} for kind in kinds
    }


@pytest.mark.parametrize(("kind", "field"), FIELDS)
def test_every_field_is_stored_and_part_of_the_identity(kind, field):
    plain, other = changed(kind, field)
    assert other.config != plain.config
    assert read_again(other) == other
    assert other.id != plain.id
    assert other.configuration != plain.configuration


def test_identities_of_all_changes_differ():
    runs = [changed(*field)[1] for field in FIELDS]
    assert len({run.id for run in runs}) == len(FIELDS)


@pytest.mark.parametrize(("task", "posterior"), list(itertools.product(TASKS, POSTERIORS)))
def test_round_trip(task, posterior):
    run = Run(config=Config(task=make_task(task), posterior=posterior_class(posterior)()), seed=3, seeds=2)
    assert read_again(run) == run
    assert run.id.startswith(f"{task}-{posterior}-")


FLAT = """schema = 1
seed = 0
seeds = 1

[posterior]
kind = "{kind}"
window = {window}
prior_stddev = 2
"""


@pytest.mark.parametrize(
    ("kind", "window", "identity"),
    [
        ("point", "1", "67b1b76bb585"),
        ("point", "10", "f91b6f8aec36"),
        ("point", "'all'", "37b9d4525c87"),
        ("variational", "10", "53ebdc332309"),
        ("laplace", "10", "d89370ad2664"),
    ],
)
def test_options_of_other_posteriors_are_read_stored_and_hashed_as_in_version_01(kind, window, identity):
    run = Run.from_toml(FLAT.format(kind=kind, window=window), SOURCE)
    assert type(run.config.posterior) is posterior_class(kind)
    table = tomllib.loads(run.to_toml())["posterior"]
    assert list(table) == ["kind", *LaplaceConfig().options()]
    assert (str(table["window"]), table["prior_stddev"]) == (window.strip("'"), 2.0)
    assert run.id == f"gridworld-{kind}-{identity}"
    assert read_again(run) == run


positive = st.floats(min_value=1e-18, max_value=1e18)
sizes = st.integers(1, 10**6)


@given(
    seed=st.integers(0, 2**31 - 1),
    seeds=sizes,
    learning=st.builds(LearningConfig, learning_rate=positive, beta=positive, clip=positive, updates=sizes),
    agent=st.builds(
        AgentConfig, hidden_size=sizes, head_sizes=st.lists(sizes, min_size=1, max_size=4).map(tuple)
    ),
    posterior=st.builds(PointConfig)
    | st.builds(VariationalConfig, prior_stddev=positive)
    | st.builds(
        LaplaceConfig,
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


def test_presets_are_ordered_by_size(asked):
    # `reproduction` has the sizes of `laptop`, and samples the belief.
    names = [name for name in PRESETS if name != "reproduction"]
    learnings = [asked("--preset", preset).config.learning for preset in names]
    steps = [learning.updates * learning.batch * learning.steps for learning in learnings]
    assert steps == sorted(set(steps))


OF_THE_PAPER = {
    "point": PointConfig(),
    "variational": VariationalConfig(prior_stddev=1.0),
    "laplace": LaplaceConfig(prior_stddev=1.0, damping_precision=1.0, forgetting=1.0),
}


@pytest.mark.parametrize("posterior", OF_THE_PAPER)
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
        initialization="flax",
    )
    assert config.posterior == OF_THE_PAPER[posterior]


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


def test_configuration_of_a_run_makes_the_same_seeds_unless_flags_say_otherwise(asked, file):
    run = Run(config=Config(), seed=4, seeds=2)
    mine = file(run.to_toml())
    assert asked("--config", mine) == run
    assert asked("--config", mine, "--seed", 7) == dataclasses.replace(run, seed=7)
    assert asked("--config", mine, "--seeds", 1) == dataclasses.replace(run, seeds=1)


def test_seeds_of_a_plain_file_take_effect(asked, file):
    run = asked("--preset", "smoke", "--config", file("seed = 3\nseeds = 2\n[learning]\nbatch = 5\n"))
    assert (run.seed, run.seeds, run.config.learning.batch) == (3, 2, 5)


DERIVED = Run(config=Config(), parent=Parent(run="x", snapshot=3)).to_toml()
WHOLE = Run(config=Config()).to_toml()
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
    "run with a parent": (DERIVED, ["mine.toml", "finetune", "posthoc", "[parent]"]),
    "newer schema": (WHOLE.replace("schema = 1", "schema = 2"), ["mine.toml", "schema 2", "newer"]),
    "schema of no kind": (WHOLE.replace("schema = 1", "schema = 'x'"), ["mine.toml", "schema", "'x'"]),
    "seed below 0": ("seed = -1", ["mine.toml", "seed", "at least 0", "-1"]),
    "seed beyond all": ("seed = 4294967296", ["mine.toml", "seed", "2^32 - 1", "4294967296"]),
    "seeds beyond all": ("seed = 4294967295\nseeds = 2", ["seed", "2^32 - 1", "4294967296", "of 2 seeds"]),
    "word for a seed": ("seed = 'x'", ["seed", "whole number", "'x'"]),
    "integer beyond all floats": (f"[learning]\nbeta = 1{'0' * 400}", ["beta", "401 digits"]),
    "integer beyond all sizes": (f"[learning]\nbatch = 1{'0' * 400}", ["batch", "401 digits"]),
    "integer of many digits": (f"[learning]\nbatch = {'9' * 10**5}", ["mine.toml", "digits"]),
    "integer of many hexadecimal digits": (f"[learning]\nbatch = 0x{'f' * 10**5}", ["batch", "digits"]),
    "deep list": (f"[agent]\nhead_sizes = {'[' * 10**5}", ["mine.toml", "nested"]),
    "deep table": (f"[agent]\nhidden_size{'.a' * 50} = 1", ["hidden_size", "whole number"]),
    "long key": (f"[agent]\nhidden_size{'.a' * 10**5} = 1", ["mine.toml", "nested"]),
    "long quoted key": (f"""[agent]\n"=".','{' . "a=,"' * 10**5} = 1""", ["mine.toml", "nested"]),
    "long file": ("#" * 10**7, ["mine.toml", "1000000 bytes"]),
    "no TOML": ("[learning", ["mine.toml", "TOML"]),
}


@pytest.mark.parametrize("mistake", WRONG_FILES)
def test_wrong_file_ends_in_one_sentence(mistake, file, tmp_path, command):
    text, words = WRONG_FILES[mistake]
    out = tmp_path / "runs"
    command("train", "--preset", "smoke", "--config", file(text), "--out", out).refused(*words)
    assert not out.exists()


def test_keys_that_were_added_later_leave_the_identity_of_earlier_runs_alone():
    # The identity that this configuration had before there was a `space`.
    run = Run(config=Config(task=make_task("gridworld")))
    assert run.configuration == "90f8af0df6e9"
    assert dataclasses.replace(run, unused={"space": "state"}).configuration != run.configuration
