"""The writer thread's side: one connection, one transaction a batch, and the housekeeping between.

What cannot be stored while the store fails waits: one batch here, the rest in the queue, which
takes whole runs or none. It is stored when the store works again, which is tried with a write.
While the gate holds nothing new is taken; what was open when it tripped is ended truthfully.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tau_live.core import fault
from tau_live.core.clock import Jump, Jumps
from tau_live.core.errors import StoreBusyError, StoreError
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
from tau_live.record.archive import Forgetting, limits_of
from tau_live.record.inbox import BATCH_LIMIT
from tau_live.record.pipeline import Pipeline
from tau_live.record.trouble import Trouble
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.record.whole_runs import RecordItem

HEARTBEAT_S = 5.0
HEARTBEAT_TTL_S = 20.0
REOPEN_S = 0.5
BREATH_S = 0.004
"""Between two batches in a row: who waits for SQLite's lock looks only now and then."""
HOUSEKEEPING_S = 1.0
DAY_S = 86_400.0
"""What ended so much later than now was dated by a clock that was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Callbacks of the writer, called in its thread.

    Attributes:
        ready: Something became fit to be learned from.
        changed: Another process has written, or the store was just opened.
        look: It is time to refresh what is known of the store in memory.
        failed: Something could not be stored, through no fault of the store.
        failing: The store has failed.
        gate_changed: The gate has changed.
        counts: Returns what is to be counted in the store.
        mark: Calls back, in this thread, when all that was taken by now has come here.
    """

    ready: Callable[[], None]
    changed: Callable[[Store], None]
    look: Callable[[Store], None]
    failed: Callable[[Exception], None]
    failing: Callable[[], None]
    gate_changed: Callable[[], None]
    counts: Callable[[], dict[str, int]]
    mark: Callable[[Callable[[], None]], None]


