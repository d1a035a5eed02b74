"""The size of a store, and how much of it may be forgotten."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Rows: TypeAlias = Sequence[Mapping[str, object]]
"""Lines of an export, with each row's own number besides."""

Archive: TypeAlias = Callable[[Rows], None]
"""Is given what is about to be forgotten; when it returns, that is safe elsewhere."""


class Place(NamedTuple):
    """How far a walk from the oldest to the newest has come.

    Attributes:
        at: When the last that was looked at had ended, or come; epoch seconds.
        seq: Its number.
    """

    at: float
    seq: int


OLDEST = Place(-1e300, 0)
"""Where every walk begins."""

EVER = 1e300
"""Before this is everything."""


class Swept(NamedTuple):
    """One step of a walk.

    Attributes:
        gone: How many were forgotten.
        until: When the last of them had ended, or come; ``None`` if there was none.
        place: Where the next step goes on; ``None`` when nothing is left to look at.
    """

    gone: int
    until: float | None
    place: Place | None


class Size(NamedTuple):
    """How large a store is; costs the same however large that is.

    Attributes:
        rollouts: How many rollouts it holds, open ones too.
        used_bytes: What they take, with all that is theirs; without free pages and the log.
        free_bytes: Of pages that hold nothing and have not been given back.
    """

    rollouts: int
    used_bytes: int
    free_bytes: int


class Kept(NamedTuple):
    """The reasons why the oldest ended rollouts are kept; only so many are looked at.

    Attributes:
        looked_at: How many that was.
        forgettable: How many of them nothing keeps.
        waiting: How many wait for their reward.
        unlearned: How many some decision point has not looked at.
        uncounted: How many a trial has not counted.
        open: How many go on after all.
    """

    looked_at: int
    forgettable: int
    waiting: int
    unlearned: int
    uncounted: int
    open: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept; ``None`` means no limit.

    Attributes:
        age_s: Seconds since the end of a rollout.
        rollouts: How many rollouts.
        used_bytes: What all of them take in the file.
    """

    age_s: float | None = None
    rollouts: int | None = None
    used_bytes: float | None = None

    def __bool__(self) -> bool:
        """Whether anything is limited."""
        return (self.age_s, self.rollouts, self.used_bytes) != (None, None, None)

    def over(self, size: Size) -> int:
        """Return how many rollouts are too many; by their bytes that is an estimate, 1 or more."""
        too_many = 0 if self.rollouts is None else size.rollouts - self.rollouts
        if self.used_bytes is not None and size.used_bytes > self.used_bytes and size.rollouts:
            share = 1.0 - self.used_bytes / size.used_bytes
            too_many = max(too_many, 1, int(share * size.rollouts))
        return max(0, too_many)

    def ended_before(self, size: Size, *, now: float) -> float:
        """Return before when a rollout has to have ended to be forgotten, whatever keeps it."""
        if self.over(size):
            return EVER
        return OLDEST.at if self.age_s is None else now - self.age_s
