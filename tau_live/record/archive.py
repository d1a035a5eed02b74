"""Archives: what was forgotten, as the lines of an export, kept in a file of its own.

A file is only ever added to, and flushed to the disk before what it holds is deleted. So whatever
stands behind the last whole line (or, compressed, the last whole member) was deleted nowhere: the
next archive begins there.

A step deletes, gives pages back, or empties the log; its size follows from how long the last one
took. What has to be kept is passed over and looked at again on the next walk, so that a million
rollouts that nobody learns from cost no more than a thousand.
"""

import fcntl
import gzip
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tau_live.core.errors import ArchiveError
from tau_live.core.settings import Settings
from tau_live.record.recording import lines
from tau_live.store.retention import OLDEST, Kept, Limits, Place, Rows, Size, Swept
from tau_live.store.roles import Retention

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

    def _lock(self) -> None:
        status = os.fstat(self._file)
        if not stat.S_ISREG(status.st_mode):
            raise ArchiveError(f"'{self.path}' is no file that could hold an archive")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another process appends to archive '{self.path}'") from None
        if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
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
    """Return whether a file begins as an archive does; it may be torn in its first line."""
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
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
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


LOOKED_AT = 200
"""So many of the oldest are looked at to tell what keeps them."""

DAY_S = 86_400.0
MB = 1e6

PACE_S, SHARE = 0.01, 9.0
"""Between two steps while there is something to forget: at least, and as a multiple of one."""

AS_LONG = 2.0
"""So many times as long as writing took may be taken to forget, where there is that much."""

REST_S = 0.5
"""Between two steps while there is nothing."""

LOG_S = 30.0
"""Between two times at which the log is emptied, which waits for the disk."""

LONG_S, SHORT_S = 0.004, 0.002
"""A step that took longer is followed by one half as large; a shorter one by a larger.

Of the processor: how long a busy machine lets it wait says nothing of how large it is.
"""

LEAST, MOST = 4, 256
"""Rollouts that one step may forget."""

LOOKING = 16
"""So many where nothing was forgotten."""

LOOKED_AT_FOR_EACH = 8
"""A look costs so much less than forgetting."""

FREE_BYTES_KEPT, FREE_SHARE_KEPT = 1_000_000, 8
"""A free page is written to again soon; only more than these, and than that part, go back."""


def limits_of(settings: Settings) -> Limits:
    """Return how much settings let a store keep."""
    days, mb = settings.retention_days, settings.retention_mb
    return Limits(
        age_s=None if days is None else days * DAY_S,
        rollouts=settings.retention_rollouts,
        used_bytes=None if mb is None else mb * MB,
    )


class Excess(NamedTuple):
    """How a store stands to its limits.

    Attributes:
        over: What is beyond its limit: ``days``, ``rollouts``, ``mb``.
        kept: What keeps it so, of the oldest rollouts that have ended.
    """

    over: list[str]
    kept: Kept

    def __str__(self) -> str:
        """Return it in words for an operator; empty if nothing is beyond its limit."""
        if not self.over:
            return ""
        reasons = {
            "not learned from yet": self.kept.unlearned,
            "waiting for a reward": self.kept.waiting,
            "not counted by a trial yet": self.kept.uncounted,
            "open again": self.kept.open,
            "about to be deleted": self.kept.forgettable,
        }
        counted = [f"{count:,} {reason}" for reason, count in reasons.items() if count]
        oldest = f"of the {self.kept.looked_at:,} oldest {', '.join(counted)}"
        return f"beyond {', '.join(self.over)}: {oldest if counted else 'all rollouts are open'}"


def excess(retention: Retention, limits: Limits, *, now: float, look: int = LOOKED_AT) -> Excess:
    """Return what of a store is beyond its limits, and what keeps it."""
    size = retention.size()
    kept = retention.obstacles(before=limits.ended_before(size, now=now), look=look)
    aged = (
        limits.age_s is not None
        and retention.obstacles(before=now - limits.age_s, look=1).looked_at
    )
    beyond = {
        "days": aged,
        "rollouts": limits.rollouts is not None and size.rollouts > limits.rollouts,
        "mb": limits.used_bytes is not None and size.used_bytes > limits.used_bytes,
    }
    return Excess([name for name, is_over in beyond.items() if is_over], kept)


