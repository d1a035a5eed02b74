"""A real terminal of a given size, in which a command runs and keys are pressed."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DEADLINE_S = 60.0
CLI = ["-m", "tau_live.cli"]


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


def in_terminal(
    *arguments: object,
    act: Callable[[str, Callable[[bytes], None]], bool] = lambda said, press: True,
    columns: int = 80,
    rows: int = 24,
    **environ: str,
) -> Ended:
    """Run a command in a terminal of its own.

    Args:
        arguments: Of the command line.
        act: Told what was written so far and how to press keys, until it returns ``True``.
        columns: The width of the terminal.
        rows: Its height.
        environ: Variables.
    """
    main, side = pty.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    before = termios.tcgetattr(side)
    child = _begun(main, side, [str(one) for one in arguments], environ)
    said, until, done = "", time.monotonic() + DEADLINE_S, False
    while (pid := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, 9)
        said += _read(main, 0.02)
        done = done or act(said, lambda keys: os.write(main, keys) and None)
    said += _read(main, 0.0)
    restored = termios.tcgetattr(side) == before
    os.close(main)
    os.close(side)
    return Ended(said, os.waitstatus_to_exitcode(pid[1]), restored)


def _begun(main: int, side: int, arguments: list[str], environ: dict[str, str]) -> int:
    child = os.fork()
    if child:
        return child
    os.close(main)
    os.login_tty(side)
    root = str(Path(__file__).parents[2])
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    path = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
    known = {**kept, "PYTHONPATH": path, "TERM": "xterm-256color", **environ}
    with suppress(OSError):
        os.execve(sys.executable, [sys.executable, *CLI, *arguments], known)
    os._exit(127)


def _read(file: int, timeout_s: float) -> str:
    found = b""
    while select.select([file], [], [], timeout_s)[0]:
        with suppress(OSError):
            found += os.read(file, 65_536)
            continue
        break
    return found.decode("utf-8", "replace")
