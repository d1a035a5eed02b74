"""Points at which long work yields the interpreter to other threads; they change no number.

A thread opts in by ``giving_way``; in every other thread the points do nothing.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class _Thread(threading.local):
    pause: Callable[[], None] | None = None


_thread = _Thread()


def yield_gil() -> None:
    """Pause if this thread gives way; called between two small pieces of work."""
    pause = _thread.pause
    if pause is not None:
        pause()


def yield_between(items: Iterable[T]) -> Iterator[T]:
    """Return the items, with a pause after each if this thread gives way."""
    return iter(items) if _thread.pause is None else _pause_between(items, _thread.pause)


def _pause_between(items: Iterable[T], pause: Callable[[], None]) -> Iterator[T]:
    for item in items:
        yield item
        pause()


@contextmanager
def giving_way(pause: Callable[[], None]) -> Iterator[None]:
    """Let this thread give way to others while the context lasts.

    Args:
        pause: Called at each point.
    """
    before, _thread.pause = _thread.pause, pause
    try:
        yield
    finally:
        _thread.pause = before
