"""The writer's thread: one connection, one transaction per batch, and housekeeping in between.

While the store fails, events wait: one batch here, the rest in the queue, which takes whole runs or
none. They are stored when the store works again, which is tested with a write. While the gate holds
no new events are taken; runs that were open when it began to hold are ended as interrupted.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tau_live.core import fault
from tau_live.core.clock import Jump, Jumps
from tau_live.core.errors import StoreBusyError, StoreError, StoreUnavailableError
from tau_live.core.events import Event
from tau_live.core.files import can_write_in
from tau_live.core.gate import HoldReason, Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import logger
from tau_live.core.memory_holds import MemoryHoldSign
from tau_live.core.processes import PROCESSES, is_alive
from tau_live.core.reasons import lost_events
from tau_live.core.records import Reason
from tau_live.core.settings import Settings
from tau_live.core.sync import Latch
from tau_live.record.archive import Pruner, limits_of
from tau_live.record.collector import Collector
from tau_live.record.heartbeats import RESTS, Heart
from tau_live.record.inbox import BATCH_LIMIT
from tau_live.record.pipeline import Pipeline
from tau_live.record.trouble import Trouble
from tau_live.store.records import Topic
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.record.whole_runs import RecordItem

REOPEN_S = 0.5
SKEW_S = 1.0
"""How far the clock of a machine may be off before the clock of a shared store is used."""

BATCH_PAUSE_S = 0.004
"""Pause between consecutive batches: processes waiting for SQLite's lock poll only now and then."""
HOUSEKEEPING_S = 1.0
DAY_S = 86_400.0
"""Rollouts that ended further in the future than this were dated by a wrong clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Callbacks of the writer, called in its thread.

    Attributes:
        ready: Rollouts became ready to be learned from.
        changed: Another process has changed topics, or the store was just opened.
        look: It is time to refresh the state kept in memory; also for all, if this process keeps
            house for them.
        poll: Called several times a second, so it must be cheap.
        failed: Events could not be stored, through no fault of the store.
        failing: The store has failed.
        gate_changed: The gate has changed.
        counts: Returns the counters to be stored.
        mark: Calls back, in this thread, when all events taken by now have arrived here.
    """

    ready: Callable[[], None]
    changed: Callable[[Store, Collection[Topic]], None]
    look: Callable[[Store, bool], None]
    poll: Callable[[Store], None] = lambda _store: None
    failed: Callable[[Exception], None]
    failing: Callable[[], None]
    gate_changed: Callable[[], None]
    counts: Callable[[], dict[str, int]]
    mark: Callable[[Callable[[], None]], None]


