"""Counts by name that stay exact across threads, signals and finalisers."""

import threading
from collections import deque

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

        Whoever asks from within this, by a signal or a finaliser, is told what is known so far.
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
