"""Holds in memory alone, shown to other processes by file locks, which need no room on a disk.

A process that cannot write its store cannot record there that it holds. It locks one byte of an
empty file beside the store instead; the byte's offset encodes who holds, why, and since when. The
kernel releases the lock when the process ends, however it ends.
"""

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tau_live.core.addresses import shared_name
from tau_live.core.errors import suppress
from tau_live.core.files import give_to_owner_of_folder
from tau_live.core.gate import HoldReason

SUFFIX = ".held"
"""Behind the store's name; the file stays empty, and its existence means nothing."""

_PID_BITS, _SINCE_BITS = 22, 34
_END = 1 << 62
_REASONS: tuple[str | None, ...] = (
    "another reason",
    HoldReason.STORE_UNAVAILABLE,
    HoldReason.STORE_REPLACED,
    HoldReason.COLLECTION_FAILURES,
    HoldReason.UPDATE_FAILURES,
    HoldReason.DECISION_FAILURES,
    HoldReason.OPERATOR,
)
"""The index of a reason is its code: only ever add to the end."""

_LAYOUTS = {"linux": ("hhqqi4x", (0, 1, 2, 3)), "darwin": ("qqihh", (3, 4, 0, 1))}
"""The layout of ``struct flock``, and the indices of type, whence, start and length in it."""


class MemoryHold(msgspec.Struct, frozen=True):
    """A hold of a process that the store does not record.

    Attributes:
        pid: The process's own pid.
        reason: The code of the reason.
        since: Epoch seconds, UTC.
    """

    pid: int
    reason: str
    since: float


class MemoryHoldSign:
    """Shows other processes that this one holds; for one thread.

    Args:
        store: The store's file.
    """

    def __init__(self, store: Path) -> None:
        self._path = store.with_name(shared_name(store.name) + SUFFIX)
        self._file: tuple[int, tuple[int, int]] | None = None
        self._offset: int | None = None

    def prepare(self) -> None:
        """Create the file while there is room for it; never raises."""
        with suppress(OSError):
            if not os.path.lexists(self._path):
                flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(self._path, flags, 0o600))
                give_to_owner_of_folder(self._path)

    def show(self, held: tuple[str | None, float] | None) -> None:
        """Show the reason and time of this process's hold, or none; never raises.

        Call it repeatedly while the hold lasts: the lock is lost when this process closes any
        descriptor of the file, as ``memory_holds`` does.
        """
        if held is None and self._file is None:
            return
        with suppress(OSError, ImportError, AttributeError, OverflowError, ValueError):
            import fcntl

            offset = None if held is None else _offset_of(held[0], held[1])
            if offset != self._offset:
                self._close()
            if offset is None:
                return
            descriptor = self._open()
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, offset)
            self._offset = offset

    def _open(self) -> int:
        """Return the descriptor, reopened if the host has closed it or reused its number."""
        if self._file is not None and _is_open(*self._file):
            return self._file[0]
        self.prepare()
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._path, flags)
        self._file = descriptor, _identity(descriptor)
        return descriptor

    def _close(self) -> None:
        file, self._file, self._offset = self._file, None, None
        if file is not None and _is_open(*file):
            os.close(file[0])


def memory_holds(store: Path) -> list[MemoryHold]:
    """Return the holds of other processes that the store does not record, the oldest first."""
    try:
        import fcntl  # noqa: F401  # without it no process can hold in this way

        path = store.with_name(shared_name(store.name) + SUFFIX)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except (ImportError, OSError):
        return []
    try:
        offsets = list(_locked_bytes(descriptor, 0, _END))
    except OSError:  # a file system without locks
        return []
    finally:
        os.close(descriptor)
    return sorted(map(_hold_at, offsets), key=lambda hold: (hold.since, hold.pid))


def _locked_bytes(descriptor: int, begin: int, end: int) -> Iterator[int]:
    """Yield the locked bytes of a range: the kernel names any one, so both sides are searched."""
    import fcntl

    if begin >= end:
        return
    layout, (type_, whence, start, length) = _LAYOUTS.get(sys.platform, _LAYOUTS["linux"])
    fields = [0] * 5
    fields[type_], fields[start], fields[length] = fcntl.F_WRLCK, begin, end - begin
    fields[whence] = os.SEEK_SET
    lock = struct.unpack(
        layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *fields))
    )
    if lock[type_] != fcntl.F_UNLCK:
        offset = max(begin, lock[start])
        yield from _locked_bytes(descriptor, begin, offset)
        yield offset
        yield from _locked_bytes(descriptor, offset + max(1, lock[length]), end)


def _offset_of(reason: str | None, since: float) -> int:
    code = _REASONS.index(reason) if reason in _REASONS else 0
    pid = os.getpid() % (1 << _PID_BITS)
    return (
        (code << (_SINCE_BITS + _PID_BITS)) | (int(since) % (1 << _SINCE_BITS) << _PID_BITS) | pid
    )


def _hold_at(offset: int) -> MemoryHold:
    code, since = offset >> (_SINCE_BITS + _PID_BITS), (offset >> _PID_BITS) % (1 << _SINCE_BITS)
    reason = _REASONS[code] if code < len(_REASONS) else _REASONS[0]
    return MemoryHold(offset % (1 << _PID_BITS), str(reason), float(since))


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _is_open(descriptor: int, identity: tuple[int, int]) -> bool:
    try:
        return _identity(descriptor) == identity
    except OSError:
        return False
