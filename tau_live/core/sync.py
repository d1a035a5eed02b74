"""Latches, tallies, context variables and pauses, for threads beside a host's.

Signals, forks and finalisers cannot break them.

An exception in the middle of ``threading.Event`` or ``Condition``, such as one from a signal
handler, can leave their inner lock held for ever: then the thread that sets it hangs. Each step
here is one call of a plain lock, which happens whole or not at all.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, Token, copy_context
from typing import TypeVar

from tau_live.core.errors import release


class Latch:
    """Set once, by any thread; one thread at a time may wait for it.

    Attributes:
        is_set: Whether it has been set.
    """

    __slots__ = ("_closed", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def set(self) -> None:
        """Let the waiting thread go on; calling it again does nothing."""
        if not self.is_set:
            self.is_set = True
            release(self._closed)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; ``False`` if that did not happen in time."""
        if not self.is_set and self._closed.acquire(timeout=max(0.0, timeout_s)):
            release(self._closed)  # for the next one to wait
        return self.is_set


_WAITING = 1_000


class Tally:
    """Counts by name; adding takes no lock: a signal handler could interrupt its holder."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._lock = threading.RLock()
        self._summing = False

    def add(self, name: str, number: int = 1) -> None:
        """Add to a count."""
        self._waiting.append((name, number))
        if len(self._waiting) >= _WAITING:
            self.counts()

    def counts(self) -> dict[str, int]:
        """Return every count by name.

        A call from within this one, by a signal handler or a finaliser, gets the counts so far.
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
    """Set a context variable.

    Python 3.11 may collect garbage while it sets one, and a finaliser that sets one too, by
    beginning a run say, frees the context being read: the process crashes. A copy keeps it alive.

    Source:
        ``contextvar_set`` in CPython's ``context.c``, which borrows ``ctx->ctx_vars``.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    return variable.set(value)


def put_back(variable: ContextVar[T], token: Token[T]) -> None:
    """Reset a context variable to its value before ``set_variable``.

    Raises:
        ValueError: It was set in another context.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    variable.reset(token)


SLICE_S = 0.001
"""How long a thread of ours works at most before it is ready to pause."""

PAUSE_S = 0.00005
"""How long it pauses; the system rounds it up to a tenth of a millisecond."""


class Throttle:
    """Pauses once per slice, so that the host's threads get the interpreter.

    For one thread, which must not hold a lock that a host's thread wants.

    A thread that wants the interpreter while another computes gets it after Python's switch
    interval (5 ms), and later still where the other releases and retakes it all the time, as SQLite
    and numpy do: each time the wait begins anew. A real sleep, however short, hands it over at
    once. Measured, without: an asyncio host woke up to 40 ms late.

    Args:
        hurried: Returns whether no pause can be afforded now; called once per slice.
    """

    __slots__ = ("_hurried", "_until")

    def __init__(self, *, hurried: Callable[[], bool] = lambda: False) -> None:
        self._hurried = hurried
        self._until = 0.0

    def __call__(self) -> None:
        """Pause, if it is time."""
        if time.perf_counter() >= self._until:
            if not self._hurried():
                time.sleep(PAUSE_S)
            self._until = time.perf_counter() + SLICE_S
