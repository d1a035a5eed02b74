"""The size of a store, and limits of retention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

ExportRow: TypeAlias = Mapping[str, object]
"""A row of an export: its table, and the values of its columns by name."""

Rows: TypeAlias = Sequence[ExportRow]
"""Rows of an export, each with its own number."""

Archive: TypeAlias = Callable[[Rows], None]
"""Saves rows that are about to be deleted; when it returns, they are on the disk."""


class Place(NamedTuple):
    """The position of a walk from the oldest to the newest.

    Attributes:
        at: Epoch seconds when the last rollout had ended, or the last reward had come.
        seq: The number of its row.
    """

    at: float
    seq: int


OLDEST = Place(-1e300, 0)
"""Where every walk begins."""

EVER = 1e300
"""A time after all others."""


class Swept(NamedTuple):
    """One step of a walk.

    Attributes:
        gone: How many were deleted.
        until: Epoch seconds when the last of them had ended, or come; ``None`` without any.
        place: Where the next step goes on; ``None`` at the end of the walk.
    """

    gone: int
    until: float | None
    place: Place | None


class Size(NamedTuple):
    """The size of a store.

    Attributes:
        rollouts: How many rollouts it holds, open ones too.
        used_bytes: Bytes of all rows; without free pages and the log.
        free_bytes: Bytes of empty pages that have not been given back.
    """

    rollouts: int
    used_bytes: int
    free_bytes: int


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The reasons why the oldest ended rollouts are kept.

    Attributes:
        looked_at: How many rollouts were looked at.
        forgettable: How many may be deleted.
        waiting: How many wait for their reward.
        unlearned: How many an update of some decision point has not seen.
        uncounted: How many a trial has not counted.
        open: How many are open again.
    """

    looked_at: int = 0
    forgettable: int = 0
    waiting: int = 0
    unlearned: int = 0
    uncounted: int = 0
    open: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of retention; ``None`` means no limit.

    Attributes:
        age_s: Seconds since the end of a rollout.
        rollouts: How many rollouts.
        used_bytes: Bytes of all of them in the file.
    """

    age_s: float | None = None
    rollouts: int | None = None
    used_bytes: float | None = None

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return (self.age_s, self.rollouts, self.used_bytes) != (None, None, None)

    def over(self, size: Size) -> int:
        """Return how many rollouts are beyond the limits; by bytes an estimate of 1 or more."""
        too_many = 0 if self.rollouts is None else size.rollouts - self.rollouts
        if self.used_bytes is not None and size.used_bytes > self.used_bytes and size.rollouts:
            share = 1.0 - self.used_bytes / size.used_bytes
            too_many = max(too_many, 1, int(share * size.rollouts))
        return max(0, too_many)

    def ended_before(self, size: Size, *, now: float) -> float:
        """Return the time before which rollouts must have ended to be deleted."""
        if self.over(size):
            return EVER
        return OLDEST.at if self.age_s is None else now - self.age_s
