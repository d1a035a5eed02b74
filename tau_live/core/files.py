"""Files: for their owner alone, whole or not at all, and the failures of their disk.

A symbolic link, or a file of somebody else, would let that somebody decide what is read here, or
where it is written; such are refused.
"""

import errno
import os
import re
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tau_live.core import fault
from tau_live.core.errors import pass_on, suppress

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for its owner alone.

    ``Path.mkdir(mode, parents=True)`` gives the mode to the last of them only.

    Raises:
        OSError: One could not be made.
    """
    missing = [
        parent for parent in (folder.absolute(), *folder.absolute().parents) if not parent.exists()
    ]
    for parent in reversed(missing):
        parent.mkdir(mode=stat.S_IRWXU, exist_ok=True)


def give_to_owner_of_folder(path: Path) -> None:
    """Let a file that root has made belong to whoever has its folder, who could not read it else.

    Never fails: where it cannot be done the file stays root's.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError):
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def mode_of(path: Path) -> int | None:
    """Return the mode of a file or folder that is to be written to, once it was checked.

    Returns:
        ``None`` where it is not there, or is neither a file nor a folder.

    Raises:
        PermissionError: It is a symbolic link, a pipe, or belongs to another user.
    """
    try:
        status = path.lstat()
    except FileNotFoundError as error:
        pass_on(error)
        return None
    if stat.S_ISLNK(status.st_mode):
        raise PermissionError(f"'{path}' is a symbolic link: name the file itself")
    refuse_pipe(path)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        return None
    if status.st_uid != os.geteuid():
        raise PermissionError(
            f"'{path}' belongs to another user (uid {status.st_uid}, this is {os.geteuid()})"
        )
    return stat.S_IMODE(status.st_mode)


def refuse_pipe(path: Path) -> None:
    """Raise a ``PermissionError`` for a pipe: to open it waits for whoever is at its other end."""
    if path.is_fifo():
        raise PermissionError(f"'{path}' is a pipe: name a file")


def narrow(path: Path) -> str | None:
    """Check a file or folder that is known to be ours, and take away what others may do with it.

    Returns:
        What was done, in words; ``None`` where it was private already, or has no mode of its own.

    Raises:
        PermissionError: It is a symbolic link, a pipe, or belongs to another user.
        OSError: It could not be narrowed.
    """
    mode = mode_of(path)
    if not mode or not mode & OTHERS:
        return None
    path.chmod(mode & ~OTHERS)
    return f"others could use '{path}' (mode {mode:o}); it is now {mode & ~OTHERS:o}"


def opened_new(path: Path) -> int:
    """Return a descriptor of a file made anew, for its owner alone; what stood there is removed.

    Raises:
        OSError: It could not be made.
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


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
    with _replace(target, mode=mode) as file:
        yield file


def _written_directly(path: Path) -> int | None:
    """Return a descriptor of what is no file to be replaced; ``None`` for a file."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        pass_on(error)
        return None
    for standard in (1, 2):  # to replace its file would lose what the shell lets others add to it
        with suppress(OSError):
            if os.path.samestat(status, os.fstat(standard)):
                return os.dup(standard)
    if stat.S_ISREG(status.st_mode):
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISCHR(status.st_mode)):
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
    with _replace(path, mode=mode) as file:
        file.write(content)


@contextmanager
def _replace(path: Path, *, mode: int) -> Iterator[BinaryIO]:
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
    with suppress(OSError):
        return sorted(path for path in folder.glob(".*.part") if _is_left(path, name))
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
    match = _BESIDE.fullmatch(path.name)
    if match is None or name not in {None, match["name"]}:
        return False
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > ABANDONED_S or not is_running(
            int(match["pid"])
        )
    return False


def is_running(pid: int) -> bool:
    """Say whether a process of this number runs, whosever it is."""
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


PASSING = frozenset(
    {
        errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO,
        errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EBADF,
    }
)  # fmt: skip
"""No room, no descriptors, no memory; descriptors that others in this process have closed."""

PROBE_BYTES = 2**21
"""A checkpoint of the default width takes 1.3 MB."""


def is_passing(error: BaseException) -> bool:
    """Say whether an error, or what it came from, is a failure that ends with its cause."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.errno in PASSING:
            return True
        at = at.__cause__
    return False


def can_write_in(folder: Path) -> bool:
    """Say whether a file of some size can be written in a folder now; none is left there."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError:
        return False
    return True


_NEEDED = frozenset({"msgspec", "numpy", "pluggy", "sqlite_utils", "structlog", "wrapt"})


def hiding_files() -> list[str]:
    """Say which files beside the agent hide modules of Python, or of what we need."""
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    beside = {os.path.realpath(f"{main}/.." if main else "."), os.path.realpath(".")}
    known = sys.stdlib_module_names | _NEEDED
    is_beside: dict[str, bool] = {}  # hundreds of modules are in a few folders
    hidden = []
    for name, module in sys.modules.copy().items():
        path = getattr(module, "__file__", None) if name in known else None
        if path:
            folder, _, file = path.rpartition(os.sep)
            folder = folder.rpartition(os.sep)[0] if file.startswith("__init__.") else folder
            if folder not in is_beside:
                is_beside[folder] = os.path.realpath(folder) in beside
            if is_beside[folder]:
                hidden.append(f"{path} hides the module {name!r}: rename it")
    return sorted(hidden)
