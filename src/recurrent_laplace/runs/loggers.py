"""Optional loggers of a run's metrics: TensorBoard and Weights & Biases."""

import abc
import importlib
import importlib.util
import json
import math
import os
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recurrent_laplace.errors import check_choice
from recurrent_laplace.files import read_text, storage_errors, write_text

PROJECT = "recurrent-laplace"


class AbstractLogger(abc.ABC):
    """Interface of a logger, which receives the metrics of one update after another.

    A logger may be closed and a new one opened on the same folder, to continue from an earlier update; each
    class documents what becomes of updates that were logged twice.
    """

    @abc.abstractmethod
    def log(self, update: int, values: Mapping[str, float]) -> None:
        """Log the metrics of an update; `update` never decreases. NaN means no value and is left out.

        Keys with a common prefix, such as `return/seed0`, form a group.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Flush and close the logger. A second call does nothing."""


class TensorBoardLogger(AbstractLogger):
    """Event files in `folder/tensorboard`, for `tensorboard --logdir`; without TensorFlow or torch.

    Each logger writes a file of its own, and each call is on disk when it returns. A file starts with a
    restart mark at its first update, from which on TensorBoard ignores earlier files. So each update is
    plotted once, as it was logged last; other readers of the files see both.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self._config = config
        self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
        records = importlib.import_module("tensorboard.summary.writer.record_writer")
        folder = folder / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names, and two starts may be within one second.
        earlier = sum(1 for _ in folder.glob("*.tfevents.*"))
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{earlier:06}.{os.getpid()}"
        self._file = folder / name
        self._records = records.RecordWriter(self._file.open("xb"))
        self._started = False
        self._write(file_version="brain.Event:2")

    def log(self, update: int, values: Mapping[str, float]) -> None:
        if not self._started:
            self._started = True
            self._write(step=update, session_log={"status": self._events.SessionLog.START})
            self._write(step=update, summary={"value": [self._config_text()]})
        scalars = [{"tag": name, "simple_value": value} for name, value in present(values).items()]
        self._write(step=update, summary={"value": scalars})

    def close(self) -> None:
        with storage_errors("write", self._file):
            self._records.close()

    def _config_text(self) -> dict[str, Any]:
        # The format of `tf.summary.text`; Markdown shows indented text verbatim.
        lines = json.dumps(self._config, indent=2, default=str).splitlines()
        text = "\n".join("    " + line for line in lines)
        return {
            "tag": "config",
            "metadata": {"plugin_data": {"plugin_name": "text"}},
            "tensor": {"dtype": "DT_STRING", "tensor_shape": {}, "string_val": [text.encode()]},
        }

    def _write(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        with storage_errors("write", self._file):
            self._records.write(event.SerializeToString())
            self._records.flush()


class WandbLogger(AbstractLogger):
    """A Weights & Biases run, with its local files in `folder/wandb`.

    `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_RUN_ID` and the other variables have their usual meaning. The run's
    id is stored in `folder/wandb/id.txt`, so that a logger opened later on the same folder continues the same
    run. Online, an update that the run already has is not logged again. Offline, each logger writes a folder
    `offline-run-<time>-<id>` that repeats such updates; how `wandb sync` merges them depends on its version.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        wandb = importlib.import_module("wandb")
        id_file = folder / "wandb" / "id.txt"
        stored = read_text(id_file).strip() if id_file.is_file() else ""
        identity = os.environ.get("WANDB_RUN_ID") or stored or secrets.token_hex(4)
        id_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(id_file, identity + "\n")
        try:
            self._run = wandb.init(
                dir=folder,
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                config=dict(config),
                id=identity,
                resume="allow",
                # Otherwise wandb records every frame of the live display.
                settings=wandb.Settings(console="off"),
            )
        except wandb.errors.Error as problem:
            raise ValueError(
                f"wandb does not start ({_sentence(problem)}): log in with `wandb login`, or set "
                "WANDB_MODE=offline to keep the run on this machine."
            ) from problem
        self._first = self._run.starting_step
        self._closed = False

    def log(self, update: int, values: Mapping[str, float]) -> None:
        # wandb would reject repeated updates with a warning each time.
        if update >= self._first:
            self._run.log(present(values), step=update)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._run.finish()


LOGGERS: Mapping[str, type[TensorBoardLogger] | type[WandbLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
}
"""Loggers by name, which is also the name of the package and of the extra that installs it."""


def open_loggers(names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> list[AbstractLogger]:
    """Open the loggers of a run; raise `ValueError` and open none if one of them cannot be opened.

    - `names`: keys of `LOGGERS`;
    - `folder`: run directory, in which each logger creates a folder of its own;
    - `config`: configuration of the run, shown next to its metrics.

    ```python
    for logger in open_loggers(["tensorboard"], Path("runs/bandit"), {"seed": 0}):
        logger.log(0, {"return": 17.5, "return/seed0": 17.1})
        logger.close()
    ```
    """
    names = list(dict.fromkeys(names))
    for name in names:
        check_choice("logger", name, tuple(LOGGERS))
        if not _is_installed(name):
            raise ValueError(
                f"logger {name!r} needs a package that is not installed: "
                f"pip install 'recurrent-laplace[{name}]'."
            )
    loggers: list[AbstractLogger] = []
    try:
        for name in names:
            loggers.append(LOGGERS[name](folder, config))
    except BaseException:
        for logger in loggers:
            logger.close()
        raise
    return loggers


def present(values: Mapping[str, float]) -> dict[str, float]:
    """Values that are not NaN, as plain floats."""
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # Without an origin it is only a folder of that name, such as `wandb` creates wherever it runs.
    return spec is not None and spec.origin is not None


def _sentence(problem: Exception) -> str:
    return " ".join(str(problem).split()).rstrip(".")
