"""Looks: which seeds each adds, what is planned from verdicts, and directories that are refused."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.looks import Reproduction, check_scale, lineage, look_tables, plan_look
from recurrent_laplace.sweeps.plan import read_plan

FILE = Path("scale.toml")
SCALES = ("smoke", "laptop", "night", "paper")
TABLES = tomllib.loads("""
rules = "2026-11-19"
looks = [2, 3, 5]
preset = "smoke"
seeds_per_run = 2

[[stage]]
name = "rnn"
set.task.name = "two_arm_bandit"
set.agent.hidden_size = 4
axes.agent.features = [2, 3]

[[stage]]
name = "laplace"
set.task.name = "two_arm_bandit"
set.agent = { hidden_size = 4, features = 2 }
set.posterior.kind = "laplace"
axes.posterior.accumulate = ["precision", "none"]

[[stage]]
name = "posthoc"
parent = "rnn"
set.learning.updates = 0
set.posterior.kind = "laplace"

[[stage]]
name = "dear"
looks = [1]
set.learning.updates = 100

[[stage]]
name = "dear-tuned"
parent = "dear"
snapshots = [0.5]
""")


@dataclasses.dataclass
class Verdict:
    """A verdict with these open configurations."""

    open: tuple[str, ...]


def whole(number, tables=TABLES):
    return read_plan(look_tables(tables, number), FILE).jobs


def planned(number, *verdicts):
    tables = plan_look(TABLES, FILE, number, verdicts)
    return None if tables is None else read_plan(tables, FILE).jobs


def seeds(jobs):
    return {(job.stage, job.run.seed, job.run.seeds) for job in jobs}


def of_stage(jobs, name):
    return [job for job in jobs if job.stage == name]


def test_each_look_adds_seeds():
    stages = ("rnn", "laplace", "posthoc")
    first = {(stage, 0, 2) for stage in stages} | {(stage, 0, 1) for stage in ("dear", "dear-tuned")}
    assert seeds(whole(1)) == first
    assert seeds(whole(2)) == {(stage, 2, 1) for stage in stages}
    assert seeds(whole(3)) == {(stage, 3, 2) for stage in stages}
    assert look_tables(TABLES, 4)["stage"] == []


def test_the_first_look_has_everything():
    assert [job.id for job in planned(1)] == [job.id for job in whole(1)]


def test_later_looks_have_the_open_configurations_and_their_parents():
    laplace, _ = of_stage(whole(1), "laplace")
    posthoc, _ = of_stage(whole(1), "posthoc")
    jobs = planned(2, Verdict((laplace.run.configuration,)), Verdict((posthoc.run.configuration,)))
    assert {lineage(job) for job in jobs} == {lineage(job) for job in (laplace, posthoc, posthoc.parent)}
    assert seeds(jobs) == {(stage, 2, 1) for stage in ("rnn", "laplace", "posthoc")}
    # The post-hoc run of the second look has another parent, and so another configuration.
    (again,) = of_stage(jobs, "posthoc")
    assert again.run.configuration != posthoc.run.configuration
    # Either stands for both.
    for job in (posthoc, again):
        assert seeds(planned(3, Verdict((job.run.configuration,)))) == {("rnn", 3, 2), ("posthoc", 3, 2)}


def test_open_configurations_of_optional_stages_are_executed():
    optional = [stage | {"optional": True} for stage in TABLES["stage"]]
    tables = TABLES | {"stage": optional}
    job = whole(1)[0]
    planned = plan_look(tables, FILE, 2, [Verdict((job.run.configuration,))])
    assert [each.stage for each in read_plan(planned, FILE).only(()).jobs] == [job.stage]


def test_nothing_open_is_no_look():
    assert planned(2, Verdict(()), Verdict(())) is None
    assert planned(2) is None
    # Seeds of this stage end with the first look.
    (dear,) = of_stage(whole(1), "dear")
    assert planned(2, Verdict((dear.run.configuration,))) is None
    assert planned(4, Verdict((whole(1)[0].run.configuration,))) is None


def test_the_cheapest_claims_come_first():
    cheap, other = of_stage(whole(2), "laplace")
    assert estimate(cheap.run).seconds == pytest.approx(estimate(other.run).seconds)
    open_once, open_twice = (job.run.configuration for job in of_stage(whole(1), "laplace"))
    verdicts = [Verdict((open_once, open_twice)), Verdict((open_twice, open_twice))]
    assert [job.id for job in planned(2, *verdicts)] == [other.id, cheap.id]
    assert [job.id for job in planned(2, *reversed(verdicts))] == [other.id, cheap.id]


def test_a_plan_is_a_function_of_the_verdicts():
    verdicts = [Verdict(tuple(job.run.configuration for job in whole(1)))]
    assert plan_look(TABLES, FILE, 2, verdicts) == plan_look(TABLES, FILE, 2, verdicts)


# Directories


def test_a_plan_is_stored_before_its_runs(tmp_path):
    reproduction = Reproduction.make(tmp_path / "out", TABLES, FILE)
    assert not (tmp_path / "out").exists()
    assert reproduction.planned() == 0
    reproduction.write(1, look_tables(TABLES, 1))
    again = Reproduction.make(tmp_path / "out", TABLES, FILE)
    assert again.planned() == 1
    assert [job.id for job in again.sweep(1).plan.jobs] == [job.id for job in whole(1)]


def test_other_rules_are_refused_with_both_dates(tmp_path):
    Reproduction.make(tmp_path, TABLES, FILE).write(1, look_tables(TABLES, 1))
    newer = TABLES | {"rules": "2027-01-02"}
    with pytest.raises(StorageError, match=r"begun under the rules of 2026-11-19, .* 2027-01-02: choose"):
        Reproduction.make(tmp_path, newer, FILE)
    with pytest.raises(StorageError, match="another reproduction"):
        Reproduction.make(tmp_path, TABLES | {"looks": [2, 3]}, FILE)


def test_looks_out_of_order_are_refused(tmp_path):
    reproduction = Reproduction.make(tmp_path, TABLES, FILE)
    for number in (1, 2, 3):
        reproduction.write(number, look_tables(TABLES, number))
    (tmp_path / "look-2").rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="has look-3 without look-2"):
        Reproduction.make(tmp_path, TABLES, FILE)


def test_other_directories_are_refused(tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    with pytest.raises(
        StorageError, match=r"is not the directory of a reproduction: it has no reproduction\.toml"
    ):
        Reproduction.make(tmp_path, TABLES, FILE)
    with pytest.raises(StorageError, match="is a file"):
        Reproduction.make(tmp_path / "sweep.toml" / "out", TABLES, FILE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rules": "yesterday"}, "rules must be a date such as"),
        ({"rules": 3}, "rules must be a date such as"),
        ({"looks": []}, "looks must be a list"),
        ({"looks": 5}, "looks must be a list"),
        ({"looks": [5, 5]}, "looks must have more and more seeds"),
        ({"looks": [0]}, "seeds of a look must be"),
        ({"stage": [{"name": "a", "looks": [3, 2]}]}, "looks must have more and more seeds"),
    ],
)
def test_bad_scales_are_refused_in_one_sentence(change, message):
    with pytest.raises(ValueError, match=message) as caught:
        check_scale(TABLES | change, FILE)
    assert "\n" not in str(caught.value)


# The scales that ship


def test_the_scales_have_one_date_of_the_rules():
    dates = set()
    for scale in SCALES:
        tables, source = load_sweep(f"reproduce-{scale}")
        check_scale(tables, source)
        dates.add(tables["rules"])
    assert len(dates) == 1


@pytest.mark.parametrize("scale", ["laptop", "night"])
def test_methods_differ_in_their_posterior_alone(scale):
    """Equal sizes, updates, batches and rates for all methods of a task; arms differ in the samples."""
    tables, source = load_sweep(f"reproduce-{scale}")
    jobs = read_plan(look_tables(tables, 1), source).only(()).jobs
    free = {"training_samples", "acting_samples", "beta", "kl_fraction", "predictive_floor"}
    for task in ("gridworld", "bandit", "regression"):
        scratch = [job.run.config for job in jobs if job.parent is None and job.run.config.task.name == task]
        assert {config.agent for config in scratch} == {scratch[0].agent}
        assert scratch[0].agent.initialization == "flax"
        kept = [
            {key: value for key, value in vars(config.learning).items() if key not in free}
            for config in scratch
        ]
        assert all(each == kept[0] for each in kept)
        bayesian = [config.learning for config in scratch if config.posterior.family is not None]
        if task != "regression":
            assert {(each.training_samples, each.acting_samples) for each in bayesian} == {(0, 0), (5, 5)}


def test_regression_as_released_has_three_cosines_and_a_floor():
    tables, source = load_sweep("reproduce-night")
    jobs = read_plan(look_tables(tables, 1), source).jobs
    arms = {
        (job.run.config.task.terms, job.run.config.learning.predictive_floor > 0)
        for job in jobs
        if job.run.config.task.name == "regression"
    }
    assert arms == {(4, False), (3, True)}


def test_the_seeds_of_all_looks_are_below_those_of_validation():
    for scale in SCALES:
        tables, source = load_sweep(f"reproduce-{scale}")
        last = len(tables["looks"])
        jobs = read_plan(look_tables(tables, last), source).jobs
        assert max(job.run.seed + job.run.seeds for job in jobs) <= 100
