"""Trouble of a process with its store: logged once, held while it lasts, over by itself.

A store that others keep busy is waited for: decisions go on, from memory, and what is to be stored
waits there, bounded. Where it fails in any other way, nobody sees what comes of decisions, no
monitor works, and no operator can be heard; so after a few failures in a row the gate holds in
memory, and the host makes its own choices until the store works again.

The learner may lack room or descriptors while the writer needs none: that holds as well, until a
file can be written where the learner's are.
"""

import re
import threading
import time
from collections.abc import Callable

from tau_live.core.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreFilesError,
    StoreUnavailableError,
    StoreVersionError,
    TauLiveError,
)
from tau_live.core.files import is_passing
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import logger, text_of

_CAUSES = 20
_RANDOM = re.compile(r"\.[^/'\"\s]*\.part|\b[0-9a-f]{16}\b|[0-9]+|0x[0-9a-f]+")
"""What differs from one message of the same cause to the next: temporary names, sums, numbers."""

RELAPSE_S = 5.0
"""A store that fails again so soon did not work again: each time the gate holds twice as long."""

LONGEST_HOLD_S = 60.0

LOOK_S = 1.0
"""How often is looked whether there is room for the learner's files again."""

BUSY = "decisions continue; events wait in memory"
FAILS = "the host makes its own choices until the store works again"
DAMAGED = "`tau-live set-aside` keeps its files and starts an empty store"
NEWER = "use the tau-live version that wrote it, or another TAU_LIVE_RL_STORE"
MEND = "free disk space, grant access or restore the file; it resumes by itself"
WAIT = "stop the process that locks it; it resumes by itself"


class Trouble:
    """Counts failures of the store in a row, and tells the gate and the log.

    Args:
        gate: Holds in memory while it lasts, unless others merely keep the store busy.
        limit: How many failures in a row are needed for that.
        has_room: Whether a file can be written where the learner's are.
        clock: Epoch seconds.
        monotonic: Seconds, for how long a store works and fails.

    Attributes:
        lasts: Whether the gate holds because of it.
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
        self._failed_at = self._worked_at = float("-inf")
        self._works = 0
        self._seen_working = -1
        self._beside: TauLiveError | None = None
        self._beside_since = 0.0
        self._beside_streak = 0
        self._beside_holds = 0
        self._look_at = 0.0
        self.lasts = False

    @property
    def is_there(self) -> bool:
        """Whether the last thing that was tried has failed."""
        return self._error is not None

    def note_failure(self, error: TauLiveError, *, opening: bool = False) -> None:
        """Record a failure of the writer thread.

        Args:
            error: The error.
            opening: Whether the store was being opened for the first time: then one is enough.
        """
        now = self._monotonic()
        if self._error is None:
            self._since = self._clock()
            self._relapses = self._relapses + 1 if now - self._worked_at < RELAPSE_S else 0
        self._error, self._failed_at = error, now
        self.say(error)
        if isinstance(error, StoreBusyError):
            return
        self._streak += 1
        if opening or self._streak >= self._limit:
            self.lasts = True
            self._gate.suspend(text_of(error), at=self._clock())

    def wrote(self) -> None:
        """Record that something was written."""
        self._works += 1

    def note_success(self) -> None:
        """Record that everything pending was written: the trouble is over.

        A store that works for a moment only, such as one whose log may not grow any more, is not
        believed at once: or the gate would change every second.
        """
        now = self._monotonic()
        if self._error is None:
            return
        if self._relapses:
            wait_s = min(RELAPSE_S * 2.0 ** (self._relapses - 1), LONGEST_HOLD_S)
            if self.lasts and now - self._failed_at < wait_s:
                return
        self._worked_at = now
        logger().warning(
            "store_works_again", after_s=round(max(0.0, self._clock() - self._since), 1)
        )
        with self._lock:
            self._error, self._streak, self.lasts = None, 0, False
            self._causes.clear()
            held = self._beside_streak >= self._limit
        if not held:
            self._gate.resume()

    def lacks_room(self, error: Exception) -> bool:
        """Return whether an update fails for want of what the disk or the system gives to all."""
        if isinstance(error, StoreBusyError | StoreDamagedError):
            return False
        if is_passing(error):
            return True
        return isinstance(error, StoreUnavailableError) and not self._has_room()

    def failed_beside(self, failure: Exception) -> None:
        """Record that the learner lacks room or descriptors, whatever the writer can do."""
        error = StoreFilesError(text_of(failure))
        self.say(error)
        now = self._monotonic()
        with self._lock:
            if self._beside is None:
                self._beside_since = self._clock()
            self._beside, self._beside_streak = error, self._beside_streak + 1
            holds = self._beside_streak == self._limit
            if holds:
                self._look_at = now + min(2.0**self._beside_holds, LONGEST_HOLD_S)
                self._beside_holds += 1
        if holds:
            self._gate.suspend(text_of(error), at=self._clock())

    def worked_beside(self) -> None:
        """Record that the learner has kept an update."""
        with self._lock:
            self._beside, self._beside_streak, self._beside_holds = None, 0, 0

    def look_beside(self) -> None:
        """End a hold because of the learner's files if there is room for them now.

        Each time that this turns out wrong it is looked later.
        """
        now = self._monotonic()
        with self._lock:
            waits = self._beside_streak < self._limit or now < self._look_at
            if not waits:
                self._look_at = now + LOOK_S
        if waits or not self._has_room():
            return
        with self._lock:
            self._beside, self._beside_streak = None, 0
            self._causes.clear()
        logger().warning(
            "store_works_again", after_s=round(max(0.0, self._clock() - self._beside_since), 1)
        )
        if not self.lasts:
            self._gate.resume()

    def is_only_here(self, error: Exception) -> bool:
        """Return whether another thread's failure is its own, because the store works for the writer.

        That is so if the writer has written since the last call.
        """
        if isinstance(error, StoreBusyError):
            return False
        mine = self._error is None and self._works > self._seen_working
        self._seen_working = self._works
        return mine

    def say(self, error: TauLiveError) -> None:
        """Log why the store cannot be used, and what follows; once for each cause."""
        text = text_of(error)
        cause = _RANDOM.sub("…", text)  # whichever thread meets it
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
        """Return what keeps the store from working, as plain data; ``None`` if nothing does."""
        with self._lock:
            error, since = self._error, self._since
            if error is None and self._beside_streak >= self._limit:
                error, since = self._beside, self._beside_since
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
    if isinstance(error, StoreDamagedError):
        return DAMAGED
    return NEWER if isinstance(error, StoreVersionError) else MEND
