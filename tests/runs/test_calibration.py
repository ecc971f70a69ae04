"""`posthoc --calibrate`: content and identity of the derived run, and errors."""

import dataclasses
import tomllib
from pathlib import Path

import polars as pl
import pytest
from support.runs import SIZES, copy_of_run
from support.verbs import float32

from recurrent_laplace.cli.parsing import default_run
from recurrent_laplace.evaluation.calibration import CalibrationConfig
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning import Config
from recurrent_laplace.models import LaplaceConfig, PointConfig
from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.report.methods import Variant, describe_run
from recurrent_laplace.report.selection import all_runs
from recurrent_laplace.runs import calibration
from recurrent_laplace.runs.calibration import derive_calibrated
from recurrent_laplace.runs.config import Calibrated, Parent, Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.models import load_model
from recurrent_laplace.runs.runner import RunOptions

pytestmark = pytest.mark.usefixtures("programs")

UNTRAINED = (*SIZES, "--updates", "0")
TOO_SURE = 1e-4
"""Temperature at which every network is overconfident."""


@pytest.fixture
def regression(command, shared, tmp_path) -> Path:
    train = ("train", "--task", "regression", *UNTRAINED)
    return copy_of_run(command, shared, tmp_path, "calibrate-regression", *train)


def distance(frame: pl.DataFrame, when: str) -> float:
    """Largest distance of a coverage from its level."""
    rows = frame.filter(pl.col("metric").str.starts_with("coverage_"))
    means = rows.group_by("metric").agg(pl.col(when).mean())
    return max(abs(rate - int(name.removeprefix("coverage_")) / 100) for name, rate in means.iter_rows())


def test_derived_run_carries_the_scales_and_is_found_again(regression, monkeypatch):
    parent = RunDirectory.open(regression)
    posterior = LaplaceConfig(temperature=TOO_SURE)

    def derived(resume: bool = False) -> tuple[RunDirectory, pl.DataFrame]:
        options = RunOptions(out=regression.parent, resume=resume)
        with float32():
            return derive_calibrated(
                parent, posterior, CalibrationConfig(tasks=16), snapshot=1.0, options=options
            )

    directory, frame = derived()
    config = tomllib.loads((directory.path / "config.toml").read_text())
    asked = {"prior_stddev": 1.0, "temperature": TOO_SURE, "forgetting": 1.0}
    assert config["calibration"] == {"tasks": 16, "by": "likelihood"} | asked
    assert {name: config["posterior"][name] for name in asked} != asked
    assert config["parent"]["run"] == regression.name
    with float32():
        loaded = load_model(RunDirectory.open(directory.path)).posterior
    for name in (*asked, "damping_precision"):
        assert getattr(loaded, name) == config["posterior"][name]
    assert dict(frame.schema) == calibration.SCHEMA
    assert frame["task"].unique().sort().to_list() == list(range(16))
    assert pl.read_parquet(directory.path / "calibration.parquet").equals(frame)

    # Without --resume the run is refused; with it, nothing is fitted again.
    monkeypatch.delattr(calibration, "calibrate_together")
    with pytest.raises(StorageError, match="exists already"):
        derived()
    resumed, again = derived(resume=True)
    assert resumed.run == directory.run
    assert again.equals(frame)


