"""Jumps of the machine's clock while a process runs."""

import time
from collections.abc import Callable
from typing import NamedTuple

JUMP_S = 60.0
"""Seconds below which a change is an ordinary correction; nothing here is as exact as that."""


class Jump(NamedTuple):
    """A jump of the clock.

    Attributes:
        before: Epoch seconds that it would show now without the jump.
        after: Epoch seconds that it shows.
    """

    before: float
    after: float

    @property
    def by_s(self) -> float:
        """Seconds that it jumped; negative if it was put back."""
        return self.after - self.before


class Jumps:
    """Compares the machine's clock with one that cannot be set.

    Args:
        wall: Returns epoch seconds.
        steady: Returns seconds since any fixed moment, counting those in which the machine slept.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] | None = None
    ) -> None:
        self._wall = wall
        self._steady = steady or seconds_since_boot
        self._offset = self._measure_offset()

    def take_jump(self) -> Jump | None:
        """Return the jump since the last call; ``None`` if there was none."""
        offset = self._measure_offset()
        by = offset - self._offset
        if abs(by) < JUMP_S:
            return None
        self._offset = offset
        now = self._wall()
        return Jump(now - by, now)

    def _measure_offset(self) -> float:
        return self._wall() - self._steady()


def seconds_since_boot() -> float:
    """Return seconds since the machine started, including sleep where the system counts it."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
