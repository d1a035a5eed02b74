"""Files of a store that cannot be used or belong to no store any more: renamed, never deleted."""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Event

from tau_live.errors import StoreBusyError
from tau_live.guard import logger

BESIDE = ("-wal", "-shm", "-journal")
"""What the files end in that SQLite keeps beside its own."""

ALL = ("", *BESIDE)
RETRY_S = 0.02


def beside(path: Path, end: str) -> Path:
    """Return where SQLite keeps something beside a file."""
    return path.with_name(f"{path.name}{end}")


def set_aside(path: Path, ends: Sequence[str] = ALL) -> list[Path]:
    """Rename a store's files, so that they still belong together; return their new names.

    They become ``store.sqlite.aside-20260131T235959Z``, with ``-wal`` and ``-shm`` behind it, so
    that SQLite's own tools read them as one.

    Args:
        path: The store's file.
        ends: Which of them; what is not there is left out.

    Raises:
        OSError: One of them cannot be renamed.
    """
    there = [end for end in ends if os.path.lexists(beside(path, end))]
    if not there:
        return []
    name = _free_name(path)
    for end in there:
        beside(path, end).rename(beside(name, end))
    renamed = [beside(name, end) for end in there]
    logger().warning("files_set_aside", store=str(path), files=[file.name for file in renamed])
    return renamed


def _free_name(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in count(1):
        more = f"-{number}" if number > 1 else ""
        name = path.with_name(f"{path.name}.aside-{stamp}{more}")
        if not any(os.path.lexists(beside(name, end)) for end in ALL):
            return name
    raise AssertionError("there is always one more number")


@contextmanager
def alone_in(folder: Path, *, timeout_s: float) -> Iterator[None]:
    """Keep other processes from making or setting aside a store in a folder meanwhile.

    Raises:
        StoreBusyError: Another process has been at it for too long.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + timeout_s
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise StoreBusyError(f"another process keeps '{folder}' locked")
            Event().wait(RETRY_S)
        yield
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        return True
    return True
