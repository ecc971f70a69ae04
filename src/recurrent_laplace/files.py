"""Atomic, durable and checksummed files."""

import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

TEXT_LIMIT = 16 * 1024**2
"""Maximum size of a text file in bytes."""
SUMS = "SHA256SUMS"
"""Name of the file with the checksums of a folder."""
DIGEST = "sha256"
"""Key of the checksum in text and JSON files."""


class StorageError(Exception):
    """A file or directory cannot be read, written or locked; the message is for the user."""


class DamagedError(StorageError):
    """The content of a file or directory differs from what was written."""


@contextlib.contextmanager
def storage_errors(verb: Literal["read", "write"], path: Path) -> Iterator[None]:
    """Context manager: raises a `StorageError` that names `path` in place of an error of the system."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise StorageError(f"cannot {verb} {path}: {reason}.") from problem


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Context manager for an atomic write: yields a temporary path, which replaces `path` on success."""
    check_replaceable(path)
    temporary = temporary_path(path)
    try:
        with storage_errors("write", path):
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def check_replaceable(path: Path) -> None:
    """Raise `StorageError` for devices, pipes and sockets: a rename would replace /dev/null by a file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StorageError(f"cannot write {path}: it is not a regular file.")


def temporary_path(path: Path) -> Path:
    """Unique temporary name for `path` in the same folder; it identifies the writing process."""
    return path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.writing")


def is_temporary(path: Path) -> bool:
    """Whether `path` is a temporary name made by `temporary_path`."""
    return path.name.startswith(".") and path.name.endswith(".writing")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text)


def read_text(path: Path) -> str:
    """Read a text file of at most `TEXT_LIMIT` bytes."""
    with storage_errors("read", path):
        with path.open("rb") as file:
            raw = file.read(TEXT_LIMIT + 1)
        if len(raw) > TEXT_LIMIT:
            raise StorageError(f"cannot read {path}: it has more than {TEXT_LIMIT // 1024**2} MiB.")
        return raw.decode()


def write_sealed(path: Path, text: str) -> None:
    """Write a TOML file atomically, with the checksum of `text` as a comment in its first line."""
    write_text(path, f"# {DIGEST} {_digest(text)}\n{text}")


def read_sealed(path: Path) -> str:
    """Read a file of `write_sealed` and verify its checksum; files of version 0.1 have none."""
    text = read_text(path)
    first, _, rest = text.partition("\n")
    if not _has_digest(first):
        return text
    if first != f"# {DIGEST} {_digest(rest)}":
        raise DamagedError(f"{path} was changed after it was written: its checksum differs.")
    return rest


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object atomically, with a checksum of its other members."""
    write_text(path, json.dumps({DIGEST: _digest(_canonical(value)), **value}, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a file of `write_json` and verify its checksum; files of version 0.1 have none."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path} is damaged: it is not valid JSON ({problem}).") from problem
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged: it holds a {type(value).__name__} instead of an object.")
    digest = value.pop(DIGEST, None)
    if _has_digest(text) and digest != _digest(_canonical(value)):
        raise DamagedError(f"{path} was changed after it was written: its checksum differs.")
    return value


def seal(folder: Path) -> None:
    """Write the checksums of all files in `folder` to a file there, in the format of `sha256sum`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{_file_digest(path)}  {path.relative_to(folder)}\n" for path in files]
    (folder / SUMS).write_text("".join(lines))


def check_seal(folder: Path) -> None:
    """Raise `DamagedError` if a file of a sealed folder is missing, was added or has changed."""
    try:
        sums = read_text(folder / SUMS)
    except StorageError as problem:
        raise DamagedError(f"{folder} is damaged: {problem}") from problem
    listed = {line.partition("  ")[2] for line in sums.splitlines()}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in (SUMS, *listed):
            raise DamagedError(f"{folder} is damaged: {name} is not in {SUMS}.")
    for line in sums.splitlines():
        expected, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{folder} is damaged: {name} is missing.")
        with storage_errors("read", path):
            digest = _file_digest(path)
        if digest != expected:
            raise DamagedError(f"{folder} is damaged: {name} differs from what was written.")


def remove(folder: Path) -> None:
    """Remove a folder atomically, by renaming it first."""
    doomed = folder.with_name(f".{folder.name}.removing")
    shutil.rmtree(doomed, ignore_errors=True)
    os.replace(folder, doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_temporary(folder: Path) -> None:
    """Delete temporary files left behind by killed processes."""
    for path in [*folder.glob(".*.writing"), *folder.glob(".*.removing")]:
        if _is_being_written(path):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Flush a folder and everything below it to disk."""
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def is_alive(process: int) -> bool:
    """Whether a process with this id exists on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # The process exists and belongs to another user.
        pass
    return True


def _is_being_written(path: Path) -> bool:
    """Whether a temporary file belongs to another running process of this machine."""
    match = re.fullmatch(r".*\.(.*)-(\d+)-[0-9a-f]{8}\.writing", path.name)
    if match is None or match[1] != _host():
        return False
    return int(match[2]) != os.getpid() and is_alive(int(match[2]))


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", platform.node())[:64]


def _has_digest(text: str) -> bool:
    """Whether a text contains a checksum, possibly a corrupted one."""
    return DIGEST in text or re.search(r"[0-9a-f]{64}", text) is not None


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
