"""`reproduce`: looks are planned once; `make smoke`, which CI runs, executes one."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest
from support.disks import make_larger, small_disk
from support.sweeps import finished, killed_at_the_end, wait_for

from recurrent_laplace.cli import main, reproduce
from recurrent_laplace.cli.reproduce import check_complete
from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.looks import Reproduction, look_tables
from recurrent_laplace.sweeps.plan import read_plan

SCALE = """
rules = "2026-11-19"
looks = [1, 2, 3]
preset = "smoke"
quick_compile = true

[[stage]]
name = "rnn"
set.task.name = "two_arm_bandit"
set.agent.hidden_size = 4
set.agent.features = 2
axes.learning.updates = [60, 61]

[[stage]]
name = "posthoc"
parent = "rnn"
set.learning.updates = 0
set.posterior.kind = "laplace"
"""

# The verdicts: the configuration with the highest return is open. MODE says where the process kills itself.
PROGRAM = """
import os, pathlib, signal, sys, tomllib, types
import polars as pl
from recurrent_laplace.cli import reproduce
from recurrent_laplace.report.frames import load_frames

scale, out, mode = sys.argv[1:]
marker = pathlib.Path(scale).with_name("killed")

def judged(reproduction):
    tests = load_frames(reproduction.path).evaluation.filter(pl.col("metric") == "return")
    means = tests.group_by("configuration").agg(pl.col("value").mean()).sort("value", "configuration")
    if mode == "judged" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return [types.SimpleNamespace(open=(means["configuration"][-1],))]

def draw_page(folder):
    return folder / "report.html"

