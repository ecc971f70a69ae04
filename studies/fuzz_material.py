"""Small files of every kind that the package reads back, and the readers that the commands use."""

import dataclasses
import functools
import io
import json
import signal
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import polars as pl
import safetensors

import recurrent_laplace as rl
from recurrent_laplace.cli.parsing import default_run
from recurrent_laplace.interop.sb3_files import read_model, read_normalization
from recurrent_laplace.monitoring.episode import Episode
from recurrent_laplace.monitoring.serialization import HEADER
from recurrent_laplace.runs.config import Run
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.runs.estimate import estimate
from recurrent_laplace.runs.evaluation import evaluate_with_oracle, stale_evaluation
from recurrent_laplace.runs.models import load_weights
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.runs.provenance import read_sessions
from recurrent_laplace.runs.runner import RunOptions, train_run
from recurrent_laplace.runs.tables import EVALUATION_SCHEMA, METRICS_SCHEMA, read_table
from recurrent_laplace.sweeps.directory import SweepDirectory
from recurrent_laplace.sweeps.leases import Leases
from recurrent_laplace.sweeps.looks import FILE, Reproduction, look_tables
from recurrent_laplace.sweeps.plan import Plan

TINY = ("--preset", "smoke", "--cell", "elman", "--hidden-size", "4", "--updates", "2")
"""Flags of a run of seconds; the last one is the number of updates."""


class Material(NamedTuple):
    """Small runs, a sweep, saved beliefs and foreign files, in one folder."""

    root: Path
    run: RunDirectory
    interrupted: RunDirectory
    sweep: Path
    reproduction: Reproduction


def make_material(root: Path) -> Material:
    """Train, evaluate, interrupt, save: seconds."""
    config = default_run("smoke", None, "bandit", "laplace").config
    small = dataclasses.replace(config.agent, cell="elman", hidden_size=4, features=3)
    learning = dataclasses.replace(config.learning, updates=2, steps=5, batch=4)
    run = Run(config=dataclasses.replace(config, agent=small, learning=learning))
    directory = train_run(run, RunOptions(out=root / "runs"))
    evaluate_with_oracle(directory, rl.EvaluationConfig())
    sweep = _make_sweep(root / "sweep")
    _save_beliefs(root)
    (root / "model.zip").write_bytes(_model_zip())
    (root / "vecnormalize.pkl").write_bytes(_vecnormalize())
    (root / "file").touch()
    (root / "small.toml").write_text('preset = "smoke"\n[[stage]]\nname = "rnn"\nset.task.name = "bandit"\n')
    (root / "own.toml").write_text('[task]\nname = "bandit"\n\n[agent]\nhidden_size = 4\ncell = "gru"\n')
    return Material(root, directory, _interrupt(root), sweep, _make_reproduction(root / "reproduction"))


