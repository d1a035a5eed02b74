"""Ending long work when it is asked to: after what is being done, at once when asked twice."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` on Ctrl-C or SIGTERM; a second one interrupts."""

    def asked(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
