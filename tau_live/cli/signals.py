"""Ending long work on a signal: after the current step, or at once on the second signal."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on Ctrl-C or SIGTERM; a second one interrupts.

    Another thread sets it: the signal may find the main thread inside ``stop.wait()``, whose lock
    it would wait for and never get. Putting into a ``SimpleQueue`` is safe there.
    """
    signals: SimpleQueue[bool] = SimpleQueue()
    seen: list[int] = []

    def asked(number: int, _frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(number)
        signals.put(True)

    def pass_on() -> None:
        if signals.get():
            stop.set()

    threading.Thread(target=pass_on, name="tau-live-stop", daemon=True).start()
    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(False)
