"""References to tasks outside of the package: `module:Class`, installed plugins, `gymnax:EnvName`.

Loading a reference imports code. It is done only for references that the user has written, on the command
line or in a configuration, never for those in the files of a run.
"""

import dataclasses
import difflib
import hashlib
import importlib
import importlib.metadata
import inspect
import re
import shlex
import sys
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from recurrent_laplace.errors import SIMILAR, check_choice, shown
from recurrent_laplace.tasks.base import AbstractTask
from recurrent_laplace.tasks.registry import TASKS, register_task

PLUGINS = "recurrent_laplace.tasks"
"""Entry-point group of installed tasks."""

SCHEMES = {"gymnax": ("recurrent_laplace.interop.gymnax_tasks", "task_class")}
"""Reserved prefixes of references: module and name of the function that makes the class of tasks.

Named, not imported: only `interop` imports other libraries, and it is below this layer.
"""

GYMNASIUM_ID = re.compile(r"(?:[\w.]+:)?(?:[\w.-]+/)?[\w.-]+-v\d+")
"""Identifiers of environments in Gymnasium: `[module:][namespace/]Name-v0`."""

QUOTES = "'\""

TASK_NAME = re.compile(r"\w[\w.-]*")
"""Names that can be part of the name of a run directory."""


class TaskNotLoadedError(ValueError):
    """A configuration names a task by a reference that was not loaded in this process."""

    def __init__(self, reference: Any):
        text = shown(reference)  # Without control characters, which a file from elsewhere may contain.
        super().__init__(f"its task {text} is not loaded: add --task {text.strip(QUOTES)}.")


class Origin(NamedTuple):
    """Where a class of tasks came from."""

    reference: str
    """Reference that the class was loaded by."""
    file: str
    """Source file of its module."""
    digest: str
    """SHA-256 of the file when it was loaded."""


_LOADED: dict[str, type[AbstractTask]] = {}
"""Classes by the references that they were loaded by."""
_ORIGINS: dict[type[AbstractTask], Origin] = {}
"""Origins of these classes."""


def load_task(reference: str, *, folder: Path | None = None) -> str:
    """Load the class of tasks that a reference names, register it, and return its name.

    **Arguments:**

    - `reference`: a registered name, `package.module:Class`, the name of an installed plugin, or
      `gymnax:EnvName`.
    - `folder`: folder to find modules in that are not installed, the current one by default; it is put at the
      end of the import path.
    """
    if reference in TASKS:
        return reference
    if reference not in _LOADED:
        kind = _find(reference, Path.cwd() if folder is None else folder)
        _check(kind, reference)
        register_task(kind)
        _LOADED[reference] = kind
        _ORIGINS[kind] = Origin(reference, *_source(kind))
    return _LOADED[reference].name


def load_named(tables: Any, *, folder: Path | None = None) -> tuple[str, ...]:
    """Load the references in the tables `task` of a configuration or a sweep; return them."""
    installed = plugins()
    references = [text for text in _named(tables) if ":" in text or (text in installed and text not in TASKS)]
    for reference in references:
        load_task(reference, folder=folder)
    return tuple(references)


def registered_name(reference: Any) -> Any:
    """Name of the task that a reference was loaded as; any other value is returned as it is."""
    if isinstance(reference, str) and reference in _LOADED:
        return _LOADED[reference].name
    return reference


def task_class(table: dict[str, Any]) -> type[AbstractTask]:
    """Class of the task that a table `[task]` names, by `name`, `reference` or both."""
    reference = table.get("reference")
    if reference is not None and not isinstance(reference, str):
        raise ValueError(
            f"reference of [task] must be a text such as 'module:Class'; got {shown(reference)}."
        )
    name = registered_name(table.get("name", reference or "gridworld"))
    if isinstance(name, str) and name not in TASKS and (reference or ":" in name):
        reference = reference or name
        if reference not in _LOADED:
            raise TaskNotLoadedError(reference)
    if reference in _LOADED and _LOADED[reference].name != name:
        raise ValueError(f"{reference} has the name {_LOADED[reference].name!r}, and [task] has {name!r}.")
    check_choice("task", name, tuple(TASKS))
    return TASKS[name]


def origin_of(kind: type[AbstractTask]) -> Origin | None:
    """Origin of a class of tasks; None if it was registered by other code, such as this package."""
    return _ORIGINS.get(kind)


def origin_of_reference(reference: str) -> Origin | None:
    """Origin of the class that a reference was loaded as; None if it was not loaded."""
    return origin_of(_LOADED[reference]) if reference in _LOADED else None


def task_flag(task: AbstractTask) -> str:
    """Flag that loads a task again, for commands in messages; empty if none is needed."""
    origin = origin_of(type(task))
    return "" if origin is None else f" --task {shlex.quote(origin.reference)}"


