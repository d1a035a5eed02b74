"""The files of a store: created for their owner alone, never closed under another's locks.

SQLite ignores all commits behind a damaged frame of its log, and the next writer overwrites them.
So whoever opens a store compares how far SQLite reads the log with how far it was written, and
keeps a copy of a log that is not read to its end.

Source:
    sqlite.org/fileformat2.html, section 4: headers of the log and of its frames.
"""

import os
import shutil
import stat
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from itertools import count
from pathlib import Path
from tempfile import mkstemp
from threading import Event
from typing import BinaryIO, NamedTuple

from tau_live.core import fault
from tau_live.core.errors import StoreBusyError, suppress
from tau_live.core.files import make_folders, mode_of, unfinished_name
from tau_live.core.guard import logger

BESIDE = ("-wal", "-shm", "-journal")
"""The suffixes of the files that SQLite keeps beside its own."""

ALL = ("", *BESIDE)
MARK = ".aside-"
RETRY_S = 0.02


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that SQLite keeps beside its own."""
    return path.with_name(f"{path.name}{suffix}")


def policies_of(path: Path) -> Path:
    """Return the folder of a store's policies, beside it."""
    return path.with_name(f"{path.stem}-policies")


def set_leftovers_aside(path: Path) -> list[Path]:
    """Rename the files left by a removed store, so that a new one does not take them for its own.

    SQLite would take the log for the new file's, and new versions would replace the old policies.
    The policies stay if they may belong to a store of the same name with another suffix.
    """
    others = [
        file
        for file in path.absolute().parent.glob(f"{escape(path.stem)}.*")
        if file.is_file() and file.name not in {beside(path, end).name for end in ALL}
        if f"{path.name}{MARK}" not in file.name
    ]
    return set_aside(path, BESIDE, folder=None if others else policies_of(path))


def set_aside(
    path: Path, ends: Sequence[str] = ALL, *, folder: Path | None = None, quiet: bool = False
) -> list[Path]:
    """Rename a store's files alike, and return their new paths.

    They become ``store.sqlite.aside-20260131T235959Z``, with ``-wal`` and ``-shm`` behind it, so
    that SQLite's own tools read them as one.

    Args:
        path: The store's file.
        ends: The suffixes of the files to rename; missing ones are skipped.
        folder: The folder of its policies, to be renamed alike.
        quiet: Whether not to log it, because the caller reports it.

    Raises:
        OSError: One of them cannot be renamed.
    """
    there = [beside(path, end) for end in ends]
    there = [file for file in [*there, *([folder] if folder else [])] if os.path.lexists(file)]
    if not there:
        return []
    mark = free_mark(path)
    renamed = []
    for file in there:
        end = file.name.removeprefix(path.name) if file.name.startswith(path.name) else None
        stem = file.name if end is None else path.name
        renamed.append(file.rename(file.with_name(f"{stem}{mark}{end or ''}")))
    if not quiet:
        logger().warning("files_set_aside", store=str(path), files=[file.name for file in renamed])
    return renamed


def free_mark(path: Path) -> str:
    """Return an unused mark to put between the name of a store and a suffix, to set it aside."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in count(1):
        mark = f"{MARK}{stamp}{f'.{number}' if number > 1 else ''}"
        if not any(mark in file.name for file in path.absolute().parent.iterdir()):
            return mark
    raise AssertionError("there is always one more number")


@contextmanager
def alone_in(folder: Path, *, timeout_s: float) -> Iterator[None]:
    """Keep other processes from creating or setting aside a store in a folder meanwhile.

    Raises:
        StoreBusyError: Another process has locked it for too long.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + timeout_s
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise StoreBusyError(f"another process keeps '{folder}' locked")
            Event().wait(RETRY_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        return True
    return True


def files_of(path: Path) -> list[Path]:
    """Return a store's file and those that SQLite keeps beside it."""
    return [beside(path, end) for end in ALL]


def is_emptied(path: Path) -> bool:
    """Return whether a store's file is empty, and its log is not."""
    log = beside(path, "-wal")
    return path.is_file() and not path.stat().st_size and log.is_file() and log.stat().st_size > 0


def has_log(path: Path) -> bool:
    """Return whether SQLite keeps a log or a journal beside a store: its file may not be all."""
    file = path.resolve()  # SQLite keeps them beside what a link points to
    return any(os.path.lexists(beside(file, end)) for end in ("-wal", "-journal"))


@contextmanager
def read_locked(path: Path) -> Iterator[None]:
    """Keep every process, this one too, from locking a file exclusively, where the system can.

    Source:
        ``SHARED_FIRST`` and ``SHARED_SIZE`` in SQLite's ``os.h``; fcntl(2), open file description
        locks, which conflict with a process's own POSIX locks.
    """
    try:
        import fcntl

        set_lock = fcntl.F_OFD_SETLK
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, AttributeError, OSError):
        yield
        return
    try:
        with suppress(OSError):  # another process has locked it, so this one has not
            lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0x40000002, 510, 0)
            fcntl.fcntl(descriptor, set_lock, lock)
        yield
    finally:
        os.close(descriptor)


