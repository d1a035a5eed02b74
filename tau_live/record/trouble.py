"""A process's trouble with its store: logged once per cause, it holds the gate until it is over.

A store kept busy by others is waited for: decisions go on, from memory, and events wait there,
bounded. If it fails in any other way, no outcomes of decisions are stored, no monitor works, and no
operator can interfere; so after a few consecutive failures the gate holds in memory, and the host
makes its own choices until the store works again.

The learner may lack room or descriptors while the writer needs none: that holds the gate as well,
until a file can be written in the learner's folder.
"""

import re
import threading
import time
from collections.abc import Callable

from tau_live.core.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    StoreFilesError,
    StoreUnavailableError,
    StoreVersionError,
    TauLiveError,
)
from tau_live.core.files import is_passing
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import logger, text_of

_CAUSES = 20
_VARIABLE = re.compile(r"\.[^/'\"\s]*\.part|\b[0-9a-f]{16}\b|[0-9]+|0x[0-9a-f]+")
"""The variable parts of messages of one cause: temporary names, checksums, numbers."""

RELAPSE_S = 5.0
"""A store that fails again within this time has not recovered: each time the hold is doubled."""

LONGEST_HOLD_S = 60.0

SLOW_S = 3.0
"""A batch that takes longer to be stored is reported, once until the store has been in trouble."""

CHECK_S = 1.0
"""Seconds between two checks for room for the learner's files."""

BUSY = "decisions continue; events wait in memory"
FAILS = "the host makes its own choices until the store works again"
DAMAGED = "`tau-live set-aside` keeps its files and starts an empty store"
NEWER = "use the tau-live version that wrote it, or another TAU_LIVE_RL_STORE"
MEND = "free disk space, grant access or restore the file; it resumes by itself"
QUICKEN = "find out what keeps the disk, the server or the way to it so long"
WAIT = "stop the process that locks it; it resumes by itself"