class Writer:
    """Stores batches of events and looks after the store.

    Args:
        open_: Opens the store and makes the pipeline on it.
        gate: Counts failures and successes; brought into line with the store here.
        owner: This process, as ``machine.processes.this_process`` names it.
        settings: What to forget when, and how many failures in a row hold the gate.
        listeners: Its callbacks.
        clock: Epoch seconds.

    Attributes:
        kept_back: Whether something came here that could not be stored yet.
        trouble: The trouble with the store.
    """

    def __init__(
        self,
        open_: Callable[[], tuple[Store, Pipeline]],
        *,
        gate: GateKeeper,
        owner: str,
        settings: Settings,
        listeners: Listeners,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open = open_
        self._gate = gate
        self._owner = owner
        self._forgetting = Forgetting(limits_of(settings))
        self._sign = MemoryHoldSign(settings.store)
        self._listeners = listeners
        self._clock = clock
        self._store: Store | None = None
        self._pipeline: Pipeline | None = None
        self._raw: deque[Event] = deque()
        self._prepared: deque[RecordItem] = deque()
        self._epoch = gate.epoch
        self._ending = False
        self._stale = False
        self._beaten = self._kept = self._tried = float("-inf")
        self._counted: dict[str, int] = {}
        self._pause = Latch()
        self._jumps = Jumps(clock)
        self._passed_over: list[Jump] = []
        self._stored_before_jumps = True
        self._forward_s = 0.0
        self._passed = True
        self._knows = False
        self.kept_back = False
        self.trouble = Trouble(
            gate,
            limit=settings.max_failure_streak,
            has_room=partial(can_write_in, settings.store.absolute().parent),
            clock=clock,
        )

    @property
    def backlog(self) -> int:
        """How many events wait for the store to work again."""
        return len(self._raw) + len(self._prepared)

    def lost_count(self) -> int:
        """Return how many events were lost that the store does not know of, once this is closed."""
        grown = _increase(self._listeners.counts(), self._counted)
        return self.backlog + sum(lost_events(grown).values())

    def gives_up(self) -> bool:
        """Return whether the store has failed for so long that nobody should wait for it."""
        return self.trouble.lasts

    def write(self, events: Sequence[Event]) -> None:
        """Store a batch; what cannot be stored now waits."""
        self._raw.extend(events)
        try:
            self._note_hold()
            fault.point("writer.taken")
            if not self.trouble.is_there and self._is_open():
                self._drain()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._note_failure(error)
        if len(events) >= BATCH_LIMIT:  # or others would find the store locked all the time
            self._pause.wait(BREATH_S)
        self.kept_back = self.backlog > 0

    def read(self, reader: Callable[[Store], None]) -> None:
        """Let somebody read the store in this thread, if it is open and works."""
        try:
            if self._store is not None and not self.trouble.is_there:
                reader(self._store)
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._note_failure(error)

    def tick(self) -> None:
        """Look after backlog, gate, heartbeat, overdue rewards and counters, between batches."""
        try:
            self.trouble.look_beside()
            self._note_hold()
            if self._is_open():
                self._drain()
                self._look()
                self._keep_house(self._clock())
                self._go_on()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._note_failure(error)
        self.kept_back = self.backlog > 0
        self._sign.show(self._gate.held_in_memory)
        if self._passed != self._gate.passes:
            self._passed = self._gate.passes
            self._listeners.gate_changed()

    def hurry(self) -> None:
        """Leave no room for others between batches any more: the end is near."""
        self._pause.set()

    def close(self) -> None:
        """Store what waits, end what is open, and close the store."""
        self._kept = self._tried = float("-inf")
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
                    self._pipeline.collector.end_open(reason=reason, at=self._clock())
                self._store.leases.release(PROCESSES + self._owner, self._owner)
        except Exception as error:  # noqa: BLE001  # nothing may keep the process from ending
            self._note_failure(error)
        self._give_up()

    def _note_failure(self, error: Exception) -> None:
        """Tell a failure to whom it concerns; a store that goes on failing is opened anew."""
        if not isinstance(error, StoreError):
            self._listeners.failed(error)
            return
        self.trouble.note_failure(error, opening=not self._knows)
        self._knows = self._knows or not isinstance(error, StoreBusyError)
        self._listeners.failing()
        if self.trouble.lasts:
            self._give_up()

    def _give_up(self) -> None:
        store, self._store, self._pipeline = self._store, None, None
        if store is not None:
            store.close()

    def _go_on(self) -> None:
        """Go on as before when what failed works again, which only a write can tell."""
        store = self._store
        if store is not None and not self.backlog and self.trouble.is_there:
            self._beat(store, self._clock())
            if self._gate.store_error is None:
                self.trouble.note_success()

    def _is_open(self) -> bool:
        store = self._store
        if store is not None and store.is_there():
            return True
        if store is not None:  # nobody would ever see what goes into it
            what = "the store's file was removed, replaced or emptied while it was open"
            self._gate.hold(HoldReason.STORE_REPLACED, at=self._clock(), detail=what)
            self._give_up()
            store.set_leftovers_aside()
            return False
        now = time.monotonic()
        if now - self._tried < REOPEN_S:
            return False
        self._tried = now
        store, self._pipeline = self._open()
        try:
            self._beat(store, self._clock())
            store.rewards.redate(before=math.inf, after=self._clock() + DAY_S)
            self._end_orphans(store, self._pipeline)
            store.has_changed()
            self._gate.refresh(store.gate, at=self._clock())
            self._listeners.changed(store)
        except BaseException:
            self._pipeline = None
            store.close()
            raise
        self._store = store
        self._sign.prepare()
        self._knows = True
        return True

    def _drain(self) -> None:
        store, pipeline = self._store, self._pipeline
        if store is None or pipeline is None:
            return
        began = time.thread_time()
        if self._raw:
            self._prepared.extend(pipeline.prepare(list(self._raw)))
            self._raw.clear()
        while self._prepared:
            fault.point("writer.prepared")
            self._store_batch(pipeline)
        if self._ending:
            with store.begin():
                pipeline.collector.end_open(reason=Reason.INTERRUPTED, at=self._clock())
            self._ending = False
        now, took_s = self._clock() - self._forward_s, time.thread_time() - began
        self._forgetting.steps(store.retention, now=now, written_s=took_s)

    def _store_batch(self, pipeline: Pipeline) -> None:
        batch = [self._prepared[n] for n in range(min(BATCH_LIMIT, len(self._prepared)))]
        stored = pipeline.store(batch)
        fault.point("writer.stored")
        for _ in batch:
            self._prepared.popleft()
        self.trouble.wrote()
        if stored.refused < len(batch):
            self._gate.record_success(Kind.COLLECTION, at=self._clock())
        else:  # one bad event is its host's; nothing but bad ones may be ours
            text = "no event of a batch could be stored"
            self._gate.record_failure(Kind.COLLECTION, text, at=self._clock())
        if stored.ready:
            self._listeners.ready()

    def _note_hold(self) -> None:
        """When the gate has gone to hold, end what is open behind what was taken until then.

        The ends of runs that were over by then may still wait to be stored; runs that begin after
        a reset come behind the mark.
        """
        if self._epoch != self._gate.epoch:
            self._epoch = self._gate.epoch
            self._listeners.mark(self._end_open_next)

    def _end_open_next(self) -> None:
        self._ending = True
        try:
            self._drain()
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._note_failure(error)

    def _look(self) -> None:
        """Take over what other processes changed, and give them what changed here."""
        store = self._store
        if store is None:
            return
        self._stale = store.has_changed() or self._stale  # until it has been looked at with success
        if self._stale or self._gate.has_unsaved or self._gate.store_error is not None:
            self._gate.refresh(store.gate, at=self._clock())
        if self._stale:
            self._listeners.changed(store)
            self._stale = self._gate.store_error is not None

    def _keep_house(self, now: float) -> None:
        store, pipeline = self._store, self._pipeline
        if store is None or pipeline is None or 0.0 <= now - self._kept < HOUSEKEEPING_S:
            return
        self._kept = now
        self._note_jump()
        if not 0.0 <= now - self._beaten < HEARTBEAT_S:
            self._beat(store, now)
        self._redate(store)
        if self._gate.passes and not self._passed_over:
            with store.begin():
                if pipeline.collector.expire(now):
                    self._listeners.ready()
        counts = self._listeners.counts()
        if more := _increase(counts, self._counted):
            store.counters.add(more)
            self._counted = counts
        self._listeners.look(store)

    def _note_jump(self) -> None:
        """Notice that the machine's clock was set; what was taken before then is stored first."""
        jump = self._jumps.take_jump()
        if jump is None:
            return
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
                store.rewards.redate(before=jump.before, after=jump.after)
                store.counters.add({"clock_was_set": 1})
            self._passed_over.clear()

    def _beat(self, store: Store, now: float) -> None:
        store.leases.acquire(PROCESSES + self._owner, self._owner, ttl_s=HEARTBEAT_TTL_S, now=now)
        self._beaten = now
        self.trouble.wrote()

    def _end_orphans(self, store: Store, pipeline: Pipeline) -> None:
        """End what processes left open that do not live any more."""
        now = self._clock()
        held = store.leases.holders(PROCESSES, now=now)
        for owner in store.rollouts.owners():
            alive = is_alive(owner)
            if alive is None:
                alive = PROCESSES + owner in held
            if not alive and owner != self._owner:
                with store.begin():
                    pipeline.collector.end_owned(owner, reason=Reason.ABANDONED, at=now)


def _increase(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: more for name, n in counts.items() if (more := n - before.get(name, 0))}