def make_private(path: Path, *, timeout_s: float) -> None:
    """Create the file for its owner alone, from its first byte and whatever the umask.

    It is made under another name and linked: SQLite's locks on a file are lost as soon as this
    process closes any descriptor of it, which must not happen to one already in use. Files left by
    an earlier store of that name are set aside: SQLite would take them for the new one's. Files
    that SQLite made beside a read-only store inherited its mode and keep it: they are made writable
    as soon as the store is.
    """
    make_folders(path.absolute().parent)
    store, *others = [mode_of(file) for file in files_of(path)]
    for file, mode in zip(files_of(path)[1:], others, strict=True):
        if store and mode is not None and store & stat.S_IWUSR and not mode & stat.S_IWUSR:
            file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    if os.path.lexists(path):
        return
    with alone_in(path.absolute().parent, timeout_s=timeout_s):
        if not os.path.lexists(path):
            set_leftovers_aside(path)
            _make_empty(path)


def _make_empty(path: Path) -> None:
    begin, end = unfinished_name(path)
    try:
        descriptor, name = mkstemp(dir=path.absolute().parent, prefix=begin, suffix=end)
    except OSError as error:  # without the temporary name, which differs each time
        raise OSError(error.errno, error.strerror, str(path)) from error
    os.close(descriptor)
    try:
        fault.point("store.made")
        with suppress(FileExistsError):
            os.link(name, path)
        fault.point("store.linked")
    except OSError:  # a file system without hard links
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    finally:
        Path(name).unlink()


_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_SIZES = frozenset(1 << power for power in range(9, 17))


class LogExtent(NamedTuple):
    """How far a log was written since its last restart.

    Attributes:
        commits: The number of its last frame that ends a transaction; 0 if there is none.
        salts: The salts that distinguish its frames from older ones.
    """

    commits: int
    salts: tuple[int, int]


def log_extent(path: Path, *, page_size: int) -> LogExtent | None:
    """Return how far a store's log was written; ``None`` without a log or any commit in it.

    Args:
        path: The store's file.
        page_size: Bytes of the store's pages, for a log whose header is damaged.
    """
    try:
        with beside(path, "-wal").open("rb") as log:
            return _read_log(log, page_size)
    except OSError:
        return None


def keep_if_damaged(path: Path, before: LogExtent | None, *, read: int, page_size: int) -> None:
    """Keep a copy of a log whose last transactions SQLite does not read, and log a warning.

    Args:
        path: The store's file.
        before: How far the log was written before the store was opened.
        read: How many of its frames SQLite reads.
        page_size: Bytes of the store's pages.
    """
    if before is None or read >= before.commits:
        return
    if log_extent(path, page_size=page_size) != before:  # another process goes on with it
        return
    kept = beside(path.with_name(f"{path.name}{free_mark(path)}"), "-wal")
    try:
        shutil.copyfile(beside(path, "-wal"), kept)
        kept.chmod(0o600)
    except OSError as error:
        kept = path
        logger().warning("log_not_kept", store=str(path), error=str(error))
    logger().warning(
        "log_damaged",
        store=str(path),
        pages_lost=before.commits - read,
        kept=kept.name,
        effect="the newest rows are missing; everything before them is intact",
    )


def _read_log(log: BinaryIO, page_size: int) -> LogExtent | None:
    head = log.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return None
    fields = _HEADER.unpack(head)
    salts: tuple[int, int] | None = None
    if _is_whole(head):
        page_size, salts = fields[2], (fields[4], fields[5])
    if page_size not in _SIZES:
        return None
    end = os.fstat(log.fileno()).st_size
    commits = number = 0
    while len(frame := log.read(_FRAME.size)) == _FRAME.size:
        number += 1
        _, size, *own, _, _ = _FRAME.unpack(frame)
        salts = salts or (own[0], own[1])
        if log.seek(page_size, 1) > end:  # cut off by a full disk
            break
        if size and (own[0], own[1]) == salts:
            commits = number
    return LogExtent(commits, salts or (0, 0)) if commits else None


def _is_whole(head: bytes) -> bool:
    """Return whether the checksum of a log's header is right."""
    magic = _HEADER.unpack(head)[0]
    if magic not in _MAGIC:
        return False
    words = struct.unpack(">8I" if magic & 1 else "<8I", head)
    first = second = 0
    for n in range(0, 6, 2):
        first = (first + words[n] + second) & 0xFFFFFFFF
        second = (second + words[n + 1] + first) & 0xFFFFFFFF
    return _HEADER.unpack(head)[6:] == (first, second)