class Trouble:
    """Counts consecutive store failures; holds the gate and logs them.

    Args:
        gate: The gate to hold in memory, unless others merely keep the store busy.
        limit: Consecutive failures after which it holds.
        has_room: Returns whether a file can be written in the learner's folder.
        clock: Returns epoch seconds.
        monotonic: Returns seconds, to measure how long a store works and fails.

    Attributes:
        holds_gate: Whether failures of the writer hold the gate.
    """

    def __init__(
        self,
        gate: GateKeeper,
        *,
        limit: int,
        has_room: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._limit = limit
        self._has_room = has_room
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._error: TauLiveError | None = None
        self._since = 0.0
        self._streak = 0
        self._causes: set[str] = set()
        self._relapses = 0
        self._failed_at = self._recovered_at = float("-inf")
        self._writes = 0
        self._writes_seen = -1
        self._learner_error: TauLiveError | None = None
        self._learner_since = 0.0
        self._learner_streak = 0
        self._learner_holds = 0
        self._check_at = 0.0
        self.holds_gate = False

    @property
    def is_failing(self) -> bool:
        """Whether the writer's last attempt failed."""
        return self._error is not None

    def record_failure(self, error: TauLiveError, *, opening: bool = False) -> None:
        """Record a failure of the writer thread.

        Args:
            error: The error.
            opening: Whether the store was being opened for the first time: then one failure holds.
        """
        now = self._monotonic()
        if self._error is None:
            self._since = self._clock()
            self._relapses = self._relapses + 1 if now - self._recovered_at < RELAPSE_S else 0
        self._error, self._failed_at = error, now
        self.log(error)
        if isinstance(error, StoreBusyError):
            return
        self._streak += 1
        if opening or self._streak >= self._limit:
            self.holds_gate = True
            self._gate.suspend(text_of(error), at=self._clock())

    def record_write(self, took_s: float = 0.0) -> None:
        """Record a successful write, and report one that took long.

        Args:
            took_s: How long it took, in seconds.
        """
        self._writes += 1
        if took_s >= SLOW_S and QUICKEN not in self._causes:
            with self._lock:
                self._causes.add(QUICKEN)
            logger().warning("store_slow", batch_s=round(took_s, 1), effect=BUSY, todo=QUICKEN)

    def record_success(self) -> None:
        """Record that everything pending was written: the trouble is over.

        A store that recovers only for a moment, such as one whose log may not grow any more, is not
        trusted again at once, or the gate would change every second.
        """
        now = self._monotonic()
        if self._error is None:
            return
        if self._relapses:
            wait_s = min(RELAPSE_S * 2.0 ** (self._relapses - 1), LONGEST_HOLD_S)
            if self.holds_gate and now - self._failed_at < wait_s:
                return
        self._recovered_at = now
        logger().warning(
            "store_works_again", after_s=round(max(0.0, self._clock() - self._since), 1)
        )
        with self._lock:
            self._error, self._streak, self.holds_gate = None, 0, False
            self._causes.clear()
            held = self._learner_streak >= self._limit
        if not held:
            self._gate.resume()

    def lacks_room(self, error: Exception) -> bool:
        """Return whether an update failed for lack of room, descriptors or memory."""
        if isinstance(error, StoreBusyError | StoreDamagedError):
            return False
        if is_passing(error):
            return True
        return isinstance(error, StoreUnavailableError) and not self._has_room()

    def record_learner_failure(self, failure: Exception) -> None:
        """Record that the learner lacks room or descriptors, even if the writer does not."""
        error = StoreFilesError(text_of(failure))
        self.log(error)
        now = self._monotonic()
        with self._lock:
            if self._learner_error is None:
                self._learner_since = self._clock()
            self._learner_error, self._learner_streak = error, self._learner_streak + 1
            holds = self._learner_streak == self._limit
            if holds:
                self._check_at = now + min(2.0**self._learner_holds, LONGEST_HOLD_S)
                self._learner_holds += 1
        if holds:
            self._gate.suspend(text_of(error), at=self._clock())

    def record_learner_success(self) -> None:
        """Record that the learner has stored an update."""
        with self._lock:
            self._learner_error, self._learner_streak, self._learner_holds = None, 0, 0

    def check_learner_room(self) -> None:
        """End a hold because of the learner's files if there is room for them now.

        After each relapse the next check comes later.
        """
        now = self._monotonic()
        with self._lock:
            waits = self._learner_streak < self._limit or now < self._check_at
            if not waits:
                self._check_at = now + CHECK_S
        if waits or not self._has_room():
            return
        with self._lock:
            self._learner_error, self._learner_streak = None, 0
            self._causes.clear()
        logger().warning(
            "store_works_again", after_s=round(max(0.0, self._clock() - self._learner_since), 1)
        )
        if not self.holds_gate:
            self._gate.resume()

    def is_only_here(self, error: Exception) -> bool:
        """Return whether a failure is the other thread's own, as the store works for the writer.

        That is so if the writer has written since the last call.
        """
        if isinstance(error, StoreBusyError):
            return False
        is_own = self._error is None and self._writes > self._writes_seen
        self._writes_seen = self._writes
        return is_own

    def log(self, error: TauLiveError) -> None:
        """Log why the store cannot be used, and the effect; once per cause."""
        text = text_of(error)
        cause = getattr(error, "todo", "") or _VARIABLE.sub("…", text)  # the same in every thread
        with self._lock:
            if cause in self._causes or len(self._causes) >= _CAUSES:
                return
            self._causes.add(cause)
        busy = isinstance(error, StoreBusyError)
        logger().warning(
            "store_busy" if busy else "store_fails",
            error=text,
            effect=BUSY if busy else FAILS,
            todo=advice(error),
        )

    def to_dict(self) -> dict[str, object] | None:
        """Return the current trouble as plain data; ``None`` without any."""
        with self._lock:
            error, since = self._error, self._since
            if error is None and self._learner_streak >= self._limit:
                error, since = self._learner_error, self._learner_since
        if error is None:
            return None
        return {
            "error": text_of(error),
            "busy": isinstance(error, StoreBusyError),
            "since": since,
            "todo": advice(error),
        }


def advice(error: TauLiveError) -> str:
    """Return what an operator should do about a store that cannot be used."""
    if isinstance(error, StoreBusyError):
        return WAIT
    if isinstance(error, StoreError) and error.todo:
        return error.todo
    if isinstance(error, StoreDamagedError):
        return DAMAGED
    return NEWER if isinstance(error, StoreVersionError) else MEND
