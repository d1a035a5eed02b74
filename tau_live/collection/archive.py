"""Archives: what was forgotten, as the lines of an export, kept in a file of its own.

A file is only ever added to, and flushed to the disk before what it holds is deleted. So whatever
stands behind the last whole line (or, compressed, the last whole member) was deleted nowhere: the
next archive begins there.
"""

import fcntl
import gzip
import json
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import msgspec

from tau_live.collection.recording import lines
from tau_live.errors import ArchiveError
from tau_live.store.keeping import Rows

COMPRESSED = ".gz"
BEGINNING = b'{"table": "'
"""Of every line."""

LINE_LIMIT = 1 << 30
_CHUNK = 1 << 20
_GZIP = 31
"""Of zlib: a header and a checksum around the data."""


class Archive:
    """Appends rows to an archive, for its owner's eyes alone; one process at a time.

    Args:
        path: The file; one that ends in ``.gz`` is compressed.

    Attributes:
        rows: How many were appended.

    Raises:
        ArchiveError: It is something else, or another process appends to it.
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._compressed = _is_compressed(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR)
        try:
            self._lock()
            self._end = self._whole()
            os.ftruncate(self._file, self._end)
            _flush_folder(path.absolute().parent)
        except BaseException:
            self.close()
            raise

    def append(self, rows: Rows) -> None:
        """Append rows, and return when they are on the disk.

        Raises:
            OSError: They could not be written; nothing of them is kept.
        """
        data = b"".join(json.dumps(row, allow_nan=False).encode() + b"\n" for row in rows)
        rest = memoryview(
            gzip.compress(data, compresslevel=6, mtime=0) if self._compressed else data
        )
        end = self._end + len(rest)
        try:
            os.lseek(self._file, self._end, os.SEEK_SET)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
            raise
        self._end = end
        self.rows += len(rows)

    def close(self) -> None:
        """Close the file; closing again is nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> "Archive":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _lock(self) -> None:
        found = os.fstat(self._file)
        if not stat.S_ISREG(found.st_mode):
            raise ArchiveError(f"'{self.path}' is no file that could hold an archive")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another process appends to archive '{self.path}'") from None
        if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            os.fchmod(self._file, stat.S_IRUSR | stat.S_IWUSR)

    def _whole(self) -> int:
        """Return how many bytes are whole, after a look at whether it is an archive at all."""
        if not os.fstat(self._file).st_size:
            return 0
        with open(self._file, "rb", closefd=False) as file:
            if _is_ours(file, compressed=self._compressed):
                return _members(file) if self._compressed else _lines(file)
        raise ArchiveError(f"'{self.path}' is not an archive: name a new file, or one of ours")


def read_archive(path: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of an archive or of an export.

    Raises:
        ArchiveError: It cannot be read to its end.
    """
    try:
        with path.open("rb") as raw:
            file = BufferedReader(gzip.GzipFile(fileobj=raw)) if _is_compressed(path) else raw
            for line in lines(file, limit=LINE_LIMIT):
                yield _row(line.data, f"line {line.number} of '{path}'")
    except (OSError, EOFError, zlib.error) as error:
        raise ArchiveError(f"cannot read archive '{path}': {error}") from error


def _is_compressed(path: Path) -> bool:
    return path.suffix == COMPRESSED


def _row(data: bytes, where: str) -> dict[str, object]:
    try:
        row = msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{where} is no row of an export: {error}") from error
    if not isinstance(row.get("table"), str):
        raise ArchiveError(f"{where} is no row of an export: it names no table")
    return row


def _is_ours(file: BinaryIO, *, compressed: bool) -> bool:
    """Say whether a file begins as an archive does; it may be torn in its first line."""
    begins = file.read(_CHUNK)
    file.seek(0)
    if compressed:
        try:
            begins = zlib.decompressobj(_GZIP).decompress(begins, len(BEGINNING))
        except zlib.error:
            return False
    return begins.startswith(BEGINNING) or BEGINNING.startswith(begins)


def _lines(file: BinaryIO) -> int:
    """Return where the last whole line ends."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _CHUNK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _members(file: BinaryIO) -> int:
    """Return where the last whole member of a compressed file ends."""
    end = place = 0
    member = zlib.decompressobj(_GZIP)
    data = b""
    while data or (data := file.read(_CHUNK)):
        try:
            member.decompress(data)
        except zlib.error:
            break
        place += len(data) - len(member.unused_data)
        data = member.unused_data
        if member.eof:
            end, member = place, zlib.decompressobj(_GZIP)
    return end


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
