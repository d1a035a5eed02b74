"""Latches, tallies and context variables that signals, forks and finalisers cannot break.

An exception in the middle of ``threading.Event`` or ``Condition``, such as a signal's handler
raises, can leave their inner lock held for ever: then the thread that sets it hangs. Each step here
is one call of a plain lock, which happens whole or not at all.
"""

import threading
from collections import deque
from contextvars import ContextVar, Token, copy_context
from typing import TypeVar

from tau_live.core.errors import release


class Latch:
    """Set once, by any thread; one thread at a time may wait for it.

    Attributes:
        is_set: Whether it is.
    """

    __slots__ = ("_closed", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def set(self) -> None:
        """Let whoever waits go on; the same again is nothing."""
        if not self.is_set:
            self.is_set = True
            release(self._closed)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; ``False`` if that did not happen in time."""
        if not self.is_set and self._closed.acquire(timeout=max(0.0, timeout_s)):
            release(self._closed)  # for whoever waits next
        return self.is_set


_WAITING = 1_000


class Tally:
    """Counts by name; adding takes no lock, because a signal's handler may be in the way of one."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._lock = threading.RLock()
        self._summing = False

    def add(self, name: str, number: int = 1) -> None:
        """Count something."""
        self._waiting.append((name, number))
        if len(self._waiting) >= _WAITING:
            self.counts()

    def counts(self) -> dict[str, int]:
        """Return how often each name was counted.

        Whoever asks from within this, by a signal or a finaliser, gets what is known so far.
        """
        with self._lock:
            if not self._summing:
                self._summing = True
                try:
                    while self._waiting:
                        name, number = self._waiting.popleft()
                        self._counts[name] = self._counts.get(name, 0) + number
                finally:
                    self._summing = False
            return dict(self._counts)


T = TypeVar("T")


def set_variable(variable: ContextVar[T], value: T) -> Token[T]:
    """Set a variable.

    Python 3.11 collects garbage while it sets one, and a finaliser that sets one too, by beginning
    a run say, frees what is being read: the process crashes. Nothing is freed that a copy holds.

    Source:
        ``contextvar_set`` in CPython's ``context.c``, which borrows ``ctx->ctx_vars``.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    return variable.set(value)


def put_back(variable: ContextVar[T], token: Token[T]) -> None:
    """Give a variable back the value that it had before ``set_variable``.

    Raises:
        ValueError: It was set in another context.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    variable.reset(token)