def class_at(reference: str, folder: Path) -> Any:
    """Import `package.module` of `package.module:Class`, and return the attribute `Class`."""
    module_name, _, name = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise ValueError(f"a task is named package.module:Class; got {shown(reference)}.")
    module = _import(module_name, folder)
    if not hasattr(module, name):
        classes = [text for text, value in vars(module).items() if isinstance(value, type)]
        close = difflib.get_close_matches(name, classes, n=1, cutoff=SIMILAR)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"module {module_name!r} ({_file_of(module)}) has no class {name!r}{hint}.")
    return getattr(module, name)


def one_line(problem: BaseException) -> str:
    """Type, first line and place of an error of foreign code."""
    text = (str(problem).strip().splitlines() or [""])[0].rstrip(".")
    words = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    frames = traceback.extract_tb(problem.__traceback__)
    # The message of a SyntaxError has the place.
    if not frames or isinstance(problem, SyntaxError):
        return words
    installed = (sys.prefix, sys.base_prefix, "<")
    frames = [frame for frame in frames if not frame.filename.startswith(installed)] or frames
    return f"{words} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _find(reference: str, folder: Path) -> Any:
    scheme, colon, rest = reference.partition(":")
    if colon and scheme in SCHEMES:
        module, function = SCHEMES[scheme]
        return getattr(importlib.import_module(module), function)(rest, folder)
    installed = plugins()
    if reference in installed:
        return _load_plugin(installed[reference])
    if scheme == "gymnasium" or GYMNASIUM_ID.fullmatch(reference):
        name = rest if scheme == "gymnasium" else reference
        raise ValueError(
            f"{reference!r} is an environment of Gymnasium, which JAX cannot compile: train an agent in it "
            "by Stable-Baselines3, and bring the agent here by recurrent-laplace monitor --sb3 AGENT.zip "
            f"--env {name}; environments written in JAX are named gymnax:NAME."
        )
    if not colon:
        check_choice("task", reference, (*TASKS, *installed))
    return class_at(reference, folder)


def _load_plugin(plugin: importlib.metadata.EntryPoint) -> Any:
    try:
        return plugin.load()
    except Exception as problem:  # The code of a plugin can raise anything.
        raise ValueError(f"the plugin {plugin.name!r} cannot be imported: {one_line(problem)}.") from problem


def _import(name: str, folder: Path) -> Any:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    # The code of a user can raise anything when it is imported, or end by sys.exit.
    except (Exception, SystemExit) as problem:
        missing = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if missing is not None and f"{name}.".startswith(f"{missing}."):
            raise ValueError(
                f"there is no module {missing!r}, neither installed nor in {folder}."
            ) from problem
        raise ValueError(f"module {name!r} cannot be imported: {one_line(problem)}.") from problem


def _check(kind: Any, reference: str) -> None:
    """Refuse what is not a complete class of tasks."""
    if not (isinstance(kind, type) and issubclass(kind, AbstractTask)):
        raise ValueError(
            f"{reference} is not a task: tasks are classes derived from rl.AbstractControlTask or "
            f"rl.AbstractRegressionTask; got {shown(kind)}."
        )
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        raise ValueError(f"task {reference} lacks {', '.join(missing)}, which every such task defines.")
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not TASK_NAME.fullmatch(name):
        raise ValueError(
            f"the name of task {reference} must consist of letters, digits, '.', '_' and '-', as part of the "
            f"names of run directories; got {shown(name)}."
        )
    if "__dataclass_fields__" in vars(kind):
        for field in dataclasses.fields(kind):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ValueError(f"parameter {field.name!r} of task {reference} needs a default.")


def _source(kind: type) -> tuple[str, str]:
    """Source file of the module of a class, and its SHA-256."""
    file = Path(inspect.getfile(sys.modules[kind.__module__]))
    return str(file), hashlib.sha256(file.read_bytes()).hexdigest()


def _file_of(module: Any) -> str:
    return getattr(module, "__file__", None) or "built in"


def plugins() -> dict[str, importlib.metadata.EntryPoint]:
    """Entry points of installed tasks, by name; nothing is imported."""
    return {point.name: point for point in importlib.metadata.entry_points(group=PLUGINS)}


def _named(tables: Any) -> list[str]:
    """Texts that name a task: values of `name` and `reference` in tables called `task`, at any depth."""
    found: list[str] = []
    if isinstance(tables, list):
        for entry in tables:
            found += _named(entry)
    elif isinstance(tables, dict):
        for key, value in tables.items():
            if key == "task" and isinstance(value, dict):
                for entry in (value.get("name"), value.get("reference")):
                    texts = entry if isinstance(entry, list) else [entry]
                    found += [text for text in texts if isinstance(text, str)]
            else:
                found += _named(value)
    return list(dict.fromkeys(found))
