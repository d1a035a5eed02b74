"""Files of a store that cannot be used or belong to no store any more: renamed, never deleted."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from itertools import count
from pathlib import Path
from threading import Event

from tau_live.errors import StoreBusyError
from tau_live.guard import logger

BESIDE = ("-wal", "-shm", "-journal")
"""What the files end in that SQLite keeps beside its own."""

ALL = ("", *BESIDE)
MARK = ".aside-"
RETRY_S = 0.02


def beside(path: Path, end: str) -> Path:
    """Return where SQLite keeps something beside a file."""
    return path.with_name(f"{path.name}{end}")


def policies_of(path: Path) -> Path:
    """Return where the policies of a store are: a folder beside it."""
    return path.with_name(f"{path.stem}-policies")


def set_leftovers_aside(path: Path) -> list[Path]:
    """Rename what a store has left that is not there any more, so that no other mistakes it.

    SQLite would take the log for the new file's, and new versions would replace the old policies.
    Those stay where another store may have the same name but for its ending.
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
    """Rename a store's files, so that they still belong together; return their new names.

    They become ``store.sqlite.aside-20260131T235959Z``, with ``-wal`` and ``-shm`` behind it, so
    that SQLite's own tools read them as one.

    Args:
        path: The store's file.
        ends: Which of them; what is not there is left out.
        folder: Where its policies are, to be renamed alike.
        quiet: Whether whoever calls says so, and not the log.

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
    """Return what to put behind the name of a store, and before any ending, to set it aside."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in count(1):
        mark = f"{MARK}{stamp}{f'.{number}' if number > 1 else ''}"
        if not any(mark in file.name for file in path.absolute().parent.iterdir()):
            return mark
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
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks
        return True
    return True
