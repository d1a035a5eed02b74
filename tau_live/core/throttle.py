"""Pauses in which the host's threads get the interpreter, inside the work of a thread of ours.

A thread that wants the interpreter while another computes gets it after Python's switch interval
(5 ms), and later still where that one gives it up and takes it back all the time, as SQLite and
numpy do: each time the waiting begins anew. A real sleep, however short, hands it over at once.
Measured, without: an asyncio host woke up to 40 ms late.
"""

import time
from collections.abc import Callable

SLICE_S = 0.001
"""How long a thread of ours works at most before it is ready to pause."""

PAUSE_S = 0.00005
"""How long it pauses; the system makes a tenth of a millisecond of it."""


class Throttle:
    """Pauses when the last pause is longer ago than a slice; for one thread.

    That may hold no lock meanwhile which a host's thread wants.

    Args:
        hurried: Says whether no pause can be afforded now; called once in a slice.
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
