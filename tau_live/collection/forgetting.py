"""Forgetting while the host runs: by age, number and size, in steps too short to be noticed.

A step deletes, gives pages back, or empties the log; its size follows from how long the last one
took. What has to be kept is passed over and looked at again on the next walk, so that a million
rollouts that nobody learns from cost no more than a thousand.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from tau_live.settings import Settings
from tau_live.store.keeping import OLDEST, Kept, Limits, Place, Size, Swept
from tau_live.store.roles import Retention

LOOKED_AT = 200
"""So many of the oldest are looked at to tell what keeps them."""

DAY_S = 86_400.0
MB = 1e6

PACE_S, SHARE = 0.01, 9.0
"""Between two steps while there is something to forget: at least, and as a multiple of one."""

AS_LONG = 2.0
"""So many times as long as writing took may be taken to forget, where there is that much."""

REST_S = 0.5
"""Between two steps while there is nothing."""

LOG_S = 30.0
"""Between two times at which the log is emptied, which waits for the disk."""

LONG_S, SHORT_S = 0.004, 0.002
"""A step that took longer is followed by one half as large; a shorter one by a larger.

Of the processor: how long a busy machine lets it wait says nothing of how large it is.
"""

LEAST, MOST = 4, 256
"""Rollouts that one step may forget."""

LOOKING = 16
"""So many where nothing was forgotten."""

LOOKED_AT_FOR_EACH = 8
"""A look costs so much less than forgetting."""

FREE_BYTES_KEPT, FREE_SHARE_KEPT = 1_000_000, 8
"""A free page is written to again soon; only more than these, and than that part, go back."""


def limits_of(settings: Settings) -> Limits:
    """Return how much settings let a store keep."""
    days, mb = settings.retention_days, settings.retention_mb
    return Limits(
        age_s=None if days is None else days * DAY_S,
        rollouts=settings.retention_rollouts,
        used_bytes=None if mb is None else mb * MB,
    )


class Excess(NamedTuple):
    """How a store stands to its limits.

    Attributes:
        over: What is beyond its limit: ``days``, ``rollouts``, ``mb``.
        kept: What keeps it so, of the oldest rollouts that have ended.
    """

    over: list[str]
    kept: Kept

    def __str__(self) -> str:
        """Return it in words for an operator; empty if nothing is beyond its limit."""
        if not self.over:
            return ""
        reasons = {
            "not learned from yet": self.kept.unlearned,
            "waiting for a reward": self.kept.waiting,
            "not counted by a trial yet": self.kept.uncounted,
            "open again": self.kept.open,
            "about to be deleted": self.kept.forgettable,
        }
        told = [f"{count:,} {reason}" for reason, count in reasons.items() if count]
        oldest = f"of the {self.kept.looked_at:,} oldest {', '.join(told)}"
        return f"beyond {', '.join(self.over)}: {oldest if told else 'all rollouts are open'}"


def excess(retention: Retention, limits: Limits, *, now: float, look: int = LOOKED_AT) -> Excess:
    """Return what of a store is beyond its limits, and what keeps it."""
    size = retention.size()
    kept = retention.kept(before=limits.ended_before(size, now=now), look=look)
    aged = limits.age_s is not None and retention.kept(before=now - limits.age_s, look=1).looked_at
    beyond = {
        "days": aged,
        "rollouts": limits.rollouts is not None and size.rollouts > limits.rollouts,
        "mb": limits.used_bytes is not None and size.used_bytes > limits.used_bytes,
    }
    return Excess([name for name, is_over in beyond.items() if is_over], kept)


class Forgetting:
    """Forgets what is beyond the limits of a store, step by step.

    Args:
        limits: What may be kept.
        monotonic: Seconds, for the pauses between steps.
        processor: Seconds of the thread's own, for how long steps take.

    Attributes:
        forgotten: How many rollouts went.
        longest_s: What the longest step took of the processor.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        processor: Callable[[], float] = time.thread_time,
    ) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._processor = processor
        self._next = float("-inf")
        self._rollouts: Place = OLDEST
        self._rewards: Place | None = None
        self._until = OLDEST.at
        self._at_once = LEAST
        self._pages = LEAST
        self._can_give_back = True  # a copy that was made without incremental vacuum cannot
        self._uncut = False
        self._emptied = float("-inf")
        self.forgotten = 0
        self.longest_s = 0.0

    def steps(self, retention: Retention, *, now: float, written_s: float) -> None:
        """Do a little if it is time to, and more while much is written.

        A rollout is forgotten in about the time in which it was written: who never rests would
        outrun single steps.

        Args:
            retention: Of the store, in the thread that it belongs to.
            now: Epoch seconds, UTC.
            written_s: What was written since the last call took of the processor.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        until = self._processor() + AS_LONG * written_s
        while self.step(retention, now=now) and self._processor() < until:
            self._next = self._monotonic()

    def step(self, retention: Retention, *, now: float) -> bool:
        """Do a little, if it is time to; return whether something was forgotten or given back.

        Args:
            retention: Of the store, in the thread that it belongs to.
            now: Epoch seconds, UTC.

        Raises:
            StoreError: The store failed; the next step tries again.
        """
        if not self._limits or self._monotonic() < self._next:
            return False
        self._next = self._monotonic() + REST_S
        began = self._processor()
        size = retention.size()
        busy = self._forget(retention, size, now=now) or self._tidy(retention, size)
        took = self._processor() - began
        self.longest_s = max(self.longest_s, took)
        if busy:
            self._next = self._monotonic() + max(PACE_S, SHARE * took)
        return busy

    def _forget(self, retention: Retention, size: Size, *, now: float) -> bool:
        began = self._processor()
        at_once = self._at_once
        if self._rewards is not None:
            swept = retention.sweep_rewards(
                before=self._until,
                limit=at_once,
                look=at_once * LOOKED_AT_FOR_EACH,
                after=self._rewards,
            )
            self._rewards = swept.place
        else:
            swept = self._forget_rollouts(retention, size, at_once, now=now)
        if swept.gone in (0, at_once) or self._processor() - began > LONG_S:
            self._at_once = _next(at_once, self._processor() - began)
        if not swept.gone:  # it only looked, which says little of how long forgetting takes
            self._at_once = min(self._at_once, LOOKING)
        self._uncut = self._uncut or swept.gone > 0
        return swept.gone > 0

    def _forget_rollouts(
        self, retention: Retention, size: Size, at_once: int, *, now: float
    ) -> Swept:
        age_s, over = self._limits.age_s, self._limits.over(size)
        aged = OLDEST.at if age_s is None else now - age_s
        swept = retention.sweep(
            before=self._limits.ended_before(size, now=now),
            limit=min(at_once, over or at_once),
            look=at_once * LOOKED_AT_FOR_EACH,
            after=self._rollouts,
        )
        self.forgotten += swept.gone
        self._until = max(self._until, aged, OLDEST.at if swept.until is None else swept.until)
        self._rollouts = swept.place or OLDEST
        if swept.place is None:  # a walk is over; now what came for rollouts that never did
            self._rewards = OLDEST
        return swept

    def _tidy(self, retention: Retention, size: Size) -> bool:
        """Give pages back beyond those that will be written to again; then empty the log."""
        kept = max((size.used_bytes + size.free_bytes) / FREE_SHARE_KEPT, FREE_BYTES_KEPT)
        if self._can_give_back and size.free_bytes > kept:
            began = self._processor()
            retention.give_back(self._pages)
            self._pages = _next(self._pages, self._processor() - began)
            self._can_give_back = retention.size().free_bytes < size.free_bytes
            self._uncut = True
            return self._can_give_back
        if self._uncut and self._monotonic() >= self._emptied + LOG_S:
            self._uncut = not retention.empty_log()
            self._emptied = self._emptied if self._uncut else self._monotonic()
        return False


def _next(at_once: int, took_s: float) -> int:
    """Return how much the next step does, after how long this one took."""
    if took_s > LONG_S:
        return max(LEAST, at_once // 2)
    return min(MOST, at_once * 2) if took_s < SHORT_S else at_once
