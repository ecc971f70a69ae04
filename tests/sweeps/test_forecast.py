"""Forecasts: exact where every kind was measured, and of the right size where some were not."""

import dataclasses

import pytest
from support.sweeps import make_sweep

from recurrent_laplace.files import write_json
from recurrent_laplace.runs.estimate import COMPILE_SECONDS, estimate
from recurrent_laplace.runs.provenance import write_sessions
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.forecast import START_SECONDS, Forecast, kind_of
from recurrent_laplace.sweeps.leases import Entry

SWEEP = """
preset = "smoke"
[[stage]]
name = "scratch"
axes.task.name = ["bandit", "gridworld"]
axes.posterior.kind = ["point", "variational"]
axes.learning.updates = [100, 200]
[[stage]]
name = "posthoc"
parent = "scratch"
where.posterior.kind = "point"
set.learning.updates = 0
set.posterior.kind = "laplace"
"""


FACTORS = {"bandit": 5.0, "gridworld": 3.0}
"""Times on this machine, relative to their estimates."""


def update_seconds(job):
    factor = FACTORS[job.run.config.task.name]
    factor *= 1.1 if job.run.config.posterior.kind == "variational" else 1.0
    return factor * estimate(job.run).update_seconds


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep, the true time of each job, and a function that finishes jobs in that time."""
    sweep = make_sweep(tmp_path, SWEEP)
    done: set[str] = set()
    monkeypatch.setattr(SweepDirectory, "is_done", lambda self, job: job.id in done)
    estimated = Forecast([sweep])
    true = {}
    for job in sweep.plan.jobs:
        updates = job.run.config.learning.updates
        rest = estimated.seconds(job) - updates * estimate(job.run).update_seconds
        true[job.id] = updates * update_seconds(job) + FACTORS[job.run.config.task.name] * rest

    def finish(jobs):
        for job in jobs:
            (sweep.runs / job.id).mkdir(parents=True)
            trained = {"update_seconds": update_seconds(job)} if job.run.config.learning.updates else {}
            write_sessions(sweep.runs / job.id / "provenance.json", [trained])
            sweep.leases.folder.mkdir(exist_ok=True)
            entry = Entry(seconds=true[job.id])
            write_json(sweep.leases.folder / f"{job.id}.json", dataclasses.asdict(entry))
            done.add(job.id)

    return sweep, true, finish


def test_without_measurements_it_is_the_estimate(sweep):
    sweep, *_ = sweep
    forecast = Forecast([sweep])
    assert forecast.measured == 0
    first, second = (job for job in sweep.plan.jobs[:2])
    assert kind_of(first) == kind_of(second)
    # What the first has compiled, the second has not to.
    assert forecast.seconds(first) - START_SECONDS == pytest.approx(estimate(first.run).seconds)
    rest = estimate(second.run).seconds - COMPILE_SECONDS
    assert forecast.seconds(second) - START_SECONDS == pytest.approx(rest)


def test_one_run_of_each_kind_makes_it_exact(sweep):
    sweep, true, finish = sweep
    first = {kind_of(job): job for job in reversed(sweep.plan.jobs)}
    finish(first.values())
    forecast = Forecast([sweep])
    assert forecast.measured == len(first) == 6
    for job in sweep.plan.jobs:
        assert forecast.seconds(job) == pytest.approx(true[job.id])
    undone = [job for job in sweep.plan.jobs if job not in first.values()]
    assert forecast.remaining(sweep) == pytest.approx(sum(true[job.id] for job in undone))


def test_other_kinds_are_scaled_as_those_of_their_task(sweep):
    """Within 25%, where the estimates are wrong by factors of 3 and 5."""
    sweep, true, finish = sweep
    points = {kind_of(job): job for job in sweep.plan.jobs if job.run.config.posterior.kind == "point"}
    finish(points.values())
    forecast, jobs = Forecast([sweep]), sweep.plan.jobs
    assert sum(map(forecast.seconds, jobs)) == pytest.approx(sum(true.values()), rel=0.25)
    assert sum(estimate(job.run).seconds for job in jobs) < 0.75 * sum(true.values())
