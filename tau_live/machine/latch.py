"""A latch that opens once, for waiters in a host's thread.

An exception in the middle of ``threading.Event`` or ``Condition``, such as a signal's handler
raises, can leave their inner lock held for ever: then the thread that sets it hangs. Each step here
is one call of a plain lock, which happens whole or not at all.
"""

import threading

from tau_live.errors import release


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
