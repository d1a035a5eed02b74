"""Single keys, as they are pressed; the terminal is as it was afterwards."""

import os
import re
import select
import sys
import time
from contextlib import ExitStack, suppress
from types import TracebackType

QUIT = frozenset("qQ\x03\x04")
"""The keys that end it: q, Ctrl-C and Ctrl-D."""

NAMED_KEY = re.compile(r"\x1b[\[O][0-9;]*.")
"""What a terminal sends for arrows and the like."""


class Keyboard:
    """The keys of a terminal while it is entered; elsewhere none is ever pressed."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._after = ExitStack()

    def __enter__(self) -> "Keyboard":
        with suppress(ImportError, OSError, ValueError):  # not there on every system
            import termios
            import tty

            file = sys.stdin.fileno()
            if os.isatty(file):
                self._after.enter_context(suppress(termios.error))  # the terminal may have gone
                before = termios.tcgetattr(file)
                self._after.callback(termios.tcsetattr, file, termios.TCSADRAIN, before)
                tty.setcbreak(file)
                self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file = None
        self._after.close()

    def asks_to_quit(self, timeout_s: float) -> bool:
        """Wait so many seconds at most; say whether a key was pressed that ends it.

        So does a terminal that has gone.
        """
        if self._file is None:
            time.sleep(timeout_s)
            return False
        ready, _, _ = select.select([self._file], [], [], timeout_s)
        if not ready:
            return False
        try:
            pressed = os.read(self._file, 64).decode("utf-8", "replace")
        except OSError:
            return True
        return not pressed or not QUIT.isdisjoint(NAMED_KEY.sub("", pressed))
