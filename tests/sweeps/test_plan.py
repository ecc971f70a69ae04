"""Sweep files: what they mean, and what they refuse."""

import re
import time
import tomllib
import tracemalloc
from pathlib import Path

import pytest

from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.looks import look_tables
from recurrent_laplace.sweeps.plan import read_plan

FILE = Path("sweep.toml")


def plan(text: str):
    return read_plan(tomllib.loads(text), FILE)


SMALL = """
preset = "smoke"
seeds = 5
seeds_per_run = 2

[[stage]]
name = "rnn"
axes.task.name = ["regression", "gridworld"]

[[stage]]
name = "laplace"
set.posterior.kind = "laplace"
axes.task.name = ["regression", "gridworld"]
axes.posterior.covariance = ["diagonal", "dense"]
exclude = [{ task.name = "gridworld", posterior.covariance = "dense" }]

[[stage]]
name = "tuned"
parent = "rnn"
where.task.name = "gridworld"
snapshots = [0.5, 0.75]
set.posterior.kind = "variational"

[[stage]]
name = "posthoc"
parent = "rnn"
optional = true
set.learning.updates = 0
set.posterior.kind = "laplace"
"""


def stage(jobs, name):
    return [job for job in jobs if job.stage == name]


def test_axes_exclusions_and_seeds_make_the_grid():
    jobs = plan(SMALL).jobs
    assert [(job.run.seed, job.run.seeds) for job in stage(jobs, "rnn")[:3]] == [(0, 2), (2, 2), (4, 1)]
    laplace = {
        (job.run.config.task.name, job.run.config.posterior.covariance) for job in stage(jobs, "laplace")
    }
    assert laplace == {("regression", "diagonal"), ("regression", "dense"), ("gridworld", "diagonal")}
    assert len({job.id for job in jobs}) == len(jobs)


def test_children_take_what_their_parents_leave():
    jobs = plan(SMALL).jobs
    tuned = stage(jobs, "tuned")
    assert len(tuned) == 2 * 3
    for job in tuned:
        assert job.parent is not None
        assert job.run.parent is not None
        assert job.run.config.learning.updates == 8 - job.run.parent.snapshot
        assert job.run.parent.run == job.parent.id
        assert job.run.seeds == job.parent.run.seeds
        assert jobs.index(job.parent) < jobs.index(job)
    assert all(job.run.config.learning.updates == 0 for job in stage(jobs, "posthoc"))
    # An RNN has no draws; what it was asked to do with them still holds for its children.
    assert {job.run.config.learning.acting_samples for job in (*tuned, *stage(jobs, "posthoc"))} == {2}


def test_only_takes_ancestors_along_and_leaves_the_optional_out():
    whole = plan(SMALL)
    assert {job.stage for job in whole.only(()).jobs} == {"rnn", "laplace", "tuned"}
    some = whole.only(("posthoc",))
    assert {job.stage for job in some.jobs} == {"rnn", "posthoc"}
    with pytest.raises(ValueError, match="stage must be one of 'rnn', 'laplace', 'tuned', 'posthoc'"):
        whole.only(("posthock",))


def first_look(scale):
    tables, source = load_sweep(f"reproduce-{scale}")
    return read_plan(look_tables(tables, 1), source).jobs


@pytest.mark.slow
def test_the_papers_grid_has_the_papers_counts():
    jobs = first_look("paper")
    for task in ("regression", "bandit", "gridworld"):
        counts = {}
        for kind in ("point", "variational", "laplace"):
            found = {
                job.run.configuration
                for job in jobs
                if job.parent is None
                and (job.run.config.task.name, job.run.config.posterior.kind) == (task, kind)
                and job.run.tables()["posterior"]["window"] != "all"
            }
            counts[kind] = len(found)
        assert counts == {"point": 2, "variational": 24, "laplace": 144}
    assert {job.run.seeds for job in jobs} == {5}


@pytest.mark.parametrize("scale", ["smoke", "laptop", "night"])
def test_the_sweeps_that_ship_can_be_planned(scale):
    jobs = first_look(scale)
    assert {job.run.config.task.name for job in jobs} == {"regression", "bandit", "gridworld"}
    origins = {(job.parent is None, job.run.config.learning.updates == 0) for job in jobs}
    assert origins == {(True, False), (False, False), (False, True)}


CONTINUED = """
preset = "smoke"
[[stage]]
name = "rnn"
seed = 3
evaluate_snapshots = true
[[stage]]
name = "tuned"
parent = "rnn"
snapshots = [0.5]
set.posterior.kind = "laplace"
fresh_optimizer = {fresh}
[[stage]]
name = "tuned-again"
parent = "tuned"
snapshots = [0.75]
[[stage]]
name = "posthoc"
parent = "rnn"
set.learning.updates = 0
"""


