"""`posthoc --calibrate`: what the derived run carries, that it is found again, and what is refused."""

import dataclasses
import functools
import shutil
import tomllib
from pathlib import Path

import filelock
import jax
import polars as pl
import pytest
from verbs import run_command

from recurrent_laplace.cli.parsing import default_config
from recurrent_laplace.evaluation.validation import CalibrationConfig
from recurrent_laplace.experiments import calibration
from recurrent_laplace.experiments.calibration import derive_calibrated
from recurrent_laplace.experiments.config import Calibrated, Parent, Run
from recurrent_laplace.experiments.models import load_model
from recurrent_laplace.experiments.runner import RunOptions
from recurrent_laplace.experiments.storage import RunDirectory
from recurrent_laplace.files import StorageError
from recurrent_laplace.learning import Config
from recurrent_laplace.models import PosteriorConfig
from recurrent_laplace.report.frames import load_frames
from recurrent_laplace.report.methods import Variant, describe_run
from recurrent_laplace.report.selection import all_runs

# A program that another worker is just storing is compiled once more: no harm, and no error.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache"),
    pytest.mark.usefixtures("programs"),
]

TINY = ("--preset", "smoke", "--steps", "5", "--batch", "4", "--cell", "elman", "--no-layer-norm")
TOO_SURE = 1e-4
"""A temperature at which there is something to repair, whatever the network."""


@pytest.fixture
def command(capsys):
    return functools.partial(run_command, capsys)


def made_once(command, shared: Path, folder: Path, task: str, *args) -> Path:
    """A copy of an untrained run that all tests of the session begin from."""
    out = shared / "calibrate" / task
    with filelock.FileLock(shared / f"calibrate-{task}.lock"):
        if not out.exists():
            assert command("train", "--task", task, *TINY, "--updates", "0", *args, "--out", out).code == 0
    (directory,) = out.iterdir()
    return Path(shutil.copytree(directory, folder / "runs" / directory.name))


@pytest.fixture
def regression(command, shared, tmp_path) -> Path:
    return made_once(command, shared, tmp_path, "regression")


def distance(frame: pl.DataFrame, when: str) -> float:
    """How far coverages are from their levels."""
    rows = frame.filter(pl.col("metric").str.starts_with("coverage_"))
    means = rows.group_by("metric").agg(pl.col(when).mean())
    return max(abs(rate - int(name.removeprefix("coverage_")) / 100) for name, rate in means.iter_rows())


def test_derived_run_carries_the_scales_and_is_found_again(regression, monkeypatch):
    parent = RunDirectory.open(regression)
    posterior = PosteriorConfig(kind="laplace", temperature=TOO_SURE)

    def derived(resume: bool = False) -> tuple[RunDirectory, pl.DataFrame]:
        options = RunOptions(out=regression.parent, resume=resume)
        with jax.enable_x64(False):
            return derive_calibrated(
                parent, posterior, CalibrationConfig(tasks=16), snapshot=1.0, options=options
            )

    directory, frame = derived()
    config = tomllib.loads((directory.path / "config.toml").read_text())
    asked = {"prior_stddev": 1.0, "temperature": TOO_SURE, "forgetting": 1.0}
    assert config["calibration"] == {"tasks": 16, "by": "likelihood"} | asked
    assert {name: config["posterior"][name] for name in asked} != asked
    assert config["parent"]["run"] == regression.name
    with jax.enable_x64(False):
        loaded = load_model(RunDirectory.open(directory.path)).posterior
    for name in (*asked, "damping_precision"):
        assert getattr(loaded, name) == config["posterior"][name]
    assert dict(frame.schema) == calibration.SCHEMA
    assert frame["task"].unique().sort().to_list() == list(range(16))
    assert pl.read_parquet(directory.path / "calibration.parquet").equals(frame)

    # Without --resume it is refused, and with it nothing is fitted again.
    monkeypatch.delattr(calibration, "calibrate_together")
    with pytest.raises(StorageError, match="exists already"):
        derived()
    resumed, again = derived(resume=True)
    assert resumed.run == directory.run
    assert again.equals(frame)


@pytest.mark.slow
def test_an_overconfident_agent_is_repaired_on_other_tasks(command, shared, tmp_path):
    """Two seeds in one run, and a goal that the features of an untrained network tell something of."""
    grid = made_once(command, shared, tmp_path, "gridworld", "--task.size", "3", "--seeds", "2")
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
    # Rows and columns of a goal are three numbers, not Gaussian: no scale gets all levels right.
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
        (["--calibrate"], ["posterior must be 'laplace'", "got 'point'"]),
        (["--posterior", "variational", "--calibrate"], ["posterior must be 'laplace'", "got 'variational'"]),
        (["--posterior", "laplace", "--calibrate", "--calibrate-tasks", "3"], ["at least 16", "got 3"]),
        (
            ["--posterior", "laplace", "--calibrate", "--calibrate-scales", "damping_precision"],
            ["calibrate_scales", "'prior_stddev', 'temperature', 'forgetting'", "'damping_precision'"],
        ),
        (["--posterior", "laplace", "--calibrate-tasks", "32"], ["options of calibration need --calibrate"]),
    ],
    ids=lambda texts: " ".join(texts),
)
def test_mistakes(args, words, command, regression):
    before = sorted(regression.parent.rglob("*"))
    done = command("posthoc", regression, *args)
    assert done.code == 2
    (line,) = done.err.strip().splitlines()
    assert line.startswith("recurrent-laplace: ")
    for word in words:
        assert word in line
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
    config=Config(posterior=PosteriorConfig(kind="laplace")),
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
    assert again.asked == ASKED.config.posterior
    others = [
        dataclasses.replace(ASKED, calibration=None),
        dataclasses.replace(found, calibration=None),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=32, prior_stddev=1.0, temperature=1.0)),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=16, prior_stddev=2.0, temperature=1.0)),
        dataclasses.replace(ASKED, calibration=Calibrated(tasks=16, temperature=1.0)),
        dataclasses.replace(
            ASKED, calibration=Calibrated(tasks=16, by="coverage", prior_stddev=1.0, temperature=1.0)
        ),
        # A scale that is not fitted is part of it, as ever.
        with_posterior(ASKED, forgetting=0.5),
    ]
    assert len({ASKED.id, *(run.id for run in others)}) == 1 + len(others)


def test_a_run_can_be_trained_with_the_scales_that_were_found(tmp_path):
    found = with_posterior(ASKED, prior_stddev=0.3, temperature=2.0)
    file = tmp_path / "config.toml"
    file.write_text(found.to_toml())
    assert default_config("smoke", file, None, None) == found.config


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


def test_only_a_laplace_posterior_is_calibrated():
    with pytest.raises(ValueError, match="calibrated posterior must be one of 'laplace'; got 'point'"):
        with_posterior(ASKED, kind="point").check()
