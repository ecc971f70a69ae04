"""Reader of untrusted zip archives, with bounds on memory that are checked before unpacking."""

import contextlib
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

LIMIT = 512 * 1024**2
"""Maximum size in bytes of a pickle, or of all members of an archive."""

ALLOWANCE, RATIO = 8 * 1024**2, 4
"""Maximum unpacked size: `ALLOWANCE` bytes, plus `RATIO` bytes per byte of the archive."""

LONGEST_READ = 1024**2
"""Maximum size in bytes of an archive's directory; its entries take fifteen times as much memory."""


def open_file(path: str | Path) -> IO[bytes]:
    """Open a regular file; refuse pipes, which may block, and devices, which may have no end."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} must be a file; got {'a directory' if path.is_dir() else 'a device'}.")
    return path.open("rb")


class Archive:
    """Members of a zip archive in memory, after checks of their names, sizes and compression.

    **Arguments:**

    - `file`: the archive.
    - `source`: its name in messages.
    - `stored`: whether members must be uncompressed, so that together they are no larger than the archive.
      Otherwise they may be deflated, up to `ALLOWANCE` plus `RATIO` times the size of the archive.
    """

    def __init__(self, file: IO[bytes], source: str, *, stored: bool = False):
        self._source = source
        self._methods = {zipfile.ZIP_STORED} if stored else {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
        size = file.seek(0, io.SEEK_END)
        with _one_sentence(f"{source} is damaged or no zip file"):
            self._archive = zipfile.ZipFile(_ShortReads(file))
        self.names = self._archive.namelist()
        for name in self.names:
            parts = PurePosixPath(name.replace("\\", "/")).parts
            if ".." in parts or parts[:1] == ("/",):
                raise ValueError(f"{source} has a member {name!r} that points out of it.")
        total = sum(info.file_size for info in self._archive.infolist())
        most = size if stored else min(LIMIT, ALLOWANCE + RATIO * size)
        if total > most:
            raise ValueError(
                f"{source} would unpack to {total / 1e6:.1f} MB; "
                f"at most {most / 1e6:.1f} MB is read from a file of its size."
            )

    def read(self, name: str) -> bytes:
        """Content of a member, never longer than the directory says."""
        info = self._archive.getinfo(name)
        # Other methods unpack a chunk as a whole, however long it gets.
        if info.compress_type not in self._methods:
            raise ValueError(f"{self._source} has a member {name!r} that is compressed in an unexpected way.")
        content = io.BytesIO()
        with _one_sentence(f"{self._source} is damaged"), self._archive.open(info) as member:
            shutil.copyfileobj(member, content, 2**16)
        return content.getvalue()


class _ShortReads:
    """File that refuses long reads, such as `zipfile` makes of the directory of an archive."""

    def __init__(self, file: IO[bytes]):
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size > LONGEST_READ:
            raise zipfile.BadZipFile(f"its directory has {size} bytes, more than {LONGEST_READ}")
        return self._file.read(LONGEST_READ if size < 0 else size)


@contextlib.contextmanager
def _one_sentence(start: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Damaged bytes lead to almost any exception of zipfile, zlib and struct.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{start}: {reason.rstrip('.')}.") from None
