"""What a process lost that ended while its store could not be written, left for the next one.

The number is the size of a sparse file beside the store, because that needs no room on a disk.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tau_live.machine.private_files import give_to_owner_of_folder
from tau_live.reasons import UNWRITTEN
from tau_live.store.roles import Store

SUFFIX = ".lost"
MOST = 2**40


def leave_losses(path: Path, number: int) -> None:
    """Leave how many events were lost; never fails, since the process ends.

    Args:
        path: The store's file.
        number: How many more.
    """
    if number <= 0 or not path.exists():
        return
    with suppress(OSError), _alone(path, os.O_RDWR | os.O_CREAT) as file:
        os.ftruncate(file, min(os.fstat(file).st_size + number, MOST))
        give_to_owner_of_folder(_file_of(path))


def losses_left(path: Path) -> int:
    """Return how many lost events wait to be counted in a store; never fails."""
    try:
        found = _file_of(path).lstat()
    except OSError:
        return 0
    return found.st_size if _is_ours(found) else 0


def take_in_losses(store: Store, path: Path) -> None:
    """Count in a store that works again what was lost.

    A file that somebody is at work on is left for the next time.

    Raises:
        StoreUnavailableError: The store cannot take it after all; it waits on.
    """
    if not losses_left(path):
        return
    with suppress(OSError), _alone(path, os.O_RDWR) as file:
        store.counters.add({UNWRITTEN: os.fstat(file).st_size})
        _file_of(path).unlink(missing_ok=True)


def _file_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _is_ours(found: os.stat_result) -> bool:
    ours = found.st_uid in {0, os.geteuid()} and not found.st_mode & 0o022
    return ours and stat.S_ISREG(found.st_mode) and found.st_size <= MOST


@contextmanager
def _alone(path: Path, flags: int) -> Iterator[int]:
    """Open the file while nobody else counts there.

    Raises:
        OSError: Somebody else does, took it away, or made it.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # to open a pipe may never end
    file = os.open(_file_of(path), flags, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstat(file)
        if not found.st_nlink or not _is_ours(found):
            raise FileNotFoundError(path)
        yield file
    finally:
        os.close(file)
