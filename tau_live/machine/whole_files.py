"""Files that are there as a whole or not at all."""

import errno
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tau_live import fault
from tau_live.errors import pass_on, suppress

_BESIDE = re.compile(r"\.(?P<name>.*)\.(?P<pid>[0-9]+)-[0-9A-Za-z_]+\.part")

ABANDONED_S = 600.0
"""No write takes so long: its process is another one by now, which has got the same number."""


PRIVATE = stat.S_IRUSR | stat.S_IWUSR


@contextmanager
def opened_output(path: Path, *, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open what somebody named to be written: a file as a whole, anything else as it is.

    A symbolic link stays one: the file that it leads to is replaced. A pipe, a terminal or another
    device is written to, and so is whatever standard output or standard error already goes to.

    Args:
        path: What was named; its folder must be there.
        mode: Who may read and write a file, whatever the umask; by default its owner alone.

    Raises:
        OSError: It cannot be written; a file that stood there before still does.
    """
    direct = _written_directly(path)
    if direct is not None:
        with os.fdopen(direct, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    sweep(target.parent, name=target.name)
    with _replaced(target, mode=mode) as file:
        yield file


def _written_directly(path: Path) -> int | None:
    """Return a descriptor of what is no file to be replaced; ``None`` for a file."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        pass_on(error)
        return None
    for standard in (1, 2):  # to replace its file would lose what the shell lets others add to it
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(standard)):
                return os.dup(standard)
    if stat.S_ISREG(found.st_mode):
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISFIFO(found.st_mode) or stat.S_ISCHR(found.st_mode)):
        raise OSError(errno.EINVAL, "neither a file nor a pipe", str(path))
    return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)


def write_whole(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Write a file beside its name, flush it to the disk, and rename it into place.

    Args:
        path: The file; its folder must be there.
        content: All of it.
        mode: Who may read and write it, whatever the umask; by default its owner alone.

    Raises:
        OSError: It could not be written; what stood there before still does.
    """
    with _replaced(path, mode=mode) as file:
        file.write(content)


@contextmanager
def _replaced(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """Open a file beside a name; flushed to the disk, it is renamed into place."""
    begin, end = unfinished_name(path)
    part = path.with_name(f"{begin}{threading.get_ident()}{end}")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fault.point("file.made")
            if mode != PRIVATE:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        fault.point("file.written")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    fault.point("file.renamed")
    _flush_folder(path.parent)


def unfinished_name(path: Path) -> tuple[str, str]:
    """Return what a name begins and ends with that stands for a file while it is being made."""
    return f".{path.name}.{os.getpid()}-", ".part"


def left_behind(folder: Path, *, name: str | None = None) -> list[Path]:
    """Return the files of a folder that were being written by processes which are gone.

    With a ``name``, those alone that were to have it.
    """
    try:
        return sorted(path for path in folder.glob(".*.part") if _is_left(path, name))
    except OSError as error:
        pass_on(error)
        return []


def sweep(folder: Path, *, name: str | None = None) -> list[str]:
    """Delete them; return the names of those that could be deleted."""
    gone = []
    for path in left_behind(folder, name=name):
        with suppress(OSError):
            path.unlink()
            gone.append(path.name)
    return gone


def _is_left(path: Path, name: str | None) -> bool:
    found = _BESIDE.fullmatch(path.name)
    if found is None or name not in {None, found["name"]}:
        return False
    try:
        return time.time() - path.lstat().st_mtime > ABANDONED_S or not _runs(int(found["pid"]))
    except OSError as error:
        pass_on(error)
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError) as error:
        pass_on(error)
        return False
    except OSError as error:
        pass_on(error)
        return True
    return True


def _flush_folder(folder: Path) -> None:
    """Make a rename survive the death of the machine, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
