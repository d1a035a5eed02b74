"""What happens at the points of ``tau_live.core.fault`` in tests: a process dies, a step fails."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from tau_live.core import fault


@contextmanager
def listen(listener: Callable[[str], None]) -> Iterator[None]:
    """Tell of every point that any thread of this process reaches, in that thread."""
    fault.listeners.append(listener)
    try:
        yield
    finally:
        fault.listeners.remove(listener)


@contextmanager
def arm(name: str, action: Callable[[], object], *, nth: int = 1) -> Iterator[None]:
    """Do something when a point is reached for the ``nth`` time, and only then.

    Args:
        name: One of ``fault.POINTS``.
        action: Dies, raises what the step is to fail with, or waits.
        nth: Counted from 1, over all threads.

    Raises:
        ValueError: There is no such point, or ``nth`` is below 1.
    """
    if name not in fault.POINTS or nth < 1:
        raise ValueError(f"expected a known point and nth of at least 1, got {name!r} and {nth!r}")
    lock = threading.Lock()
    left = nth

    def on_point(reached: str) -> None:
        nonlocal left
        if reached != name:
            return
        with lock:
            left -= 1
            now = left == 0
        if now:
            action()

    with listen(on_point):
        yield


def crash() -> NoReturn:
    """End this process as ``kill -9`` does, with all of its threads, at once."""
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)  # not reached
