"""The files of a store: created for their owner only, never closed under another's locks."""

import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

from tau_live import fault
from tau_live.errors import suppress
from tau_live.machine.private_files import make_folders, mode_of
from tau_live.machine.whole_files import unfinished_name
from tau_live.store.aside import alone_in, beside, set_leftovers_aside


def files_of(path: Path) -> list[Path]:
    """Return a store's file and what SQLite puts beside it."""
    return [beside(path, end) for end in ("", "-wal", "-shm", "-journal")]


def is_emptied(path: Path) -> bool:
    """Say whether a store's file is empty, but not its log."""
    log = beside(path, "-wal")
    return path.is_file() and not path.stat().st_size and log.is_file() and log.stat().st_size > 0


@contextmanager
def read_locked(path: Path) -> Iterator[None]:
    """Keep everybody, this process too, from having a file for themselves; where Linux can.

    Source:
        ``SHARED_FIRST`` and ``SHARED_SIZE`` in SQLite's ``os.h``; fcntl(2), open file description
        locks, which conflict with a process's own POSIX locks.
    """
    try:
        import fcntl

        wanted = fcntl.F_OFD_SETLK
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, AttributeError, OSError):
        yield
        return
    try:
        with suppress(OSError):  # somebody has it for themselves, so that this process has not
            lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0x40000002, 510, 0)
            fcntl.fcntl(descriptor, wanted, lock)
        yield
    finally:
        os.close(descriptor)


def make_private(path: Path, *, timeout_s: float) -> None:
    """Create the file for its owner alone, from its first byte and whatever the umask.

    It is made under another name and linked: SQLite's locks on a file are lost as soon as this
    process closes any descriptor of it, which must not happen to one that somebody already uses.
    What an earlier file of that name has left is set aside: SQLite would take it for the new one's.
    What SQLite made beside a store that could not be written takes over its mode, and keeps it: it
    may be written again as soon as the store may.
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
    except OSError as error:  # the name is another each time, and nobody's
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
