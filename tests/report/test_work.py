"""Time of runs: that of their jobs, else of their sessions."""

import dataclasses

import pytest

import recurrent_laplace as rl
from recurrent_laplace.files import write_json
from recurrent_laplace.report.work import core_hours, work_of
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.provenance import write_sessions
from recurrent_laplace.sweeps.leases import Entry

HOUR_LONG = {"began": "2026-11-19T10:00:00+00:00", "ended": "2026-11-19T11:00:00+00:00"}
SESSIONS = [HOUR_LONG | {"cores": 8, "available_cores": 2}, HOUR_LONG | {"cores": 8, "available_cores": 1}]


@pytest.fixture
def directory(tmp_path):
    run = Run(config=rl.Config())
    return RunDirectory(tmp_path / "look-1" / "runs" / run.id, run)


@pytest.fixture
def job(directory):
    """The record of the run's job in its sweep: half an hour."""
    file = directory.path.parent.parent / "jobs" / f"{directory.run.id}.json"
    file.parent.mkdir(parents=True)
    write_json(file, dataclasses.asdict(Entry(seconds=1800.0)))
    return file


def test_a_run_of_a_sweep_has_the_time_of_its_job(directory, job):
    work = work_of(directory, SESSIONS)
    assert work == (1800.0, 2)
    assert work.hours == 1.0


def test_other_runs_have_that_of_their_sessions(directory):
    assert work_of(directory, SESSIONS) == (7200.0, 2)
    # Records of version 0.1 have the cores of the machine alone.
    assert work_of(directory, [HOUR_LONG | {"cores": 8}]) == (3600.0, 8)
    assert work_of(directory, []) == (0.0, 1)


@pytest.mark.parametrize("ended", [None, "yesterday", "2026-11-19T11:00:00", "2026-11-19T09:00:00+00:00"])
def test_times_that_are_none_count_nothing(directory, ended):
    assert work_of(directory, [HOUR_LONG | {"ended": ended}]).seconds == 0


def test_a_damaged_record_is_not_counted(directory, job):
    job.write_text("{")
    assert work_of(directory, SESSIONS).seconds == 7200
    directory.path.mkdir(parents=True)
    write_sessions(directory.provenance_path, SESSIONS)
    assert core_hours(directory) == 4.0
    directory.provenance_path.write_text("[]")
    assert core_hours(directory) == 0.0
