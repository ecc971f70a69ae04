"""`reproduce`: what it would do. That it does it is seen by `make smoke`, which CI runs."""

import pytest

from recurrent_laplace.cli import main
from recurrent_laplace.experiments.estimate import estimate
from recurrent_laplace.experiments.plan import read_plan
from recurrent_laplace.experiments.presets import load_sweep


@pytest.mark.slow
def test_the_papers_scale_says_its_price_and_waits(tmp_path, capsys):
    main(["reproduce", "--scale", "paper", "--only", "rnn", "--out", str(tmp_path / "paper")])
    said = capsys.readouterr().out
    assert "36 runs: about " in said
    assert said.endswith("add --yes to begin.\n")
    assert not (tmp_path / "paper").exists()


def test_an_unknown_stage_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["reproduce", "--only", "rnns", "--out", str(tmp_path / "smoke")])
    assert end.value.code == 2
    assert "stage must be one of 'rnn'" in capsys.readouterr().err
    assert not (tmp_path / "smoke").exists()


def test_smoke_is_few_programs():
    """A fine-tune shares its program with the run from scratch, a post-hoc run its test."""
    jobs = read_plan(*load_sweep("reproduce-smoke")).jobs
    structures = {(job.run.config.task, job.run.config.agent, job.run.config.posterior) for job in jobs}
    assert len(structures) <= 13
    assert {job.run.seeds for job in jobs} == {1}


def test_laptop_has_three_seeds_and_one_beta_but_for_one_stage():
    jobs = read_plan(*load_sweep("reproduce-laptop")).only(()).jobs
    assert {job.run.seeds for job in jobs} == {3}
    assert {job.run.config.learning.beta for job in jobs if job.stage != "beta"} == {1e-2}
    # An estimate, not a measurement: docs/results.md has those.
    assert sum(estimate(job.run).seconds for job in jobs) < 2 * 90 * 60
