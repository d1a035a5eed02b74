"""Single keys, and signals that end long work."""

import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue
from types import FrameType, TracebackType

QUIT = frozenset("qQ\x03\x04")
"""The keys that quit: q, Ctrl-C and Ctrl-D."""

NAMED_KEY = re.compile(r"\x1b[\[O][0-9;]*.")
"""Matches what a terminal sends for arrows and other named keys."""


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
        """Wait up to ``timeout_s``; return whether a quit key was pressed, or the terminal went."""
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


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on Ctrl-C or SIGTERM; a second one interrupts.

    Another thread sets it: the signal may find the main thread inside ``stop.wait()``, whose lock
    it would wait for and never get. Putting into a ``SimpleQueue`` is safe there.
    """
    signals: SimpleQueue[bool] = SimpleQueue()
    seen: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        signals.put(True)

    def pass_on() -> None:
        if signals.get():
            stop.set()

    threading.Thread(target=pass_on, name="tau-live-stop", daemon=True).start()
    before = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(False)


@contextmanager
def interrupting() -> Iterator[None]:
    """Let SIGTERM interrupt like Ctrl-C, where this is the main thread, which has the signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