@pytest.mark.slow
def test_an_overconfident_agent_is_repaired_on_other_tasks(command, shared, tmp_path):
    """Two seeds in one run; the features of an untrained network carry information about the goal."""
    train = ("train", "--task", "gridworld", *UNTRAINED, "--task.size", "3", "--seeds", "2")
    grid = copy_of_run(command, shared, tmp_path, "calibrate-gridworld", *train)
    done = command(
        "posthoc",
        grid,
        *("--posterior", "laplace", "--temperature", TOO_SURE),
        *("--calibrate", "--calibrate-tasks", "16", "--calibrate-scales", "temperature"),
    )
    derived = done.path.parent
    run = RunDirectory.open(derived).run
    assert run.calibration == Calibrated(tasks=16, temperature=TOO_SURE)
    assert run.config.posterior.prior_stddev == 1.0
    assert run.config.posterior.temperature > TOO_SURE
    frame = pl.read_parquet(derived / "calibration.parquet")
    assert frame["seed"].unique().sort().to_list() == [0, 1]
    assert distance(frame, "before") > 0.5
    # The coordinates of a goal have three values and are not Gaussian: no scale fits all levels.
    assert distance(frame, "after") < distance(frame, "before") / 2
    nll = frame.filter(pl.col("metric") == "nll").select(pl.col("after") - pl.col("before"))
    assert nll.to_numpy().mean() < 0
    for words in ("coverage of 50%", "coverage of 99%", "NLL in nats", "temperature", "±"):
        assert words in done.out

    # A report keeps it apart from post-hoc runs that were not calibrated.
    frames = load_frames(tmp_path / "runs")
    (row,) = frames.runs.iter_rows(named=True)
    assert row["origin"] == "calibrated"
    assert "post hoc, calibrated" in describe_run(row)
    assert all_runs(frames, "gridworld", "posthoc", Variant("precision", "diagonal")).is_empty()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--calibrate"], ["posterior must be one of 'laplace', 'conjugate'", "got 'point'"]),
        (
            ["--posterior", "variational", "--calibrate"],
            ["posterior must be one of 'laplace', 'conjugate'", "got 'variational'"],
        ),
        (["--posterior", "laplace", "--calibrate", "--calibrate-tasks", "3"], ["at least 16", "got 3"]),
        (
            ["--posterior", "laplace", "--calibrate", "--calibrate-scales", "damping_precision"],
            ["calibrate_scales", "'prior_stddev', 'temperature', 'forgetting'", "'damping_precision'"],
        ),
        (["--posterior", "laplace", "--calibrate-tasks", "32"], ["calibration options need --calibrate"]),
    ],
    ids=lambda texts: " ".join(texts),
)
def test_mistakes(args, words, command, regression):
    before = sorted(regression.parent.rglob("*"))
    command("posthoc", regression, *args).refused(*words)
    assert sorted(regression.parent.rglob("*")) == before


def test_help_says_what_is_fitted_and_on_what(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    text = " ".join(command("posthoc", "--help").out.replace("│", " ").split())
    for words in (
        "--calibrate-tasks INT Validation tasks",
        "--calibrate-scales",
        "Scales to fit;",
        "(default: 128)",
    ):
        assert words in text


# Identity.

ASKED = Run(
    config=Config(posterior=LaplaceConfig()),
    parent=Parent(run="x", snapshot=1),
    calibration=Calibrated(tasks=16, prior_stddev=1.0, temperature=1.0),
)


def with_posterior(run: Run, **options) -> Run:
    posterior = dataclasses.replace(run.config.posterior, **options)
    return dataclasses.replace(run, config=dataclasses.replace(run.config, posterior=posterior))


def test_what_was_asked_for_is_the_identity_and_not_what_was_found():
    found = with_posterior(ASKED, prior_stddev=0.3, temperature=2.0)
    found.check()
    assert found.id == ASKED.id
    assert found.configuration == ASKED.configuration
    again = Run.from_toml(found.to_toml(), Path("config.toml"))
    assert again == found
    assert again.config.posterior.temperature == 2.0
    assert again.requested_posterior == ASKED.config.posterior
    others = [
        dataclasses.replace(ASKED, calibration=None),
        dataclasses.replace(found, calibration=None),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=32, prior_stddev=1.0, temperature=1.0)),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=16, prior_stddev=2.0, temperature=1.0)),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=16, temperature=1.0)),
        dataclasses.replace(
            ASKED, calibration=Calibrated(tasks=16, by="coverage", prior_stddev=1.0, temperature=1.0)
        ),
        # A scale that is not fitted is part of the identity.
        with_posterior(ASKED, forgetting=0.5),
    ]
    assert len({ASKED.id, *(run.id for run in others)}) == 1 + len(others)


def test_a_run_can_be_trained_with_the_scales_that_were_found(tmp_path):
    found = dataclasses.replace(
        with_posterior(ASKED, prior_stddev=0.3, temperature=2.0), parent=None, calibration=None
    )
    file = tmp_path / "config.toml"
    file.write_text(found.to_toml())
    assert default_run("smoke", file, None, None) == found


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("tasks = 0\ntemperature = 1.0", "tasks of .calibration. must be a whole number"),
        ("tasks = 16\ntemperature = -1.0", "temperature must be a number"),
        ("tasks = 16\ntemprature = 1.0", "temprature"),
        ("temperature = 1.0", "tasks"),
    ],
)
def test_a_damaged_table_is_refused(table, words):
    text = dataclasses.replace(ASKED, calibration=None).to_toml() + f"\n[calibration]\n{table}\n"
    with pytest.raises(ValueError, match=f"config.toml is not the configuration of a run: .*{words}"):
        Run.from_toml(text, Path("config.toml"))


def test_only_a_posterior_with_scales_is_calibrated():
    message = "posterior must be one of 'laplace', 'conjugate' to be calibrated, .*; got 'point'"
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(ASKED, config=Config(posterior=PointConfig())).check()
