"""Files that are there as a whole or not at all."""

import os
import re
import stat
import threading
from contextlib import suppress
from pathlib import Path

from tau_live import fault

_BESIDE = re.compile(r"\..*\.(?P<pid>[0-9]+)-[0-9]+\.part")


def write_whole(path: Path, content: bytes, *, mode: int = stat.S_IRUSR | stat.S_IWUSR) -> None:
    """Write a file beside its name, flush it to the disk, and rename it into place.

    Args:
        path: The file; its folder must be there.
        content: All of it.
        mode: Who may read and write it; by default its owner alone.

    Raises:
        OSError: It could not be written; what stood there before still does.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fault.point("file.made")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fault.point("file.written")
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    fault.point("file.renamed")
    _flush_folder(path.parent)


def is_left_behind(path: Path) -> bool:
    """Say whether a file was being written by a process other than this one."""
    found = _BESIDE.fullmatch(path.name)
    return found is not None and int(found["pid"]) != os.getpid()


def _flush_folder(folder: Path) -> None:
    """Make a rename survive the death of the machine, where the file system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
