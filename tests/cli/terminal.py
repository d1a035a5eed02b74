"""A real terminal of a given size, in which a command runs and keys are pressed."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 60.0
CLI = ["-m", "tau_live.cli"]
LAUNCH = (
    "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        output: All that it wrote.
        code: Its exit code.
        restored: Whether the terminal's modes are those that it found.
    """

    output: str
    code: int
    restored: bool


class Terminal(NamedTuple):
    """A terminal in which a command runs.

    Attributes:
        file: Its other side.
        child: The process of the command.
    """

    file: int
    child: int

    def press(self, keys: bytes) -> None:
        """Press keys, one right after the other."""
        os.write(self.file, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size."""
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_stopped(self) -> bool:
        """Return whether the command has been suspended since it was last asked."""
        return os.WIFSTOPPED(os.waitpid(self.child, os.WNOHANG | os.WUNTRACED)[1])


Step = Callable[[str, Terminal], bool]
"""Told what was written since the step before, and where; ``True`` once it is done."""


def in_terminal(
    *arguments: object,
    steps: Sequence[Step] = (),
    columns: int = 80,
    rows: int = 24,
    **environ: str,
) -> Ended:
    """Run a command in a terminal of its own.

    Args:
        arguments: Of the command line.
        steps: What is done to it, one after the other.
        columns: The width of the terminal.
        rows: Its height.
        environ: Variables.
    """
    main, side = pty.openpty()
    Terminal(main, 0).resize(columns, rows)
    before = termios.tcgetattr(side)
    process = _begun(side, [str(one) for one in arguments], environ)
    terminal = Terminal(main, process.pid)
    said, seen, left = "", 0, list(steps)
    until = time.monotonic() + DEADLINE_S
    while (code := process.poll()) is None:
        if time.monotonic() > until:
            process.kill()
        said += _read(main, 0.02)
        if left and left[0](said[seen:], terminal):
            seen, left = len(said), left[1:]
    said += _read(main, 0.0)
    restored = termios.tcgetattr(side) == before
    os.close(main)
    os.close(side)
    return Ended(said, code, restored)


def _begun(side: int, arguments: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a command whose terminal this is, so that its keys send signals."""
    root = str(Path(__file__).parents[2])
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    path = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, *CLI, *arguments],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**kept, "PYTHONPATH": path, "TERM": "xterm-256color", **environ},
    )


def _read(file: int, timeout_s: float) -> str:
    found = b""
    while select.select([file], [], [], timeout_s)[0]:
        with suppress(OSError):
            found += os.read(file, 65_536)
            continue
        break
    return found.decode("utf-8", "replace")