def _interrupt(root: Path) -> RunDirectory:
    """A run that was stopped by Ctrl-C."""
    words = [*TINY[:-1], "1000000", "--checkpoint-seconds", "1", "--out", root / "stopped"]
    command = [sys.executable, "-m", "recurrent_laplace", "train", "--task", "regression", *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not list((root / "stopped").glob("*/checkpoints/*")):
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
    (path,) = (root / "stopped").iterdir()
    return RunDirectory.open(path)


def _make_sweep(path: Path) -> Path:
    """A sweep with a failed job; nothing of it is run."""
    stages = [
        {"name": "rnn", "set": {"task": {"name": "bandit"}}, "axes": {"agent": {"hidden_size": [4, 5]}}},
        {"name": "posthoc", "parent": "rnn", "set": {"posterior": {"kind": "laplace"}}},
    ]
    tables = {"title": "small", "preset": "smoke", "seeds": 2, "stage": stages}
    directory = SweepDirectory.make(path, tables, Path("small.toml"))
    directory.write(tables)
    job = directory.plan.jobs[0].id
    directory.leases.acquire(job, attempts=1)
    directory.leases.release(job, "it failed.")
    return path


def _make_reproduction(path: Path) -> Reproduction:
    """A reproduction with the plan of its first look; nothing of it is run."""
    tables, source = load_sweep("reproduce-smoke")
    reproduction = Reproduction.make(path, tables, source)
    reproduction.write(1, look_tables(tables, 1))
    return reproduction


def _save_beliefs(root: Path) -> None:
    cell_key, readout_key, input_key = jax.random.split(jax.random.key(0), 3)
    memory = rl.Memory(rl.Elman(3, 4, key=cell_key), features=2, key=readout_key)
    posterior = rl.LaplacePosterior(memory, covariance="diagonal")
    rl.save(root / "posterior.safetensors", posterior)
    inputs = jax.random.normal(input_key, (60, 3, 3))
    monitor = rl.Monitor(posterior, streams=60)
    readings = [monitor.step(inputs[:, t]) for t in range(3)]
    episodes = [
        Episode.of(
            list(np.asarray(inputs[i])),
            [0] * 3,
            [0.0] * 3,
            [jax.tree.map(lambda leaf, i=i: leaf[i], reading) for reading in readings],
        )
        for i in range(60)
    ]
    random = np.random.default_rng(0)
    recordings = [
        rl.Recording(np.asarray(each), random.integers(2, size=3), random.normal(size=3)) for each in inputs
    ]
    fit = rl.fit_predictor(rl.PointPosterior(memory), recordings, hidden_sizes=(2,))
    assert fit.posterior is not None
    rl.save(root / "predictor.safetensors", fit.posterior)
    alarm = rl.ShiftAlarm.fit(episodes, false_alarm_rate=0.05)
    rl.save(root / "alarm.safetensors", alarm)
    single = rl.Monitor(posterior)
    single.step(inputs[0, 0])
    rl.save(root / "monitor.safetensors", single)


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def _model_zip() -> bytes:
    """Two members of what `RecurrentPPO.save` writes: JSON, and a state dict in the format of torch."""
    shape = b"(K\x02K\x03t(K\x03K\x01t"
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + b"K\x06tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape
    tensor += b"\x89ccollections\nOrderedDict\n)RtR"
    program = b"\x80\x02ccollections\nOrderedDict\n)R(" + _text("weight") + tensor + b"u."
    numbers = np.arange(6, dtype="<f4").tobytes()
    weights = _zip({"archive/data.pkl": program, "archive/data/0": numbers}, zipfile.ZIP_STORED)
    return _zip({"data": json.dumps({"gamma": 0.9, "n_envs": 1}).encode(), "policy.pth": weights})


def _zip(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def _vecnormalize() -> bytes:
    """The attributes of a `VecNormalize` that are read, pickled by hand."""

    def array(values: np.ndarray) -> bytes:
        dtype = b"cnumpy\ndtype\n(" + _text("f8") + b"\x89\x88tR(K\x03" + _text("<") + b"NNNJ\xff\xff\xff\xff"
        dtype += b"J\xff\xff\xff\xffK\x00tb"
        made = b"cnumpy._core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85C\x01btR"
        raw = values.tobytes()
        made += b"(K\x01K" + bytes([len(values)]) + b"\x85" + dtype
        return made + b"\x89C" + bytes([len(raw)]) + raw + b"tb"

    def item(name: str, value: bytes) -> bytes:
        return _text(name) + value

    statistics = b"cstable_baselines3.common.running_mean_std\nRunningMeanStd\n)\x81}("
    statistics += item("mean", array(np.arange(3.0))) + item("var", array(np.ones(3))) + b"ub"
    made = b"\x80\x04cstable_baselines3.common.vec_env.vec_normalize\nVecNormalize\n)\x81}("
    made += item("norm_obs", b"\x88") + item("clip_obs", b"G" + struct.pack(">d", 10.0))
    return made + item("epsilon", b"G" + struct.pack(">d", 1e-8)) + item("obs_rms", statistics) + b"ub."


class Kind(NamedTuple):
    """A kind of file, where it is, and how the commands read it."""

    name: str
    paths: list[Path]
    read: Callable[[], Any]
    sealed: bool = True
    """Whether it has a checksum; files of other programs, and those that users write, have none."""


def kinds(material: Material) -> list[Kind]:
    """Every kind of file that is read back."""
    root, run, stopped = material.root, material.run, material.interrupted
    state = run.checkpoints.folder / str(run.newest_update())
    arrays = sorted(path for path in (state / "arrays").rglob("*") if path.is_file() and path.stat().st_size)
    (oracle,) = run.folder.glob("oracle-*.parquet")
    (lease,) = (material.sweep / "jobs").glob("*.json")
    reproduction = material.reproduction
    model, statistics, own = root / "model.zip", root / "vecnormalize.pkl", root / "own.toml"
    found = [
        Kind("config.toml", [run.path / "config.toml"], lambda: RunDirectory.open(run.path).run),
        Kind("provenance.json", [run.provenance_path], lambda: read_sessions(run.provenance_path)),
        Kind("metrics.parquet", [run.metrics_path], lambda: _rows(run.metrics_path, METRICS_SCHEMA)),
        Kind(
            "evaluation.parquet", [run.evaluation_path], lambda: _rows(run.evaluation_path, EVALUATION_SCHEMA)
        ),
        Kind("evaluation.parquet: update", [run.evaluation_path], lambda: stale_evaluation(run)),
        Kind("oracle-*.parquet", [oracle], lambda: _rows(oracle, EVALUATION_SCHEMA)),
        Kind("status", [stopped.path / "status"], lambda: stopped.status and stopped.status.state),
        Kind("checkpoint: SHA256SUMS", [state / "SHA256SUMS"], lambda: _weights(run)),
        Kind("checkpoint: label", [state / "label"], lambda: _weights(run)),
        Kind("checkpoint: arrays", arrays, lambda: _weights(run)),
        Kind("sweep.toml", [material.sweep / "sweep.toml"], lambda: SweepDirectory.open(material.sweep).plan),
        Kind(
            "reproduction: *.toml",
            [reproduction.path / FILE, reproduction.folder(1) / "sweep.toml"],
            lambda: _looks(reproduction),
        ),
        Kind("jobs/*.json", [lease], lambda: Leases(lease.parent).entry(lease.stem)),
        Kind("model.zip", [model], lambda: _model(model), sealed=False),
        Kind("vecnormalize.pkl", [statistics], lambda: _statistics(statistics), sealed=False),
        Kind("--config", [own], lambda: configured(own), sealed=False),
    ]
    for name in ("posterior", "predictor", "monitor", "alarm"):
        path = root / f"{name}.safetensors"
        found.append(Kind(path.name, [path], functools.partial(_resaved, path)))
    return found


def _rows(path: Path, schema: Mapping[str, type[pl.DataType]]) -> list[tuple]:
    return read_table(path, schema).rows()


def _looks(reproduction: Reproduction) -> list[Plan]:
    again = Reproduction.make(reproduction.path, reproduction.tables, reproduction.source)
    return [sweep.plan for sweep in again.sweeps()]


def _weights(run: RunDirectory) -> list[bytes]:
    model = load_weights(run, run.newest_update())
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model)]


def _resaved(path: Path) -> tuple[str, dict[str, bytes]]:
    """What was loaded, as the header and the arrays that it is saved as; their order in a file is random."""
    again = path.with_suffix(".again")
    rl.save(again, rl.load(path))
    with safetensors.safe_open(again, framework="numpy") as file:
        arrays = {name: file.get_tensor(name).tobytes() for name in file.keys()}  # noqa: SIM118
        return file.metadata()[HEADER], arrays


def _model(path: Path) -> Any:
    data, weights = read_model(path)
    return data, {name: (array.shape, array.tobytes()) for name, array in weights.items()}


def _statistics(path: Path) -> Any:
    found = read_normalization(path)
    return found and (found.mean.tobytes(), found.variance.tobytes(), found.clip, found.epsilon)


def configured(path: Path) -> Run:
    """A configuration as `train` sees it: with its identity, and what `sweep --dry-run` says of it."""
    run = default_run("smoke", path, None, None)
    _ = run.id, run.to_toml(), estimate(run)
    return run
