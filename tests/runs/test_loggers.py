"""What loggers write is read back with the tools that will read it."""

import importlib.machinery
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from support.disks import limited_file_size
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recurrent_laplace.files import StorageError
from recurrent_laplace.runs.loggers import open_loggers


def log(folder, updates, scale=1.0, config=None):
    (logger,) = open_loggers(["tensorboard"], folder, config or {})
    for update in updates:
        logger.log(update, {"return": scale * update, "return/seed0": scale * update - 0.5})
    logger.close()
    logger.close()


def read(folder):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return events


def scalars(folder, tag="return"):
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


def test_tensorboard_values_and_steps(tmp_path):
    log(tmp_path, range(0, 30, 10))
    assert set(read(tmp_path).Tags()["scalars"]) == {"return", "return/seed0"}
    assert scalars(tmp_path) == [(0, 0.0), (10, 10.0), (20, 20.0)]
    assert scalars(tmp_path, "return/seed0") == [(0, -0.5), (10, 9.5), (20, 19.5)]


def test_tensorboard_is_on_disk_before_it_is_closed(tmp_path):
    (logger,) = open_loggers(["tensorboard"], tmp_path, {})
    logger.log(3, {"loss": 0.25})
    assert scalars(tmp_path, "loss") == [(3, 0.25)]
    logger.close()


def test_tensorboard_has_the_configuration(tmp_path):
    log(tmp_path, [0], config={"task": {"name": "bandit", "arms": 2}, "folder": Path("runs")})
    (event,) = read(tmp_path).Tensors("config")
    text = event.tensor_proto.string_val[0].decode()
    assert '"arms": 2' in text
    assert '"folder": "runs"' in text


def test_tensorboard_leaves_out_what_has_no_value(tmp_path):
    (logger,) = open_loggers(["tensorboard"], tmp_path, {})
    logger.log(0, {"loss": 1.0, "kl": float("nan")})
    logger.log(1, {"loss": 2.0, "kl": 0.5})
    logger.close()
    assert scalars(tmp_path, "kl") == [(1, 0.5)]


def test_tensorboard_draws_an_update_once_after_a_restart(tmp_path):
    log(tmp_path, range(6))
    log(tmp_path, range(4, 8), scale=10.0)
    assert scalars(tmp_path) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 40), (5, 50), (6, 60), (7, 70)]


def test_tensorboard_goes_on_after_a_torn_record(tmp_path):
    log(tmp_path, range(4))
    (torn,) = (tmp_path / "tensorboard").iterdir()
    torn.write_bytes(torn.read_bytes()[:-5])
    log(tmp_path, range(3, 6))
    assert scalars(tmp_path) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]


def test_tensorboard_names_the_file_that_cannot_be_written(tmp_path):
    (logger,) = open_loggers(["tensorboard"], tmp_path, {})
    message = r"cannot write .*tensorboard/events\.out.*: File too large\."
    with limited_file_size(1000), pytest.raises(StorageError, match=message):
        logger.log(0, {"x" * 1000: 1.0})
    logger.close()


