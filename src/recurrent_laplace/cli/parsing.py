"""Argument parsing with defaults that depend on other arguments."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import tyro

from recurrent_laplace.cli import fail, fail_at_once
from recurrent_laplace.cli.early import peek
from recurrent_laplace.cli.posteriors import extended
from recurrent_laplace.cli.streams import INTERRUPTED, quick_interrupts
from recurrent_laplace.errors import check_choice
from recurrent_laplace.files import StorageError
from recurrent_laplace.machine.compilation import keep_compiled_programs
from recurrent_laplace.machine.processes import LostProcessError
from recurrent_laplace.models.config import CELLS
from recurrent_laplace.models.posterior_config import posterior_class
from recurrent_laplace.runs.config import (
    Run,
    check_keys,
    check_schema,
)
from recurrent_laplace.runs.presets import load_preset
from recurrent_laplace.runs.runner import InterruptedRunError, TrainingFailedError
from recurrent_laplace.runs.toml import Tables, merge, read_toml
from recurrent_laplace.tasks import AbstractTask, check_task

EXHAUSTED = "RESOURCE_EXHAUSTED"
"""First word of XLA's errors of allocation."""
STOPPED = "stopped immediately: work since the last checkpoint is lost."


def parse(options: type, argv: list[str], *, verb: str, default: Any) -> Any:
    """Parse arguments into a dataclass of options."""
    names = {field.name for field in dataclasses.fields(options)}
    # The parser would list the known names, and not suggest the nearest.
    early = peek(argv, "cell", "posterior")
    if "agent" in names and early.cell is not None:
        check_choice("cell", early.cell, tuple(CELLS))
    if "posterior" in names and early.posterior is not None:
        posterior_class(early.posterior)
    return tyro.cli(options, prog=f"recurrent-laplace {verb}", args=argv, default=default)


def with_task(options: type, task: type[AbstractTask]) -> type:
    """Extend `options` by the parameters of a task as flags, such as `--task.size`."""
    about = inspect.getdoc(task) or ""
    group = Annotated[task, tyro.conf.arg(name="task", help=about.partition("\n\n")[0])]
    return extended(options, "parameters", group)


def default_run(preset: str, file: Path | None, task: str | None, posterior: str | None) -> Run:
    """The default run, before flags: the preset for the task and posterior, overridden by the file.

    The `config.toml` of a run is complete: it ignores the preset and gives the same run.
    """
    own: Tables = {} if file is None else read_toml(file)
    complete = "schema" in own
    if file is not None and complete:
        check_schema(own.pop("schema"), file)
    try:
        if "parent" in own or "calibration" in own:
            raise ValueError(
                "a run that starts from the weights of another is made by `recurrent-laplace finetune` or "
                "`recurrent-laplace posthoc`; remove [parent] and [calibration] to train from the beginning."
            )
        seeds = {name: own.pop(name) for name in ("seed", "seeds") if name in own}
        run = Run.of(_layered(None if complete else preset, own, task, posterior), **seeds)
        run.check()
    except ValueError as problem:
        raise ValueError(f"{file}: {problem}" if file is not None else str(problem)) from problem
    return run


def _layered(preset: str | None, own: Tables, task: str | None, posterior: str | None) -> Tables:
    check_keys(own)
    chosen = own.get("task", {}).get("name", "gridworld")
    if task is not None and task != chosen:
        own["task"], chosen = {"name": task}, task
    check_task(chosen)
    kind = posterior or own.get("posterior", {}).get("kind", "point")
    posterior_class(kind)
    base = {} if preset is None else load_preset(preset, chosen, kind)
    return merge({"task": {"name": chosen}}, base, own)


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Context of a command: enables the compilation cache, and turns errors into messages and exit codes."""
    try:
        with quick_interrupts(STOPPED):
            keep_compiled_programs()
            yield
    except (ValueError, StorageError) as problem:
        fail(problem)
    except TrainingFailedError as problem:
        fail(problem, code=1)
    except InterruptedRunError as problem:
        fail(problem, code=INTERRUPTED)
    except LostProcessError as problem:
        fail_at_once(problem, code=1)
    except (MemoryError, jax.errors.JaxRuntimeError) as problem:
        # Requirements of memory are lower bounds: what is a little larger fails when it is allocated.
        if not isinstance(problem, MemoryError) and not str(problem).startswith(EXHAUSTED):
            raise
        reason = str(problem).removeprefix(f"{EXHAUSTED}: ").partition("\n")[0].rstrip(".")
        fail(f"there is too little memory{reason and f' ({reason})'}: take smaller sizes.", code=1)
    except OSError as problem:
        if problem.filename is None:  # About a standard stream.
            raise
        fail(f"{problem.filename}: {problem.strerror}.")
    except KeyboardInterrupt:
        fail(STOPPED, code=INTERRUPTED)
