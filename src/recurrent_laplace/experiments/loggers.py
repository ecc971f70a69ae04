"""Optional loggers: the numbers of a run, sent where people already look."""

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

PROJECT = "recurrent-laplace"


class AbstractLogger(abc.ABC):
    """Takes the numbers of one update after another.

    A logger may be closed and a new one opened on the same folder, to go on from an earlier update: what
    then becomes of the updates that were logged twice is said by each class.
    """

    @abc.abstractmethod
    def log(self, update: int, values: Mapping[str, float]) -> None:
        """Log what update `update` gave; `update` never falls. NaN stands for no value and is left out.

        Keys may have parts, like `return/seed0`: they are shown as one group.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Write what is not written yet; nothing can be logged after. A second call does nothing."""


class TensorBoardLogger(AbstractLogger):
    """Event files in `folder/tensorboard`, for `tensorboard --logdir`; without TensorFlow or torch.

    Each logger writes a file of its own, and each call is on disk when it returns. A file begins with the
    mark of a restart at the first update that is logged to it. TensorBoard drops what earlier files say
    of that update and of later ones, so that each update is drawn once, as it was logged last. The files
    themselves keep both, which matters to other readers.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        self._config = config
        self._events = importlib.import_module("tensorboard.compat.proto.event_pb2")
        records = importlib.import_module("tensorboard.summary.writer.record_writer")
        folder = folder / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads files in the order of their names, and a restart may be within a second.
        earlier = sum(1 for _ in folder.glob("*.tfevents.*"))
        name = f"events.out.tfevents.{int(time.time()):010}.{socket.gethostname()}.{earlier:06}.{os.getpid()}"
        self._records = records.RecordWriter((folder / name).open("xb"))
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
        self._records.close()

    def _config_text(self) -> dict[str, Any]:
        # What `tf.summary.text` makes; indented, Markdown shows it as it is.
        lines = json.dumps(self._config, indent=2, default=str).splitlines()
        text = "\n".join("    " + line for line in lines)
        return {
            "tag": "config",
            "metadata": {"plugin_data": {"plugin_name": "text"}},
            "tensor": {"dtype": "DT_STRING", "tensor_shape": {}, "string_val": [text.encode()]},
        }

    def _write(self, **fields: Any) -> None:
        event = self._events.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
        self._records.flush()


class WandbLogger(AbstractLogger):
    """A Weights & Biases run, with its local files in `folder/wandb`.

    `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_RUN_ID` and the other variables mean what they mean to wandb. The
    run's id is kept in `folder/wandb/id.txt`, so that a logger opened later on the same folder goes on
    with the same run. Online, an update that the run already has is not logged again: the first one stays.
    Offline, each logger makes an `offline-run-<time>-<id>` folder that repeats such updates; what
    `wandb sync` makes of several with one id is up to its version.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any]):
        wandb = importlib.import_module("wandb")
        kept = folder / "wandb" / "id.txt"
        identity = os.environ.get("WANDB_RUN_ID") or (kept.read_text().strip() if kept.is_file() else "")
        identity = identity or secrets.token_hex(4)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(identity + "\n")
        try:
            self._run = wandb.init(
                dir=folder,
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                config=dict(config),
                id=identity,
                resume="allow",
                # It would record every frame of the live display.
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
        # wandb would refuse it too, with a warning each time.
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
"""By the name of the logger, of its package, and of the extra that installs it."""


def open_loggers(names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> list[AbstractLogger]:
    """Open the loggers of a run; all of them, or none and a `ValueError` of one sentence.

    - `names`: from `LOGGERS`;
    - `folder`: the run directory, in which each makes a folder of its own;
    - `config`: what the run was asked to do, shown beside its numbers.

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
    """Those that have a value, as plain floats."""
    return {name: float(value) for name, value in values.items() if not math.isnan(value)}


def _is_installed(package: str) -> bool:
    spec = importlib.util.find_spec(package)
    # Without an origin it is only a folder of that name: `wandb` makes one wherever it runs.
    return spec is not None and spec.origin is not None


def _sentence(problem: Exception) -> str:
    return " ".join(str(problem).split()).rstrip(".")