class Writer:
    """Stores batches of events and maintains the store.

    Args:
        open_: Opens the store and builds the pipeline on it.
        gate: Counts failures and successes; synchronised with the store here.
        owner: This process, as named by ``core.processes.this_process``.
        settings: Retention, and the failures after which the gate holds.
        listeners: Its callbacks.
        spools: Whether the store is a spool: what processes share is elsewhere, and so are the
            gate and all housekeeping but that of the spool.
        clock: Returns epoch seconds.

    Attributes:
        kept_back: Whether events wait here that could not be stored yet.
        trouble: The trouble with the store.
    """

    def __init__(  # noqa: PLR0913  # its parts, all keyword-only but one
        self,
        open_: Callable[[], tuple[Store, Pipeline]],
        *,
        gate: GateKeeper,
        owner: str,
        settings: Settings,
        listeners: Listeners,
        spools: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._spools = spools
        self._open = open_
        self._gate = gate
        self._owner = owner
        self._pruner = Pruner(limits_of(settings))
        self._sign = MemoryHoldSign(settings.store)
        self._listeners = listeners
        self._clock = clock
        self._store: Store | None = None
        self._pipeline: Pipeline | None = None
        self._raw: deque[Event] = deque()
        self._prepared: deque[RecordItem] = deque()
        self._epoch = gate.epoch
        self._ending = False
        self._stale: frozenset[Topic] = frozenset()
        self._housekept_at = self._opened_at = self._keep_house_at = float("-inf")
        self._heart = Heart(owner, gate, limit=settings.max_failure_streak)
        self._counted: dict[str, int] = {}
        self._pause = Latch()
        self._jumps = Jumps(clock)
        self._passed_over: list[Jump] = []
        self._stored_before_jumps = True
        self._forward_s = self._skew_s = 0.0
        self._passed = True
        self._has_opened = False
        self._keeps_house = False
        self.kept_back = False
        self.trouble = Trouble(
            gate,
            limit=settings.max_failure_streak,
            has_room=partial(can_write_in, settings.store.absolute().parent),
            clock=clock,
        )

    def _now(self) -> float:
        """Return the time, in epoch seconds: the store's where machines share it."""
        return self._clock() + self._skew_s

    @property
    def backlog(self) -> int:
        """How many events wait for the store to work again."""
        return len(self._raw) + len(self._prepared)

    def lost_count(self) -> int:
        """Return how many events were lost without being counted in the store, once closed."""
        grown = _increase(self._listeners.counts(), self._counted)
        return self.backlog + sum(lost_events(grown).values())

    def gives_up(self) -> bool:
        """Return whether the store has failed so long that waiting for it is useless."""
        return self.trouble.holds_gate

    def write(self, events: Sequence[Event]) -> None:
        """Store a batch; events that cannot be stored now wait."""
        self._raw.extend(events)
        try:
            self._note_hold()
            fault.point("writer.taken")
            if not self.trouble.is_failing and self._is_open():
                self._drain()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._handle_failure(error)
        if len(events) >= BATCH_LIMIT:  # or others would find the store locked all the time
            self._pause.wait(BATCH_PAUSE_S)
        self.kept_back = self.backlog > 0

    def read(self, reader: Callable[[Store], None]) -> None:
        """Call a reader of the store in this thread, if the store is open and works."""
        try:
            if self._store is not None and not self.trouble.is_failing:
                reader(self._store)
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._handle_failure(error)

    def tick(self) -> None:
        """Handle backlog, gate, heartbeat, overdue rewards and counters, between batches."""
        try:
            self.trouble.check_learner_room()
            self._note_hold()
            if self._is_open():
                self._drain()
                self._send_heartbeat()
                if not self._spools:
                    self._look()
                self._keep_house(self._now())
                self._end_trouble()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._handle_failure(error)
        self.kept_back = self.backlog > 0
        self._sign.show(self._gate.held_in_memory)
        if self._passed != self._gate.passes:
            self._passed = self._gate.passes
            self._listeners.gate_changed()

    def hurry(self) -> None:
        """Skip the pauses between batches from now on, as the process ends."""
        self._pause.set()

    def close(self) -> None:
        """Store waiting events, end open runs, and close the store."""
        self._housekept_at = self._opened_at = self._keep_house_at = float("-inf")
        self._epoch = self._gate.epoch  # what is open is ended here in any case
        self.tick()
        self._sign.show(None)
        if self._store is None or self._pipeline is None:
            return
        try:
            fault.point("writer.closing")
            with self._store.begin():
                if not self.backlog:
                    reason = Reason.ABANDONED if self._gate.passes else Reason.INTERRUPTED
                    self._pipeline.collector.end_open(reason=reason, at=self._now())
                self._heart.leave(self._store)
        except Exception as error:  # noqa: BLE001  # nothing may keep the process from ending
            self._handle_failure(error)
        self._close_store()

    def _handle_failure(self, error: Exception) -> None:
        """Report a failure of an event or of the store; a store that keeps failing is reopened."""
        if not isinstance(error, StoreError):
            self._listeners.failed(error)
            return
        self.trouble.record_failure(error, opening=not self._has_opened)
        self._has_opened = self._has_opened or not isinstance(error, StoreBusyError)
        self._listeners.failing()
        if self.trouble.holds_gate:
            self._close_store()

    def _close_store(self) -> None:
        store, self._store, self._pipeline = self._store, None, None
        if store is not None:
            store.close()

    def _end_trouble(self) -> None:
        """End the trouble once the store works again, which only a write can show."""
        store = self._store
        if store is not None and not self.backlog and self.trouble.is_failing:
            self._beat(store)
            if self._spools or self._gate.store_error is None:
                self.trouble.record_success()

    def _is_open(self) -> bool:
        store = self._store
        if store is not None and store.is_there():
            return True
        if store is not None:  # rows written to the lost file would never be read
            what = "the store's file was removed, replaced or emptied while it was open"
            if not self._spools:
                self._gate.hold(HoldReason.STORE_REPLACED, at=self._now(), detail=what)
            self._close_store()
            store.set_leftovers_aside()
            if self._spools:  # this is no reason to hold other hosts
                raise StoreUnavailableError(what.replace("store", "spool", 1))
            return False
        now = time.monotonic()
        if now - self._opened_at < REOPEN_S:
            return False
        self._opened_at = now
        store, self._pipeline = self._open()
        try:
            store.changes()
            if not self._spools:
                self._gate.refresh(store.gate)
            self._heart.stop()
            self._beat(store)
            _redate(store, before=math.inf, after=self._now() + DAY_S)
            end_orphans(store, self._pipeline.collector, owner=self._owner, now=self._now())
            self._listeners.changed(store, frozenset(Topic))
        except BaseException:
            self._pipeline = None
            store.close()
            raise
        self._store = store
        self._sign.prepare()
        self._has_opened = True
        return True

    def _drain(self) -> None:
        store, pipeline = self._store, self._pipeline
        if store is None or pipeline is None:
            return
        began = time.thread_time()
        if self._raw:
            self._prepared.extend(pipeline.prepare(self._dated_events()))
            self._raw.clear()
        while self._prepared:
            fault.point("writer.prepared")
            self._store_batch(pipeline)
        if self._ending:
            with store.begin():
                pipeline.collector.end_open(reason=Reason.INTERRUPTED, at=self._now())
            self._ending = False
        if self._spools:
            return
        now, took_s = self._now() - self._forward_s, time.thread_time() - began
        self._pruner.steps(store.retention, now=now, written_s=took_s)

    def _dated_events(self) -> list[Event]:
        """Return the events that wait, dated by the clock of the store."""
        if not self._skew_s:
            return [*self._raw]
        return [replace(event, at=event.at + self._skew_s) for event in self._raw]

    def _store_batch(self, pipeline: Pipeline) -> None:
        batch = [*islice(self._prepared, BATCH_LIMIT)]
        began = time.monotonic()
        stored = pipeline.store(batch)
        fault.point("writer.stored")
        for _ in batch:
            self._prepared.popleft()
        self.trouble.record_write(time.monotonic() - began)
        if stored.refused < len(batch):
            self._gate.record_success(Kind.COLLECTION, at=self._now())
        else:  # one bad event is its host's fault; a batch of them may be ours
            text = "no event of a batch could be stored"
            self._gate.record_failure(Kind.COLLECTION, text, at=self._now())
        if stored.ready:
            self._listeners.ready()

    def _note_hold(self) -> None:
        """When a hold begins, end the runs that are open behind the events taken until then.

        The ends of runs that were over by then may still wait to be stored; runs that begin after
        a reset come after the mark.
        """
        if self._epoch != self._gate.epoch:
            self._epoch = self._gate.epoch
            self._listeners.mark(self._end_open_next)

    def _end_open_next(self) -> None:
        self._ending = True
        try:
            self._drain()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._handle_failure(error)

    def _send_heartbeat(self) -> None:
        """Send a heartbeat if it is due, which also reads topics that are shared by machines."""
        if self._store is not None and self._heart.is_due(self._store):
            self._beat(self._store)

    def _look(self) -> None:
        """Take over changes by other processes, and write changes made here."""
        store = self._store
        if store is None:
            return
        self._stale |= store.changes()  # until they were read successfully
        unsaved = self._gate.has_unsaved or self._gate.store_error is not None
        if unsaved or Topic.GATE in self._stale:
            self._gate.refresh(store.gate)
        if self._stale:
            self._listeners.changed(store, self._stale)
            if self._gate.store_error is None:
                self._stale = frozenset()
        self._listeners.poll(store)

    def _keep_house(self, now: float) -> None:
        store, pipeline = self._store, self._pipeline
        if store is None or pipeline is None or 0.0 <= now - self._housekept_at < HOUSEKEEPING_S:
            return
        began = time.monotonic()
        if store.is_shared and began < self._keep_house_at:
            return
        self._housekept_at = now
        self._note_jump()
        self._redate(store)
        keeps_house = self._keeps_house and not self._spools
        if keeps_house and self._gate.passes and not self._passed_over:
            with store.begin():
                store.queue.expire(now=now)
                if pipeline.collector.expire(now):
                    self._listeners.ready()
        counts = self._listeners.counts()
        if more := _increase(counts, self._counted):
            store.counters.add(more)
            self._counted = counts
        self._listeners.look(store, self._keeps_house)
        self._keep_house_at = time.monotonic() + RESTS * (time.monotonic() - began)

    def _note_jump(self) -> None:
        """Notice a jump of the machine's clock; events taken before it are stored first."""
        jump = self._jumps.take_jump()
        if jump is None:
            return
        self._heart.stop()  # the lease may be over
        logger().warning("clock_was_set", by_s=round(jump.by_s), effect="deadlines are extended")
        self._passed_over.append(jump)
        self._forward_s += max(0.0, jump.by_s)
        self._stored_before_jumps = False
        self._listeners.mark(self._reached_jump)

    def _reached_jump(self) -> None:
        self._stored_before_jumps = True

    def _redate(self, store: Store) -> None:
        if self._stored_before_jumps:
            for jump in self._passed_over:
                _redate(store, before=jump.before, after=jump.after)
                store.counters.add({"clock_was_set": 1})
            self._passed_over.clear()

    def _set_skew(self, store: Store) -> None:
        """Measure by how much the clock of the store is ahead of this machine's."""
        if not store.is_shared:
            return
        ahead_s = store.now() - self._clock()
        had_skew, self._skew_s = bool(self._skew_s), ahead_s if abs(ahead_s) > SKEW_S else 0.0
        if self._skew_s and not had_skew:
            logger().warning("clock_differs", by_s=round(-ahead_s, 1), effect="the store's is used")

    def _beat(self, store: Store) -> None:
        self._set_skew(store)
        self._keeps_house = self._heart.beat(store)
        self.trouble.record_write()


def end_orphans(store: Store, collector: Collector, *, owner: str, now: float) -> None:
    """End the open runs of dead processes, but not those of this one."""
    held = store.leases.holders(PROCESSES)
    for other in store.rollouts.owners():
        alive = is_alive(other)
        if alive is None:
            alive = PROCESSES + other in held
        if not alive and other != owner:
            with store.begin():
                collector.end_owned(other, reason=Reason.ABANDONED, at=now)


def _redate(store: Store, *, before: float, after: float) -> None:
    """Move waits on with this machine's clock, unless the store goes by another, which decides."""
    if not store.is_shared:
        store.rewards.redate(before=before, after=after)


def _increase(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: more for name, n in counts.items() if (more := n - before.get(name, 0))}
