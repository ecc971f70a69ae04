"""Forecasts: exact where every kind was measured, and of the right size where some were not."""

import dataclasses

import pytest
from support.sweeps import make_sweep

from recurrent_laplace.files import write_json
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.provenance import write_sessions
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.forecast import Forecast, kind_of
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


def true_seconds(job):
    """Time of a job on a machine that is slower than the estimate: (updates, rest)."""
    factor = {"bandit": 5.0, "gridworld": 3.0}[job.run.config.task.name]
    factor *= 1.1 if job.run.config.posterior.kind == "variational" else 1.0
    return factor * estimate(job.run).update_seconds, 20.0 * factor


def total(job):
    update, rest = true_seconds(job)
    return job.run.config.learning.updates * update + rest


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A sweep whose jobs are done when `done` has their ids."""
    sweep = make_sweep(tmp_path, SWEEP)
    done: set[str] = set()
    monkeypatch.setattr(SweepDirectory, "is_done", lambda self, job: job.id in done)

    def finish(jobs):
        for job in jobs:
            (sweep.runs / job.id).mkdir(parents=True)
            update, _ = true_seconds(job)
            trained = {"update_seconds": update} if job.run.config.learning.updates else {}
            write_sessions(sweep.runs / job.id / "provenance.json", [trained])
            sweep.leases.folder.mkdir(exist_ok=True)
            write_json(sweep.leases.folder / f"{job.id}.json", dataclasses.asdict(Entry(seconds=total(job))))
            done.add(job.id)

    return sweep, finish


def test_without_measurements_it_is_the_estimate(sweep):
    sweep, _ = sweep
    forecast = Forecast([sweep])
    assert forecast.measured == 0
    for job in sweep.plan.jobs:
        assert forecast.seconds(job) == pytest.approx(estimate(job.run).seconds)


def test_one_run_of_each_kind_makes_it_exact(sweep):
    sweep, finish = sweep
    first = {kind_of(job): job for job in reversed(sweep.plan.jobs)}
    finish(first.values())
    forecast = Forecast([sweep])
    assert forecast.measured == len(first) == 6
    for job in sweep.plan.jobs:
        assert forecast.seconds(job) == pytest.approx(total(job))
    undone = [job for job in sweep.plan.jobs if job not in first.values()]
    assert forecast.remaining(sweep) == pytest.approx(sum(map(total, undone)))


def test_other_kinds_are_scaled_as_those_of_their_task(sweep):
    """Within 25%, where the estimates are wrong by factors of 3 and 5."""
    sweep, finish = sweep
    points = {kind_of(job): job for job in sweep.plan.jobs if job.run.config.posterior.kind == "point"}
    finish(points.values())
    forecast, jobs = Forecast([sweep]), sweep.plan.jobs
    assert sum(map(forecast.seconds, jobs)) == pytest.approx(sum(map(total, jobs)), rel=0.25)
    assert sum(estimate(job.run).seconds for job in jobs) < 0.5 * sum(map(total, jobs))