reproduce.load_sweep = lambda name: (tomllib.loads(pathlib.Path(scale).read_text()), pathlib.Path(scale))
reproduce.judged, reproduce.draw_page = judged, draw_page
reproduce.main(["--scale", "smoke", "--out", out, "--workers", "1"])
"""


@pytest.fixture
def start(tmp_path, shared):
    """Starts `reproduce` of `SCALE` in a folder, with verdicts that need no figures."""
    scale = tmp_path / "scale.toml"
    scale.write_text(SCALE)
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }
    with killed_at_the_end() as processes:

        def start(out: Path, mode: str = "") -> subprocess.Popen:
            command = [sys.executable, "-c", PROGRAM, str(scale), str(out), mode]
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            process = subprocess.Popen(command, env=os.environ | kept, start_new_session=True, **pipes)
            processes.append(process)
            return process

        yield start


def plans(out: Path) -> dict[str, str]:
    return {str(file.relative_to(out)): file.read_text() for file in out.glob("look-*/sweep.toml")}


def evaluations(out: Path) -> dict[str, pl.DataFrame]:
    return {file.parent.name: pl.read_parquet(file) for file in out.glob("look-*/runs/*/evaluation.parquet")}


@pytest.mark.slow
def test_killed_at_any_moment_it_has_the_same_plan(start, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed-often"
    finished(start(whole))
    assert sorted(plans(whole)) == [f"look-{number}/sweep.toml" for number in (1, 2, 3)]
    moments = {
        "in the first look": lambda: list(killed.glob("look-1/runs/*/log.txt")),
        "between two looks": lambda: (tmp_path / "killed").exists(),
        "when the second look is planned": lambda: (killed / "look-2" / "sweep.toml").exists(),
        "in the second look": lambda: list(killed.glob("look-2/runs/*/log.txt")),
    }
    for name, moment in moments.items():
        process = start(killed, "judged" if name == "between two looks" else "")
        wait_for(lambda moment=moment, process=process: moment() or process.poll() is not None)
        process.kill()
        assert process.wait() == -signal.SIGKILL, name
    finished(start(killed))
    assert plans(killed) == plans(whole)
    found, expected = evaluations(killed), evaluations(whole)
    assert found.keys() == expected.keys()
    assert all(found[run].equals(expected[run]) for run in found)


@pytest.mark.slow
def test_a_full_disk_in_the_middle_of_a_look(start, tmp_path):
    out = tmp_path / "disk" / "out"
    with small_disk(tmp_path / "disk", "300k"):
        # A run that cannot write fails (1), and so does a sweeper (2); the sizes of files decide which.
        assert "No space left on device" in finished(start(out), 1, 2)
        make_larger(tmp_path / "disk")
        finished(start(out))
        assert len(plans(out)) == 3


def test_a_missing_stage_is_named_and_no_look_follows(tmp_path, monkeypatch, command):
    """With --only, a look stays incomplete: the page is drawn, and nothing is planned from it."""
    tables = tomllib.loads(SCALE)
    monkeypatch.setattr(reproduce, "load_sweep", lambda name: (tables, Path("scale.toml")))
    monkeypatch.setattr(reproduce, "draw_page", lambda folder: folder / "report.html")

    def run_sweep(executor, measured):
        for job in executor.directory.plan.jobs:
            (executor.directory.runs / job.id).mkdir(parents=True)

    monkeypatch.setattr(reproduce, "run_sweep", run_sweep)
    monkeypatch.setattr(SweepDirectory, "is_done", lambda self, job: (self.runs / job.id).exists())
    done = command("reproduce", "--only", "rnn", "--out", tmp_path / "out").check(0)
    assert "look 1 lacks stages: posthoc; without --only, the same command executes them" in done.out
    assert {folder.name for folder in (tmp_path / "out").glob("look-*")} == {"look-1"}


@pytest.mark.slow
def test_scale_paper_prints_its_cost_and_asks(tmp_path, capsys):
    main(["reproduce", "--scale", "paper", "--only", "rnn", "--out", str(tmp_path / "paper")])
    printed = capsys.readouterr().out
    assert "36 runs: about " in printed
    assert printed.endswith("add --yes to start it.\n")
    assert not (tmp_path / "paper").exists()


def test_a_look_is_not_planned_without_a_finished_run(tmp_path, monkeypatch):
    tables, scale = tomllib.loads(SCALE), tmp_path / "scale.toml"
    reproduction = Reproduction.make(tmp_path / "out", tables, scale)
    reproduction.write(1, look_tables(tables, 1))
    sweep = reproduction.sweep(1)
    first, *others = [job.id for job in sweep.plan.jobs]
    check_complete(reproduction, others, {first: "running"})
    monkeypatch.setattr(SweepDirectory, "is_done", lambda self, job: True)
    check_complete(reproduction, [first, *others], {first: "only what is not finite"})
    message = (
        f"without {re.escape(str(sweep.runs / first))}: metrics.parquet is damaged; delete this directory"
    )
    with pytest.raises(StorageError, match=message):
        check_complete(reproduction, others, {first: "metrics.parquet is damaged."})


def test_bad_options_are_refused_and_nothing_is_written(tmp_path, command):
    out = tmp_path / "smoke"
    command("reproduce", "--only", "rnns", "--out", out).refused("stage must be one of 'rnn'")
    command("reproduce", "--scale", "day", "--out", out).refused("smoke", "laptop", "night", "paper")
    command("reproduce", "--workers", "0", "--out", out).refused("workers must be")
    assert not out.exists()


def test_dry_run_says_the_cost_and_writes_nothing(tmp_path, command):
    done = command("reproduce", "--scale", "night", "--dry-run", "--only", "rnn", "--out", tmp_path / "night")
    assert "2 runs: about " in done.out
    assert "2 more looks are planned from the verdicts" in done.out
    assert not (tmp_path / "night").exists()


def test_another_version_of_the_rules_is_refused(tmp_path, command):
    tables, source = load_sweep("reproduce-smoke")
    older = tables | {"rules": "2026-01-02"}
    Reproduction.make(tmp_path / "old", older, source).write(1, look_tables(older, 1))
    done = command("reproduce", "--out", tmp_path / "old")
    done.refused("begun under the rules of 2026-01-02", f"this version has those of {tables['rules']}")


def test_smoke_compiles_few_programs():
    """Fine-tuned runs share the program of the run from scratch, post-hoc runs that of its evaluation."""
    tables, source = load_sweep("reproduce-smoke")
    jobs = read_plan(look_tables(tables, 1), source).jobs
    structures = {(job.run.config.task, job.run.config.agent, job.run.config.posterior) for job in jobs}
    assert len(structures) <= 13
    assert {job.run.seeds for job in jobs} == {1}
