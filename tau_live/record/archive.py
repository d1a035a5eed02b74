"""Archives of deleted rows, and retention in small steps.

An archive holds lines of an export. It is only ever appended to, and flushed to the disk before its
rows are deleted. So anything after the last whole line (or, compressed, the last whole member) was
not deleted: the next archive continues there.

A step deletes rows, gives pages back, or empties the log; its size follows from the duration of the
last one. Rollouts that have to be kept are skipped until the next walk, so that a million rollouts
that nobody learns from cost no more than a thousand.
"""

import fcntl
import gzip
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from tau_live.core.addresses import address_in
from tau_live.core.errors import ArchiveError
from tau_live.core.settings import Settings
from tau_live.record.recording import lines
from tau_live.store.retention import OLDEST, ExportRow, Kept, Limits, Place, Rows, Size, Swept
from tau_live.store.roles import Retention

COMPRESSED = ".gz"
BEGINNING = b'{"table": "'
"""The beginning of every line."""

LINE_LIMIT = 1 << 30
_CHUNK = 1 << 20
_GZIP = 31
"""The ``wbits`` of zlib for a gzip header and checksum."""


class Archive:
    """Appends rows to an archive, readable by its owner alone; one process at a time.

    Args:
        path: The file; one that ends in ``.gz`` is compressed.

    Attributes:
        rows: How many rows were appended.

    Raises:
        ArchiveError: The file is not an archive, or another process appends to it.
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
            self._end = self._whole_end()
            os.ftruncate(self._file, self._end)
            _flush_folder(path.absolute().parent)
        except BaseException:
            self.close()
            raise

    def append(self, rows: Rows) -> None:
        """Append rows, and return when they are on the disk.

        Raises:
            OSError: They could not be written; none of them is kept.
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

    def clear(self) -> None:
        """Remove all rows, which are kept elsewhere by now. Raises: OSError."""
        os.ftruncate(self._file, 0)
        os.fsync(self._file)
        self._end = 0

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
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

    def _whole_end(self) -> int:
        """Check that the file is an archive; return the end of its last whole line or member."""
        if not os.fstat(self._file).st_size:
            return 0
        with open(self._file, "rb", closefd=False) as file:
            if _is_ours(file, compressed=self._compressed):
                return _members_end(file) if self._compressed else _lines_end(file)
        raise ArchiveError(f"'{self.path}' is not an archive: name a new file, or one of ours")


def read_archive(path: Path) -> Iterator[ExportRow]:
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


def _row(data: bytes, where: str) -> ExportRow:
    try:
        row = msgspec.json.decode(data, type=dict[str, object])
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"{where} is no row of an export: {error}") from error
    if not isinstance(row.get("table"), str):
        raise ArchiveError(f"{where} is no row of an export: it names no table")
    return row


def _is_ours(file: BinaryIO, *, compressed: bool) -> bool:
    """Return whether a file begins like an archive; its first line may be cut off."""
    beginning = file.read(_CHUNK)
    file.seek(0)
    if compressed:
        try:
            beginning = zlib.decompressobj(_GZIP).decompress(beginning, len(BEGINNING))
        except zlib.error:
            return False
    return beginning.startswith(BEGINNING) or BEGINNING.startswith(beginning)


def _lines_end(file: BinaryIO) -> int:
    """Return the offset at which the last whole line ends."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _CHUNK)
        file.seek(begin)
        newline = file.read(end - begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _members_end(file: BinaryIO) -> int:
    """Return the offset at which the last whole member of a compressed file ends."""
    end = offset = 0
    member = zlib.decompressobj(_GZIP)
    data = b""
    while data or (data := file.read(_CHUNK)):
        try:
            member.decompress(data)
        except zlib.error:
            break
        offset += len(data) - len(member.unused_data)
        data = member.unused_data
        if member.eof:
            end, member = offset, zlib.decompressobj(_GZIP)
    return end


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


OBSTACLES_LIMIT = 200
"""How many of the oldest rollouts are looked at to find out why they are kept."""

DAY_S = 86_400.0
MB = 1e6

PACE_S, SHARE = 0.01, 9.0
"""Pause between two steps while there is work: the minimum, and the multiple of the last step."""

DELETION_FACTOR = 2.0
"""How many times as long as writing took deletion may take, if there is so much to delete."""

REST_S = 0.5
"""Pause between two steps while there is no work."""

LOG_S = 30.0
"""Least time between two emptyings of the log, each of which waits for the disk."""

SLOW_STEP_S, FAST_STEP_S = 0.004, 0.002
"""After a slower step the next is half as large; after a faster one, twice as large.

