"""Whether the machine's clock was set while a process ran."""

import time
from collections.abc import Callable
from typing import NamedTuple

JUMP_S = 60.0
"""By less a clock is corrected now and then; nothing here is as exact as that."""


class Jump(NamedTuple):
    """A clock that was set.

    Attributes:
        before: Epoch seconds: what it would have shown now.
        after: Epoch seconds: what it tells.
    """

    before: float
    after: float

    @property
    def by_s(self) -> float:
        """How far; negative for one that was put back."""
        return self.after - self.before


class Jumps:
    """Compares the machine's clock with one that nobody can set.

    Args:
        wall: Epoch seconds.
        steady: Seconds since whenever, also while the machine slept.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] | None = None
    ) -> None:
        self._wall = wall
        self._steady = steady or seconds_awake_or_not
        self._apart = self._difference()

    def take_jump(self) -> Jump | None:
        """Return how the clock was set since the last call; ``None`` if it was not."""
        apart = self._difference()
        by = apart - self._apart
        if abs(by) < JUMP_S:
            return None
        self._apart = apart
        now = self._wall()
        return Jump(now - by, now)

    def _difference(self) -> float:
        return self._wall() - self._steady()


def seconds_awake_or_not() -> float:
    """Return seconds since the machine started, those that it slept through too where it can."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
