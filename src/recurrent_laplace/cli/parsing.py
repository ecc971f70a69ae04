"""From arguments to options whose defaults depend on other arguments."""

import argparse
import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import tyro

from recurrent_laplace.cli import fail, fail_at_once
from recurrent_laplace.errors import check_choice
from recurrent_laplace.experiments.compilation import keep_compiled_programs
from recurrent_laplace.experiments.config import Tables, check_keys, config_from, merge, parse_toml
from recurrent_laplace.experiments.presets import load_preset
from recurrent_laplace.experiments.processes import LostProcessError
from recurrent_laplace.experiments.runner import InterruptedRunError, TrainingFailedError
from recurrent_laplace.files import StorageError, read_text
from recurrent_laplace.learning import Config
from recurrent_laplace.tasks import TASKS, AbstractTask


def peek(argv: list[str], *flags: str) -> argparse.Namespace:
    """The values of a few flags, ahead of the real parser, which needs them for its defaults."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in flags:
        parser.add_argument(f"--{flag}")
    try:
        return parser.parse_known_args(argv)[0]
    except argparse.ArgumentError:
        # The real parser will say it better.
        return parser.parse_args([])


def peek_run(argv: list[str]) -> Path | None:
    """The run directory among the arguments, wherever it stands; else the first that is no flag's value."""
    words = [word for word in argv if not word.startswith("-")]
    found = next((word for word in words if (Path(word) / "config.toml").exists()), None)
    if found is None:
        after_flags = dict(itertools.pairwise(["", *argv]))
        found = next((w for before, w in after_flags.items() if w in words and before[:1] != "-"), None)
    return None if found is None else Path(found)


def parse(options: type, argv: list[str], *, verb: str, default: Any) -> Any:
    """Typed options, each a flag with its own help."""
    return tyro.cli(options, prog=f"recurrent-laplace {verb}", args=argv, default=default)


def with_task(options: type, task: type[AbstractTask]) -> type:
    """`options` with the parameters of a task as flags: `--task.size`, say."""
    about = inspect.getdoc(task) or ""
    group = Annotated[task, tyro.conf.arg(name="task", help=about.partition("\n\n")[0])]
    made = dataclasses.make_dataclass(
        options.__name__, [("parameters", group)], bases=(options,), frozen=True, kw_only=True
    )
    made.__doc__ = options.__doc__
    return made


def default_config(preset: str, file: Path | None, task: str | None, posterior: str | None) -> Config:
    """The configuration before any flag: the preset for the task and posterior, then the file.

    The file may be the `config.toml` of a run, which is complete: nothing comes from a preset then, and
    what identifies that run is left aside.
    """
    own: Tables = {}
    if file is not None:
        own = parse_toml(read_text(file), file)
    complete = "schema" in own
    for name in ("schema", "seed", "seeds", "parent", "calibration"):
        own.pop(name, None)
    try:
        return _layered(None if complete else preset, own, task, posterior)
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}" if file is not None else str(problem)) from problem


def _layered(preset: str | None, own: Tables, task: str | None, posterior: str | None) -> Config:
    check_keys(own)
    chosen = own.get("task", {}).get("name", "gridworld")
    if task is not None and task != chosen:
        own["task"], chosen = {"name": task}, task
    check_choice("task", chosen, tuple(TASKS))
    kind = posterior or own.get("posterior", {}).get("kind", "point")
    check_choice("posterior", kind, ("point", "variational", "laplace"))
    base = {} if preset is None else load_preset(preset, chosen, kind)
    config = config_from(merge({"task": {"name": chosen}}, base, own))
    config.check()
    return config


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Compiled programs are kept, and what goes wrong ends in a sentence and an exit code."""
    keep_compiled_programs()
    try:
        yield
    except (ValueError, StorageError) as problem:
        fail(problem)
    except TrainingFailedError as problem:
        fail(problem, code=1)
    except InterruptedRunError as problem:
        fail(problem, code=130)
    except LostProcessError as problem:
        fail_at_once(problem, code=1)
    except OSError as problem:
        fail(f"{problem.filename}: {problem.strerror}.")
    except KeyboardInterrupt:
        fail("stopped at once: what was done since the last checkpoint is lost.", code=130)
