"""Plans of `reproduce`; `make smoke`, which CI runs, executes one."""

import pytest

from recurrent_laplace.cli import main
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.plan import read_plan


@pytest.mark.slow
def test_scale_paper_prints_its_cost_and_asks(tmp_path, capsys):
    main(["reproduce", "--scale", "paper", "--only", "rnn", "--out", str(tmp_path / "paper")])
    printed = capsys.readouterr().out
    assert "36 runs: about " in printed
    assert printed.endswith("add --yes to start it.\n")
    assert not (tmp_path / "paper").exists()


def test_an_unknown_stage_is_refused(tmp_path, command):
    done = command("reproduce", "--only", "rnns", "--out", tmp_path / "smoke")
    done.refused("stage must be one of 'rnn'")
    assert not (tmp_path / "smoke").exists()


def test_smoke_compiles_few_programs():
    """Fine-tuned runs share the program of the run from scratch, post-hoc runs that of its evaluation."""
    jobs = read_plan(*load_sweep("reproduce-smoke")).jobs
    structures = {(job.run.config.task, job.run.config.agent, job.run.config.posterior) for job in jobs}
    assert len(structures) <= 13
    assert {job.run.seeds for job in jobs} == {1}


def test_laptop_has_three_seeds_and_one_beta_but_for_one_stage():
    jobs = read_plan(*load_sweep("reproduce-laptop")).only(()).jobs
    assert {job.run.seeds for job in jobs} == {3}
    assert {job.run.config.learning.beta for job in jobs if job.stage != "beta"} == {1e-2}
    # An estimate; docs/results.md has measurements.
    assert sum(estimate(job.run).seconds for job in jobs) < 2 * 90 * 60
