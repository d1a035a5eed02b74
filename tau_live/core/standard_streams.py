"""Standard streams that are closed: what is done does not depend on who can see it."""

import io
import os
import sys
from errno import EBADF

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_SILENT = frozenset({"kill", "unkill", "reward"})
"""What they do matters, whether or not anybody can see it."""


class Closed(io.RawIOBase):
    """Standard output where it is closed: what is printed is lost, which is reported."""

    def writable(self) -> bool:
        """Return that one may try."""
        return True

    def write(self, data: object, /) -> int:  # noqa: ARG002
        """Raise an error that says so."""
        raise OSError(EBADF, "standard output is closed")


def open_closed(arguments: "Sequence[str]") -> None:
    """Let standard streams that are closed lead nowhere, and no file take their numbers.

    Printing to a standard output that is closed is an error, but in what stops and tells.
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
        nowhere = io.FileIO(1, "w", closefd=False) if silent else Closed()
        sys.stdout = io.TextIOWrapper(nowhere, write_through=True)
