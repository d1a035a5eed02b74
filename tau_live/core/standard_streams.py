"""Closed standard streams: a command does its work whether or not its output can be seen."""

import io
import os
import sys
from errno import EBADF

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_SILENT = frozenset({"kill", "unkill", "reward"})
"""Commands that matter more than their output."""


class ClosedOutput(io.RawIOBase):
    """Standard output where it is closed: printing to it is an error."""

    def writable(self) -> bool:
        """Return ``True``: writing fails with a better error."""
        return True

    def write(self, data: object, /) -> int:  # noqa: ARG002
        """Raise ``OSError``: standard output is closed."""
        raise OSError(EBADF, "standard output is closed")


def open_closed(arguments: "Sequence[str]") -> None:
    """Reopen closed standard streams on the null device, so that no file takes their descriptors.

    Printing to a closed standard output is an error, except in the commands of ``_SILENT``.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        silent = _SILENT & {*arguments[:2]}
        output = io.FileIO(1, "w", closefd=False) if silent else ClosedOutput()
        sys.stdout = io.TextIOWrapper(output, write_through=True)
