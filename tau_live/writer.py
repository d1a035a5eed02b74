"""The writer thread's side: one connection, one transaction a batch, and the housekeeping between.

What cannot be stored while the store fails waits in memory, bounded, and is stored when it works
again. While the gate holds nothing new is taken; what was open when it tripped is ended truthfully.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tau_live.errors import StoreUnavailableError, TauLiveError
from tau_live.events import Event
from tau_live.gate import GateKeeper, Kind
from tau_live.pipeline import Pipeline
from tau_live.processes import is_alive
from tau_live.rollouts import Reason
from tau_live.settings import Settings
from tau_live.store.roles import Store

HEARTBEAT_S = 5.0
HEARTBEAT_TTL_S = 20.0
REOPEN_S = 0.5
HOUSEKEEPING_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Who is told what by the writer, in its thread."""

    ready: Callable[[], None]
    store_changed: Callable[[Store], None]
    logged: Callable[[str, Exception], None]
    drops: Callable[[], dict[str, int]]


class Writer:
    """Stores batches of events and looks after the store.

    Args:
        open_: Opens the store and makes the pipeline on it.
        settings: Limits.
        gate: Counts failures and successes; synchronised with the store here.
        owner: This process, as ``processes.this_process`` names it.
        hooks: Who is told what.
        clock: Epoch seconds.
    """

    def __init__(
        self,
        open_: Callable[[], tuple[Store, Pipeline]],
        *,
        settings: Settings,
        gate: GateKeeper,
        owner: str,
        hooks: Hooks,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open = open_
        self._settings = settings
        self._gate = gate
        self._owner = owner
        self._hooks = hooks
        self._clock = clock
        self._store: Store | None = None
        self._pipeline: Pipeline | None = None
        self._backlog: deque[Event] = deque()
        self._epoch = gate.epoch
        self._beaten = self._kept = self._tried = float("-inf")
        self._counted: dict[str, int] = {}

    @property
    def backlog(self) -> int:
        """How many events wait for the store to work again."""
        return len(self._backlog)

    def setup(self) -> None:
        """Open the store, end what dead processes left, and load what serves."""
        self._opened()

    def write(self, events: Sequence[Event]) -> None:
        """Store a batch; what cannot be stored now waits."""
        try:
            if self._opened() and self._pipeline is not None:
                self._backlog.extend(self._pipeline.prepared(events))
            else:
                self._backlog.extend(events)
            self._drain()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._failed(error)
        self._bound()

    def tick(self) -> None:
        """Look after gate, heartbeat, overdue rewards and counters; called between batches."""
        try:
            if not self._opened():
                return
            self._drain()
            self._synchronise()
            now = self._clock()
            if now - self._kept >= HOUSEKEEPING_S or now < self._kept:
                self._keep_house(now)
                self._kept = now
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._failed(error)

    def close(self) -> None:
        """Store what waits and close the store."""
        self.tick()
        if self._store is not None:
            try:
                self._store.leases.release(_lease(self._owner), self._owner)
                self._store.close()
            except TauLiveError as error:
                self._hooks.logged("store_close_failed", error)
            self._store = self._pipeline = None

    def _opened(self) -> bool:
        if self._store is not None:
            return True
        now = time.monotonic()
        if now - self._tried < REOPEN_S:
            return False
        self._tried = now
        try:
            self._store, self._pipeline = self._open()
            self._beat(self._clock())
            self._end_orphans()
            self._synchronise(first=True)
        except TauLiveError as error:
            self._failed(error)
            return False
        return True

    def _drain(self) -> None:
        """Store the backlog; while the gate holds, only what was taken before it did."""
        if self._pipeline is None:
            return
        while self._backlog:
            batch = list(self._backlog)[:512]
            applied = self._pipeline.stored(batch)
            for _ in batch:
                self._backlog.popleft()
            self._gate.succeeded(Kind.COLLECTION, at=self._clock())
            if applied.ready:
                self._hooks.ready()
        if self._epoch != self._gate.epoch:
            with self._transaction() as store:
                self._pipeline.collector.end_open(reason=Reason.INTERRUPTED, at=self._clock())
                del store
            self._epoch = self._gate.epoch
