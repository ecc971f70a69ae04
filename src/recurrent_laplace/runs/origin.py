"""Origin of a run's task, for tasks that were loaded by a reference: the version of its source file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recurrent_laplace.files import DamagedError, StorageError, read_json, write_json
from recurrent_laplace.runs.directory import RunDirectory
from recurrent_laplace.tasks.references import Origin, origin_of, origin_of_reference

FILE = "task.json"
"""File of a run directory with the reference of its task, and the SHA-256 of its source."""


def store_origin(directory: RunDirectory) -> None:
    """Store the origin of a run's task, if it was loaded by a reference and none is stored yet."""
    origin, file = origin_of(type(directory.run.config.task)), directory.path / FILE
    if origin is not None and not file.exists():
        write_json(file, origin._asdict())


def check_origin(directory: RunDirectory) -> None:
    """Raise `StorageError` if a run was trained with another version of its task than the loaded one."""
    if (difference := changed_task(directory)) is not None:
        raise StorageError(
            f"{difference}: restore that version to continue the run, or start a new one in another folder "
            "(--out)."
        )


def changed_task(directory: RunDirectory) -> str | None:
    """Sentence, without its full stop, about a task that is not the version that a run was trained with."""
    origin = origin_of(type(directory.run.config.task))
    return None if origin is None else _difference(directory.path, origin)


def changed_tasks(folder: Path) -> Iterator[str]:
    """Sentences of `changed_task` for all runs below a folder whose tasks are loaded."""
    for file in sorted(folder.rglob(FILE)):
        origin = origin_of_reference(_read(file)["reference"])
        if origin is not None and (difference := _difference(file.parent, origin)) is not None:
            yield difference


def _difference(path: Path, origin: Origin) -> str | None:
    if not (path / FILE).exists():
        return None
    stored = _read(path / FILE)
    if stored["digest"] == origin.digest:
        return None
    return (
        f"{path} was trained with another version of the task {origin.reference}: {origin.file} has SHA-256 "
        f"{origin.digest[:12]}, and had {stored['digest'][:12]}"
    )


def _read(file: Path) -> dict[str, Any]:
    stored = read_json(file)
    for name in ("reference", "digest"):
        if not isinstance(stored.get(name), str):
            raise DamagedError(f"{file} is damaged: it has no text {name!r}.")
    return stored
