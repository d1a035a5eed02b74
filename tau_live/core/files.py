"""Private files, atomic writes, and transient failures of the disk.

A symbolic link, or a file of another user, would let others decide what is read here, or where it
is written; both are refused.
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
    """Give a file that root has made to the owner of its folder, who could not read it otherwise.

    Never fails: where it cannot be done the file stays root's.
    """
    if os.geteuid() != 0:
        return
    with suppress(OSError):
        folder = path.parent.stat()
        os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def mode_of(path: Path) -> int | None:
    """Check a file or folder that is to be written to, and return its mode.

    Returns:
        ``None`` if it does not exist, or is neither a file nor a folder.

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
    """Raise a ``PermissionError`` for a pipe: opening one waits for its other end."""
    if path.is_fifo():
        raise PermissionError(f"'{path}' is a pipe: name a file")


def narrow(path: Path) -> str | None:
    """Check a file or folder that is known to be ours, and remove the permissions of others.

    Returns:
        A sentence for the log; ``None`` if it was private already, or does not exist.

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
    """Return a descriptor of a new file, for its owner alone; an existing file is removed.

    Raises:
        OSError: It could not be created.
    """
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


_PART_FILE = re.compile(r"\.(?P<name>.*)\.(?P<pid>[0-9]+)-[0-9A-Za-z_]+\.part")

ABANDONED_S = 600.0
"""No write takes so long: by then its pid belongs to another process."""


PRIVATE = stat.S_IRUSR | stat.S_IWUSR


@contextmanager
def opened_output(path: Path, *, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """Open a path named by a user for writing: a file is replaced as a whole.

    A symbolic link stays one: the file that it leads to is replaced. A pipe, a terminal or another
    device is written to, and so is the target of standard output or standard error.

    Args:
        path: The path; its folder must exist.
        mode: Permissions of a file, whatever the umask; by default for its owner alone.

    Raises:
        OSError: It cannot be written; an existing file is left unchanged.
    """
    direct = _open_directly(path)
    if direct is not None:
        with os.fdopen(direct, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    sweep(target.parent, name=target.name)
    with _replace(target, mode=mode) as file:
        yield file


def _open_directly(path: Path) -> int | None:
    """Return a descriptor of anything but a file to be replaced; ``None`` for such a file."""
    try:
        status = path.stat()
    except FileNotFoundError as error:
        pass_on(error)
        return None
    for standard in (1, 2):  # replacing its file would lose what other processes append to it
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
    """Write a temporary file, flush it to the disk, and rename it into place.

    Args:
        path: The file; its folder must exist.
        content: Its whole content.
        mode: Its permissions, whatever the umask; by default for its owner alone.

    Raises:
        OSError: It could not be written; an existing file is left unchanged.
    """
    with _replace(path, mode=mode) as file:
        file.write(content)


@contextmanager
def _replace(path: Path, *, mode: int) -> Iterator[BinaryIO]:
    """Open a temporary file; at the end it is flushed to the disk and renamed into place."""
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
    """Return the prefix and suffix of the temporary names of a file that is being written."""
    return f".{path.name}.{os.getpid()}-", ".part"


def left_behind(folder: Path, *, name: str | None = None) -> list[Path]:
    """Return the temporary files in a folder whose writers are gone.

    With a ``name``, only those of the file of that name.
    """
    with suppress(OSError):
        return sorted(path for path in folder.glob(".*.part") if _is_left(path, name))
    return []


def sweep(folder: Path, *, name: str | None = None) -> list[str]:
    """Delete the files that ``left_behind`` returns; return the names of those deleted."""
    gone = []
    for path in left_behind(folder, name=name):
        with suppress(OSError):
            path.unlink()
            gone.append(path.name)
    return gone


def _is_left(path: Path, name: str | None) -> bool:
    match = _PART_FILE.fullmatch(path.name)
    if match is None or name not in {None, match["name"]}:
        return False
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > ABANDONED_S or not is_running(
            int(match["pid"])
        )
    return False


def is_running(pid: int) -> bool:
    """Return whether a process with this pid runs, whoever owns it."""
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
"""No room, no descriptors, no memory; descriptors that other code in this process has closed."""

PROBE_BYTES = 2**21
"""A checkpoint of the default width takes 1.3 MB."""


def is_passing(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, is transient."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError) and at.errno in PASSING:
            return True
        at = at.__cause__
    return False


def can_write_in(folder: Path) -> bool:
    """Return whether a file of ``PROBE_BYTES`` can be written in a folder now; none is left."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError:
        return False
    return True


_NEEDED = frozenset({"msgspec", "numpy", "pluggy", "sqlite_utils", "structlog", "wrapt"})


def hiding_files() -> list[str]:
    """Return a sentence for each file beside the agent that hides a module we need."""
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
