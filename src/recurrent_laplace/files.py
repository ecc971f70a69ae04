"""Files that are there whole, or not at all."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


class StorageError(Exception):
    """A run directory that cannot be read, written, or taken; the message is for the user."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` when all went well."""
    temporary = unfinished(path)
    try:
        yield temporary
        _sync(temporary)
        os.replace(temporary, path)
    except OSError as problem:
        raise StorageError(f"cannot write {path}: {problem.strerror or problem}.") from problem
    finally:
        temporary.unlink(missing_ok=True)


def unfinished(path: Path) -> Path:
    """What a file is called until all of it is there."""
    return path.with_name(f".{path.name}.writing")


def write_text(path: Path, text: str) -> None:
    """Write a text file, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def read_text(path: Path) -> str:
    """Read a text file, or say in one sentence why not."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise StorageError(
            f"cannot read {path}: {getattr(problem, 'strerror', None) or problem}."
        ) from problem


SUMS = "SHA256SUMS"


def seal(folder: Path) -> None:
    """Write the checksum of every file in `folder` beside them, as `sha256sum` would."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{_sum(path)}  {path.relative_to(folder)}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def check_seal(folder: Path) -> None:
    """Refuse a folder with a file that is missing or has changed since it was sealed."""
    sums = read_text(folder / SUMS)
    listed = {line.partition("  ")[2] for line in sums.splitlines()}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in (SUMS, *listed):
            raise StorageError(f"{folder} is damaged: {name} is not in {SUMS}.")
    for line in sums.splitlines():
        expected, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file():
            raise StorageError(f"{folder} is damaged: {name} is missing.")
        if _sum(path) != expected:
            raise StorageError(f"{folder} is damaged: {name} is not what was written.")


def remove(folder: Path) -> None:
    """Remove a folder so that it is never seen half removed."""
    doomed = folder.with_name(f".{folder.name}.removing")
    shutil.rmtree(doomed, ignore_errors=True)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    for pattern in (".*.writing", ".*.removing"):
        for path in folder.glob(pattern):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