class Forgetting:
    """Forgets what is beyond the limits of a store, step by step.

    Args:
        limits: Limits of retention.
        monotonic: Seconds, for the pauses between steps.
        processor: Seconds of the thread's own, for how long steps take.

    Attributes:
        forgotten: How many rollouts went.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._processor = processor
        self._next = float("-inf")
        self._rollouts: Place = OLDEST
        self._rewards: Place | None = None
        self._until = OLDEST.at
        self._at_once = LEAST
        self._pages = LEAST
        self._can_give_back = True  # a copy that was made without incremental vacuum cannot
        self._uncut = False
        self._emptied = float("-inf")
        self.forgotten = 0

    def steps(self, retention: Retention, *, now: float, written_s: float) -> None:
        """Do a little if it is time to, and more while much is written.

        A rollout is forgotten in about the time in which it was written: who never rests would
        outrun single steps.

        Args:
            retention: Of the store, in the thread that it belongs to.
            now: Epoch seconds, UTC.
            written_s: What was written since the last call took of the processor.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        until = self._processor() + AS_LONG * written_s
        while self.step(retention, now=now) and self._processor() < until:
            self._next = self._monotonic()

    def step(self, retention: Retention, *, now: float) -> bool:
        """Do a little, if it is time to; return whether something was forgotten or given back.

        Args:
            retention: Of the store, in the thread that it belongs to.
            now: Epoch seconds, UTC.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        if not self._limits or self._monotonic() < self._next:
            return False
        self._next = self._monotonic() + REST_S
        began = self._processor()
        size = retention.size()
        busy = self._forget(retention, size, now=now) or self._tidy(retention, size)
        took = self._processor() - began
        if busy:
            self._next = self._monotonic() + max(PACE_S, SHARE * took)
        return busy

    def _forget(self, retention: Retention, size: Size, *, now: float) -> bool:
        began = self._processor()
        at_once = self._at_once
        if self._rewards is not None:
            swept = retention.sweep_rewards(
                before=self._until,
                limit=at_once,
                look=at_once * LOOKED_AT_FOR_EACH,
                after=self._rewards,
            )
            self._rewards = swept.place
        else:
            swept = self._forget_rollouts(retention, size, at_once, now=now)
        if swept.gone in (0, at_once) or self._processor() - began > LONG_S:
            self._at_once = _next(at_once, self._processor() - began)
        if not swept.gone:  # it only looked, which says little of how long forgetting takes
            self._at_once = min(self._at_once, LOOKING)
        self._uncut = self._uncut or swept.gone > 0
        return swept.gone > 0

    def _forget_rollouts(
        self, retention: Retention, size: Size, at_once: int, *, now: float
    ) -> Swept:
        age_s, over = self._limits.age_s, self._limits.over(size)
        aged = OLDEST.at if age_s is None else now - age_s
        swept = retention.sweep(
            before=self._limits.ended_before(size, now=now),
            limit=min(at_once, over or at_once),
            look=at_once * LOOKED_AT_FOR_EACH,
            after=self._rollouts,
        )
        self.forgotten += swept.gone
        self._until = max(self._until, aged, OLDEST.at if swept.until is None else swept.until)
        self._rollouts = swept.place or OLDEST
        if swept.place is None:  # a walk is over; now what came for rollouts that never did
            self._rewards = OLDEST
        return swept

    def _tidy(self, retention: Retention, size: Size) -> bool:
        """Give pages back beyond those that will be written to again; then empty the log."""
        kept = max((size.used_bytes + size.free_bytes) / FREE_SHARE_KEPT, FREE_BYTES_KEPT)
        if self._can_give_back and size.free_bytes > kept:
            began = self._processor()
            retention.give_back(self._pages)
            self._pages = _next(self._pages, self._processor() - began)
            self._can_give_back = retention.size().free_bytes < size.free_bytes
            self._uncut = True
            return self._can_give_back
        if self._uncut and self._monotonic() >= self._emptied + LOG_S:
            self._uncut = not retention.empty_log()
            self._emptied = self._emptied if self._uncut else self._monotonic()
        return False


def _next(at_once: int, took_s: float) -> int:
    """Return how much the next step does, after how long this one took."""
    if took_s > LONG_S:
        return max(LEAST, at_once // 2)
    return min(MOST, at_once * 2) if took_s < SHORT_S else at_once