def test_finetunes_continue_their_parents_unless_told_otherwise():
    continued, fresh = (plan(CONTINUED.format(fresh=word)).jobs for word in ("false", "true"))
    assert [job.run.start for job in continued] == [0, 4, 4 + 3, 0]
    assert [job.run.start for job in fresh] == [0, 0, 3, 0]
    assert {job.run.seed for job in continued} == {3}
    assert [job.evaluate_snapshots for job in continued] == [True, False, False, False]


def test_what_means_the_same_is_one_run():
    jobs = plan("""
        preset = "smoke"
        [[stage]]
        name = "all"
        axes.posterior.kind = ["point", "variational"]
        axes.posterior.covariance = ["diagonal", "dense"]
        axes.posterior.window = [1, 10]
        axes.learning.beta = [1.0, 0.01]
    """).jobs
    assert len(jobs) == 1 + 4


def test_a_sweep_of_conjugate_posteriors():
    jobs = plan("""
        preset = "smoke"
        [[stage]]
        name = "all"
        axes.posterior.kind = ["laplace", "conjugate"]
        axes.posterior.covariance = ["diagonal", "dense"]
        axes.posterior.forgetting = [1.0, 0.9]
        axes.posterior.temperature = [1.0, 2.0]
        axes.agent.predict = [[], ["reward", "observation"]]
    """).jobs
    conjugate = [job for job in jobs if job.run.config.posterior.kind == "conjugate"]
    # A conjugate posterior has no covariance to choose.
    assert (len(jobs), len(conjugate)) == (16 + 8, 8)
    assert {job.run.config.agent.predict for job in conjugate} == {(), ("reward", "observation")}


BASE = '[[stage]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a sweep needs at least one"),
        ('color = 1\n[[stage]]\nname = "a"', "key of the sweep must be one of title, preset"),
        (BASE + "colour = 1", "key of a stage must be one of name"),
        ("[[stage]]\nset.agent.features = 8", "every stage needs a name"),
        (BASE + BASE, "two stages have the name a"),
        (BASE + "axes.posterior.covarience = ['dense']", "key of \\[posterior\\] must be one of kind"),
        (BASE + "axes.colour.red = [1]", "section must be one of task, agent"),
        (BASE + "axes.posterior.covariance = ['dence']", "covariance must be one of dense, diagonal"),
        (BASE + "axes.posterior.covariance = []", "axis posterior.covariance has no values"),
        (BASE + "axes.posterior.covariance = 'dense'", "must be a list of values"),
        (BASE + "axes.task.name = ['gridword']", "task must be one of"),
        (BASE + "axes.task.size = [5]\nexclude = [{ task.size = 5 }]", "has no runs"),
        (BASE + "snapshots = [0.5]", "snapshots needs a parent"),
        (BASE + "fresh_optimizer = true", "fresh_optimizer needs a parent"),
        (BASE + "evaluate_snapshots = 1", "evaluate_snapshots must be true or false; got 1"),
        (BASE + "test_tasks = 0", "test_tasks must be a whole number of at least 1"),
        (BASE + "seeds = 0", "seeds must be"),
        (BASE + "list = 3", "list must be a list; got 3"),
        (BASE + "exclude = 3", "exclude must be a list; got 3"),
        (BASE + '[[stage]]\nname = "b"\nparent = "a"\nsnapshots = 1', "snapshots must be a list; got 1"),
        (BASE + '[[stage]]\nname = "b"\nparent = "c"', "parent must be one of a"),
        (BASE + '[[stage]]\nname = "b"\nparent = "a"\nsnapshots = [0.4]', "snapshot 0.4 is not kept"),
        (BASE + '[[stage]]\nname = "b"\nparent = "a"\nset.agent.features = 8', "cannot differ"),
        (BASE + '[[stage]]\nname = "b"\nparent = "a"\nwhere.task.name = "bandit"', "no run of a has"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(text, message):
    with pytest.raises(ValueError, match=r"^sweep\.toml: ") as caught:
        plan(text)
    assert re.search(message, str(caught.value).replace("'", "")), caught.value
    assert "\n" not in str(caught.value)


AXIS = list(range(100))
MANY = [
    BASE + "".join(f"axes.task.x{index} = {AXIS}\n" for index in range(5)),
    BASE + "seeds = 2_000_000_000\nseeds_per_run = 1",
    BASE + "list = [" + "{}," * 1000 + "]\naxes.task.size = " + str(AXIS) + "\nseeds = 2\nseeds_per_run = 1",
    BASE
    + f'seeds = 200\nseeds_per_run = 1\n[[stage]]\nname = "b"\nparent = "a"\nsnapshots = {list(range(600))}',
]


@pytest.mark.parametrize("text", MANY)
def test_too_many_runs_are_refused_before_they_are_made(text):
    began = time.monotonic()
    tracemalloc.start()
    with pytest.raises(
        ValueError, match=r"^sweep\.toml: stage '.': a sweep has at most 100000 runs, and this"
    ):
        plan(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.monotonic() - began < 10
    assert peak < 50e6
