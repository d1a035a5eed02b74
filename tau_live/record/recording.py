"""Recordings: events appended one a line, and read back even from a damaged file."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tau_live.core import fault
from tau_live.core.errors import EventError
from tau_live.core.events import Event, decode, encode
from tau_live.core.files import make_folders, mode_of, narrow
from tau_live.core.guard import logger

LINE_LIMIT = 4 * 2**20
_CHUNK = 65_536
_BEGINNING = b'{"event":"'
"""The beginning of every line that is written here."""


class Line(NamedTuple):
    """A line of a stream.

    Attributes:
        number: Counted from 1.
        data: Its bytes, without the newline; empty if it is ``too_long``.
        too_long: Whether it was skipped because of its length.
        whole: Whether a newline ended it; only a stream's last line may have none.
    """

    number: int
    data: bytes
    too_long: bool = False
    whole: bool = True


class BadLine(NamedTuple):
    """A line that is not an event.

    Attributes:
        number: Counted from 1.
        reason: Why it is not.
    """

    number: int
    reason: str


class Recorder:
    """Appends events to a file, one a line; safe to use from several processes on one file.

    A new file is readable by its owner alone, as is a folder made for it; one that others could use
    is made private. A symbolic link, another user's file and one that does not begin with an event
    are refused, and left unchanged. A file that does not end in a newline, because its writer was
    killed, gets one first.

    Attributes:
        skipped: How many events could not be written as JSON.
    """

    def __init__(self, path: Path) -> None:
        make_folders(path.parent)
        mode_of(path)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self.skipped = 0
        try:
            if not self._holds_events():
                raise PermissionError(f"'{path}' holds something else than events")
            done = narrow(path)
            self._torn = self._ends_torn()
        except OSError:
            self.close()
            raise
        if done is not None:
            logger().warning("file_narrowed", what=done)

    def append(self, events: Iterable[Event]) -> int:
        """Append the events in one write; return how many there were.

        Raises:
            OSError: The disk is full, or failing; the next append begins on a new line.
        """
        lines: list[bytes] = []
        for event in events:
            try:
                lines.append(encode(event))
            except EventError:
                self.skipped += 1
        if lines:
            rest = memoryview(b"\n" * self._torn + b"\n".join([*lines, b""]))
            self._torn = True
            fault.point("recording.append")
            while rest:
                rest = rest[os.write(self._file, rest) :]
            self._torn = False
            fault.point("recording.appended")
        return len(lines)

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _holds_events(self) -> bool:
        """Return whether the file begins like a recording, is empty, or is not a regular file."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            return True
        beginning = os.pread(self._file, _CHUNK, 0)
        *whole, last = beginning.split(b"\n")
        if any(isinstance(_event(Line(1, line)), Event) for line in whole):
            return True
        # A single line that is long, or was cut off.
        return not beginning.strip() or (not whole and last.startswith(_BEGINNING[: len(last)]))

    def _ends_torn(self) -> bool:
        size = os.fstat(self._file).st_size
        return size > 0 and os.pread(self._file, 1, size - 1) != b"\n"


def lines(stream: BinaryIO, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield each line of a stream as soon as it is complete.

    A line of more than ``limit`` bytes is never held in memory; it is yielded as ``too_long``.
    """
    number = 0
    while data := stream.readline(limit + 1):
        number += 1
        whole = data.endswith(b"\n")
        if len(data) <= limit or whole:
            yield Line(number, data[:-1] if whole else data, whole=whole)
            continue
        while data and not data.endswith(b"\n"):
            data = stream.readline(_CHUNK)
        yield Line(number, b"", too_long=True, whole=bool(data))


def read(stream: BinaryIO, *, limit: int = LINE_LIMIT) -> Iterator[Event | BadLine]:
    """Yield the events of a recording, and its bad lines.

    Reading goes on after a bad line; blank lines are skipped.
    """
    for line in lines(stream, limit=limit):
        if line.too_long:
            yield BadLine(line.number, f"longer than {limit} bytes")
        elif line.data.strip():
            yield _event(line)


def _event(line: Line) -> Event | BadLine:
    try:
        return decode(line.data)
    except EventError as error:
        torn = "" if line.whole else "cut off: "
        return BadLine(line.number, f"{torn}{error}")
