"""Pauses in our threads' work, in which the host's threads get the interpreter.

A thread that wants the interpreter while another computes gets it after Python's switch interval
(5 ms), and later still where the other releases and retakes it all the time, as SQLite and numpy
do: each time the wait begins anew. A real sleep, however short, hands it over at once.
Measured, without: an asyncio host woke up to 40 ms late.
"""

import time
from collections.abc import Callable

SLICE_S = 0.001
"""How long a thread of ours works at most before it is ready to pause."""

PAUSE_S = 0.00005
"""How long it pauses; the system rounds it up to a tenth of a millisecond."""


class Throttle:
    """Pauses once per slice; for one thread, which must not hold a lock that a host's thread wants.

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
