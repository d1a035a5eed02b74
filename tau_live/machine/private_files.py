"""Files for their owner alone: made so, checked, and narrowed where they are not.

A symbolic link, or a file of somebody else, would let that somebody decide what is read here, or
where it is written; such are refused.
"""

import os
import stat
from pathlib import Path

from tau_live.errors import pass_on, suppress

OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for its owner alone.

    ``Path.mkdir(mode, parents=True)`` gives the mode to the last of them only.

    Raises:
        OSError: One could not be made.
    """
    missing = [one for one in (folder.absolute(), *folder.absolute().parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=stat.S_IRWXU, exist_ok=True)


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
        found = path.lstat()
    except FileNotFoundError as error:
        pass_on(error)
        return None
    if stat.S_ISLNK(found.st_mode):
        raise PermissionError(f"'{path}' is a symbolic link: name the file itself")
    refuse_pipe(path)
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return None
    if found.st_uid != os.geteuid():
        raise PermissionError(
            f"'{path}' belongs to another user (uid {found.st_uid}, this is {os.geteuid()})"
        )
    return stat.S_IMODE(found.st_mode)


def refuse_pipe(path: Path) -> None:
    """Raise a ``PermissionError`` for a pipe: to open it waits for whoever is at its other end."""
    if path.is_fifo():
        raise PermissionError(f"'{path}' is a pipe: name a file")


def narrowed(path: Path) -> str | None:
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
