"""Failures of the disk, or of the process's share of the system, that end with their cause."""

import errno
import tempfile
from pathlib import Path

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