In processor time: how long a busy machine delays a step says nothing about its size.
"""

STEP_MIN, STEP_MAX = 4, 256
"""The least and the most rollouts that one step may delete."""

IDLE_STEP_MAX = 16
"""The most rollouts of a step after one that deleted nothing."""

LOOKS_PER_DELETION = 8
"""How many rollouts may be looked at for each one that may be deleted."""

FREE_BYTES_KEPT, FREE_SHARE_KEPT = 1_000_000, 8
"""Free pages that are not given back, as they are soon used again: bytes, and part of the file."""


def limits_of(settings: Settings) -> Limits:
    """Return the limits of retention in the settings.

    A database keeps the space of deleted rows for new ones, so bytes limit only a file.
    """
    days = settings.retention_days
    mb = settings.retention_mb if address_in(settings.store) is None else None
    return Limits(
        age_s=None if days is None else days * DAY_S,
        rollouts=settings.retention_rollouts,
        used_bytes=None if mb is None else mb * MB,
    )


class Excess(NamedTuple):
    """The excess of a store over its limits.

    Attributes:
        over: The limits that are exceeded: ``days``, ``rollouts``, ``mb``.
        kept: Why the oldest ended rollouts are kept.
    """

    over: Sequence[str]
    kept: Kept

    def __str__(self) -> str:
        """Return a sentence for operators; empty if no limit is exceeded."""
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


def excess(
    retention: Retention, limits: Limits, *, now: float, look: int = OBSTACLES_LIMIT
) -> Excess:
    """Return the limits that a store exceeds, and why its oldest rollouts are kept."""
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


class Pruner:
    """Deletes rows beyond the limits of a store, step by step.

    Args:
        limits: Limits of retention.
        monotonic: Returns seconds, for the pauses between steps.
        processor: Returns the thread's processor seconds, for the duration of steps.

    Attributes:
        forgotten: How many rollouts were deleted.
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
        self._next_size = float("-inf")
        self._rollouts: Place = OLDEST
        self._rewards: Place | None = None
        self._until = OLDEST.at
        self._step_size = STEP_MIN
        self._pages = STEP_MIN
        self._can_give_back = True  # a copy without incremental vacuum cannot
        self._log_is_full = False
        self._emptied = float("-inf")
        self.forgotten = 0

    def steps(self, retention: Retention, *, now: float, written_s: float) -> None:
        """Do a step if one is due, and more while much is written.

        A rollout is deleted in about the time in which it was written: a host that never pauses
        would outrun single steps.

        Args:
            retention: The store's retention, in the store's thread.
            now: Epoch seconds, UTC.
            written_s: Processor seconds spent on writing since the last call.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        until = self._processor() + DELETION_FACTOR * written_s
        while self.step(retention, now=now) and self._processor() < until:
            self._next_size = self._monotonic()

    def step(self, retention: Retention, *, now: float) -> bool:
        """Do a step if one is due; return whether anything was deleted or given back.

        Args:
            retention: The store's retention, in the store's thread.
            now: Epoch seconds, UTC.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        if not self._limits or self._monotonic() < self._next_size:
            return False
        self._next_size = self._monotonic() + REST_S
        began = self._processor()
        size = retention.size()
        busy = self._forget(retention, size, now=now) or self._tidy(retention, size)
        took = self._processor() - began
        if busy:
            self._next_size = self._monotonic() + max(PACE_S, SHARE * took)
        return busy

    def _forget(self, retention: Retention, size: Size, *, now: float) -> bool:
        began = self._processor()
        at_once = self._step_size
        if self._rewards is not None:
            swept = retention.sweep_rewards(
                before=self._until,
                limit=at_once,
                look=at_once * LOOKS_PER_DELETION,
                after=self._rewards,
            )
            self._rewards = swept.place
        else:
            swept = self._forget_rollouts(retention, size, at_once, now=now)
        if swept.gone in (0, at_once) or self._processor() - began > SLOW_STEP_S:
            self._step_size = _next_size(at_once, self._processor() - began)
        if not swept.gone:  # looking says little about how long deleting takes
            self._step_size = min(self._step_size, IDLE_STEP_MAX)
        self._log_is_full = self._log_is_full or swept.gone > 0
        return swept.gone > 0

    def _forget_rollouts(
        self, retention: Retention, size: Size, at_once: int, *, now: float
    ) -> Swept:
        age_s, over = self._limits.age_s, self._limits.over(size)
        aged = OLDEST.at if age_s is None else now - age_s
        swept = retention.sweep(
            before=self._limits.ended_before(size, now=now),
            limit=min(at_once, over or at_once),
            look=at_once * LOOKS_PER_DELETION,
            after=self._rollouts,
        )
        self.forgotten += swept.gone
        self._until = max(self._until, aged, OLDEST.at if swept.until is None else swept.until)
        self._rollouts = swept.place or OLDEST
        if swept.place is None:  # the walk is over; next, rewards whose rollouts never came
            self._rewards = OLDEST
        return swept

    def _tidy(self, retention: Retention, size: Size) -> bool:
        """Give back free pages that will not soon be used again; then empty the log."""
        kept = max((size.used_bytes + size.free_bytes) / FREE_SHARE_KEPT, FREE_BYTES_KEPT)
        if self._can_give_back and size.free_bytes > kept:
            began = self._processor()
            retention.give_back(self._pages)
            self._pages = _next_size(self._pages, self._processor() - began)
            self._can_give_back = retention.size().free_bytes < size.free_bytes
            self._log_is_full = True
            return self._can_give_back
        if self._log_is_full and self._monotonic() >= self._emptied + LOG_S:
            self._log_is_full = not retention.empty_log()
            self._emptied = self._emptied if self._log_is_full else self._monotonic()
        return False


def _next_size(at_once: int, took_s: float) -> int:
    """Return the size of the next step, given the duration of this one."""
    if took_s > SLOW_STEP_S:
        return max(STEP_MIN, at_once // 2)
    return min(STEP_MAX, at_once * 2) if took_s < FAST_STEP_S else at_once