def test_tensorboard_imports_neither_tensorflow_nor_jax(tmp_path):
    script = (
        "import pathlib, sys; from recurrent_laplace.runs.loggers import open_loggers\n"
        f"(logger,) = open_loggers(['tensorboard'], pathlib.Path({str(tmp_path)!r}), {{}})\n"
        "logger.log(0, {'loss': 1.0}); logger.close()\n"
        "sys.exit(any(name in sys.modules for name in ('tensorflow', 'torch', 'jax')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=120)
    assert done.returncode == 0


def test_no_names_no_loggers(tmp_path):
    assert open_loggers([], tmp_path, {}) == []
    assert list(tmp_path.iterdir()) == []


def test_unknown_name_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"'wandb' \(did you mean 'wandb'\?\); got 'wand'\.$",
    ):
        open_loggers(["tensorboard", "wand"], tmp_path, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_missing_package_names_the_extra(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    sentence = rf"^logger '{name}' needs a package .*: pip install 'recurrent-laplace\[{name}\]'\.$"
    with pytest.raises(ValueError, match=sentence):
        open_loggers([name], tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_that_name_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ValueError, match="pip install"):
        open_loggers(["wandb"], tmp_path, {})


class FakeRun:
    def __init__(self, starting_step):
        self.starting_step = starting_step
        self.logged = []
        self.finished = 0

    def log(self, values, step):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    """Stands in for the package, so that nothing is sent."""
    module: Any = types.ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None, origin="fake")
    module.errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
    module.Settings = lambda **settings: settings
    module.asked, module.runs, module.starting_step = [], [], 0

    def init(**asked):
        module.asked.append(asked)
        module.runs.append(FakeRun(module.starting_step))
        return module.runs[-1]

    module.init = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    for name in ("WANDB_RUN_ID", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    return module


def test_wandb_goes_on_with_the_same_run(wandb, tmp_path):
    (first,) = open_loggers(["wandb"], tmp_path, {"seed": 0})
    first.log(0, {"return": 1.0, "kl": float("nan")})
    first.close()
    first.close()
    wandb.starting_step = 3
    (second,) = open_loggers(["wandb"], tmp_path, {"seed": 0})
    for update in range(1, 5):
        second.log(update, {"return": 2.0})
    assert wandb.asked[0] == wandb.asked[1]
    assert wandb.asked[0]["resume"] == "allow"
    assert wandb.asked[0]["project"] == "recurrent-laplace"
    assert wandb.asked[0]["config"] == {"seed": 0}
    assert "mode" not in wandb.asked[0]
    assert wandb.runs[0].logged == [(0, {"return": 1.0})]
    assert wandb.runs[0].finished == 1
    assert [step for step, _ in wandb.runs[1].logged] == [3, 4]


def test_wandb_heeds_the_environment(wandb, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_RUN_ID", "mine")
    monkeypatch.setenv("WANDB_PROJECT", "thesis")
    open_loggers(["wandb"], tmp_path, {})
    assert wandb.asked[0]["id"] == "mine"
    assert wandb.asked[0]["project"] == "thesis"


def test_wandb_that_does_not_start_is_one_sentence_and_closes_the_others(wandb, tmp_path, monkeypatch):
    def init(**_):
        raise wandb.errors.Error("No API key configured.\nUse `wandb login`.")

    closed = []
    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(
        "recurrent_laplace.runs.loggers.TensorBoardLogger.close", lambda self: closed.append(self)
    )
    with pytest.raises(
        ValueError, match=r"No API key configured\. Use `wandb login`\): .*WANDB_MODE=offline"
    ):
        open_loggers(["tensorboard", "wandb"], tmp_path, {})
    (logger,) = closed
    logger._records.close()


@pytest.mark.interop
@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_wandb_itself(mode, tmp_path):
    """In a child process: wandb leaves a server behind that lives as long as its parent."""
    script = (
        "import pathlib; from recurrent_laplace.runs.loggers import open_loggers\n"
        "for first in (0, 2):\n"
        f"    (logger,) = open_loggers(['wandb'], pathlib.Path({str(tmp_path)!r}), {{'task': 'bandit'}})\n"
        "    for update in range(first, first + 4):\n"
        "        logger.log(update, {'return': update + 0.125, 'return/seed0': 17.625})\n"
        "    logger.close()\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment = {**kept, "WANDB_MODE": mode, "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if mode == "offline":
        identity = (tmp_path / "wandb" / "id.txt").read_text().strip()
        first, second = sorted((tmp_path / "wandb").glob(f"offline-run-*-{identity}*/*.wandb"))
        for written, values in ((first, (b"0.125", b"3.125")), (second, (b"2.125", b"5.125"))):
            for value in (*values, b"return/seed0", b"17.625", b"bandit"):
                assert value in written.read_bytes()
