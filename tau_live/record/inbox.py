"""The bounded queue between the host's threads and the one thread that writes."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter, sleep

from msgspec.structs import replace

from tau_live.core.events import Event, Reward, RunEnd, RunStart
from tau_live.core.sync import PAUSE_S, Latch, Tally
from tau_live.record.shutdown import LazyEvent, Run, keep_whole, make_event, run_of
from tau_live.rl.throttle import giving_way, yield_gil

BATCH_LIMIT = 512
YIELD_DEPTH = BATCH_LIMIT
"""With so many events waiting for ``STARVED_S``, a host's thread yields to the writer."""
STARVED_S = 0.1
YIELD_INTERVAL_S = 0.005
"""The least time between two yields: Python's own switch interval."""
YIELD_PAUSE_FACTOR = 4
"""The host keeps the interpreter for this multiple of the last yield before the next one."""
TICK_S = 0.2
END_SHARE = 0.2
"""The share of the time for closing that is kept for ending open runs."""
LAST_WRITES_S = 0.5
"""How much longer events that keep rollouts whole are written, in seconds."""


@dataclass(slots=True)
class _Cut:
    """A run whose events are no longer taken.

    Attributes:
        started: Whether some of its events were taken.
        dropped: How many were dropped.
        why: The reason under which they are counted.
    """

    started: bool
    dropped: int = 1
    why: str = "queue_full"


class Inbox:
    """Takes events in the host's threads and passes them, in batches, to ``write`` in its own.

    Putting an event costs about a microsecond and never waits for the disk; if the writer's thread
    has long waited for the interpreter, it sleeps for a moment now and then. Beyond half of
    ``limit`` no new run is started, so that open ones have room: a rollout is kept or dropped
    whole. If one has to be cut all the same, its end is still taken and holds the number of lost
    events. Rewards and ends are taken up to twice the ``limit``; beyond that nothing is.

    Args:
        write: Stores a batch; it may take as long as it wants and must not raise.
        tick: Called at the start and about five times a second, between batches; must not raise.
        end: Called at the end, in the same thread; must not raise.
        failed: Called, in the same thread, with the error of an event that could not be made; must
            not raise.
        takes: Returns whether ``write`` can take more; until it can, or this is closed, events wait
            here, bounded.
        limit: How many events may wait.
        pause: Called in the same thread wherever it may yield to others.

    Attributes:
        closed: Whether nothing is taken any more.
    """

    def __init__(  # noqa: PLR0913  # its callbacks, all keyword-only
        self,
        *,
        write: Callable[[list[Event]], None],
        tick: Callable[[], None],
        limit: int,
        end: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda _: None,
        takes: Callable[[], bool] = lambda: True,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self._tick = tick
        self._end = end
        self._failed = failed
        self._takes = takes
        self._closing, self._over = Latch(), Latch()
        self._limit = limit
        self._half = limit // 2
        self._taken = self._next_turn = 0.0
        self._ticked = float("-inf")
        self._pause = pause
        self._queue: SimpleQueue[Event | LazyEvent | Callable[[], None] | None] = SimpleQueue()
        self._dropped = Tally()
        self._cut: OrderedDict[Run, _Cut] = OrderedDict()
        self._failed_events: OrderedDict[Run, int] = OrderedDict()  # for the writer's thread alone
        # Re-entrant: a finaliser or a signal handler may call this from within a call.
        self._lock = threading.RLock()
        self.closed = self._ends = False
        self._until = float("inf")
        self._thread = threading.Thread(target=self._loop, name="tau-live-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def _runs(self) -> bool:
        """Whether the thread runs; ``is_alive`` is wrong for ever once it was interrupted."""
        return self._thread.ident is not None and not self._over.is_set

    @property
    def depth(self) -> int:
        """How many events wait."""
        return self._queue.qsize()

    @property
    def drops(self) -> dict[str, int]:
        """How many events were dropped, by reason."""
        counts = self._dropped.counts()
        late = self._queue.qsize() if self.closed and not self._runs else 0
        if late:  # put at the very moment at which the thread ended
            counts["closed"] = counts.get("closed", 0) + late
        return counts

    def put(self, item: Event | LazyEvent) -> bool:
        """Take an event, or a lazy one that is made in the writer's thread.

        ``False`` if it was dropped, which is counted. If a lazy one cannot be made, it counts as
        lost in the end of its run.
        """
        waiting = self._queue.qsize()
        if self.closed or self._cut or waiting >= self._half:
            taken = self._put_if_allowed(make_event(item) if isinstance(item, tuple) else item)
        else:
            self._queue.put(item)
            taken = True
        if waiting >= YIELD_DEPTH:
            self._yield_to_writer()
        return taken

    def leave_out(self, start: RunStart, *, why: str = "paused") -> bool:
        """Drop all events of a run that begins now; they are counted by the reason."""
        with self._lock:
            self._remember(start, _Cut(started=False, why=why))
            return self._drop(why)

    def _yield_to_writer(self) -> None:
        """Let the writer's thread have the interpreter, if it has long waited for it.

        Python promises it after its switch interval, but not beside a thread that releases and
        retakes it all the time, as numpy does for each of our decisions: beside a loop that decides
        and never waits, nothing at all was written.
        """
        began = perf_counter()
        if began < self._next_turn or began - self._taken < STARVED_S:
            return
        if not self.closed and self._runs and self._takes():
            self._next_turn = float("inf")  # one thread of the host's at a time
            try:
                sleep(PAUSE_S)
            finally:
                self._next_turn = began + YIELD_INTERVAL_S  # first, in case of an interruption
                now = perf_counter()
                self._next_turn = now + max(YIELD_INTERVAL_S, YIELD_PAUSE_FACTOR * (now - began))

    def _put_if_allowed(self, event: Event) -> bool:
        with self._lock:
            waiting = self._queue.qsize()
            cut = self._cut.get(run_of(event)) if self._cut else None
            taken: Event | None
            if self.closed:
                return self._drop("closed")
            if isinstance(event, Reward):
                taken = event if waiting < 2 * self._limit else None
            elif isinstance(event, RunStart):
                taken = self._start(event, waiting)
            elif isinstance(event, RunEnd):
                taken = self._take_end(event, waiting)
            else:
                taken = self._step(event, waiting)
            if taken is not None:
                self._queue.put(taken)
            if isinstance(event, RunEnd) or (taken is not None and isinstance(event, RunStart)):
                self._cut.pop(run_of(event), None)  # only now, in case of an interruption
            if taken is None:
                return self._drop("queue_full" if cut is None else cut.why)
            return True

    def _start(self, event: RunStart, waiting: int) -> Event | None:
        if waiting < self._half:
            return event
        self._remember(event, _Cut(started=False))
        return None

    def _step(self, event: Event, waiting: int) -> Event | None:
        cut = self._cut.get(run_of(event))
        if cut is None and waiting < self._limit:
            return event
        if cut is None:
            self._remember(event, _Cut(started=True))
        else:
            cut.dropped += 1
        return None

    def _take_end(self, event: RunEnd, waiting: int) -> Event | None:
        cut = self._cut.get(run_of(event))
        if waiting >= 2 * self._limit or (cut is not None and not cut.started):
            return None
        return event if cut is None else replace(event, dropped=event.dropped + cut.dropped)

    def _remember(self, event: Event, cut: _Cut) -> None:
        self._cut[run_of(event)] = cut
        if len(self._cut) > self._limit:
            self._cut.popitem(last=False)

    def _drop(self, reason: str) -> bool:
        self._dropped.add(reason)
        return False

    def flush(self, timeout_s: float, *, hopeless: Callable[[], bool] = lambda: False) -> bool:
        """Wait until everything put before is written; ``False`` if it is not in time.

        Args:
            timeout_s: Seconds to wait.
            hopeless: Returns whether waiting no longer makes sense.
        """
        if threading.current_thread() is self._thread:
            return False  # it would wait for itself
        if not self._runs:
            return self._queue.empty()
        reached = Latch()
        self._queue.put(reached.set)
        until = monotonic() + timeout_s
        while not reached.wait(min(TICK_S, max(0.0, until - monotonic()))):
            if monotonic() >= until or hopeless():
                return False
        return True

    def mark(self, reached: Callable[[], None]) -> None:
        """Call back, in the writer's thread, when everything put before is written."""
        self._queue.put(reached)

    def close(self, timeout_s: float) -> bool:
        """Write all waiting events, then stop; ``False`` if that takes longer than ``timeout_s``.

        When the time is over, only events that keep rollouts whole are written; the others are
        counted.
        """
        self.stop(timeout_s)
        if not self._runs:  # it was never started, or is over
            return self._queue.empty()
        if threading.current_thread() is self._thread:
            return False
        return self._over.wait(timeout_s)  # an interrupted ``join`` marks a thread as finished

    def stop(self, timeout_s: float) -> None:
        """Begin to ``close``, without waiting for it."""
        self._until = monotonic() + timeout_s * (1.0 - END_SHARE)
        self.closed = True
        self._closing.set()
        if not self._ends and self._runs:
            self._ends = True
            self._queue.put(None)

    def _loop(self) -> None:
        try:
            with giving_way(self._pause):
                self._work()
        finally:
            self._over.set()

    def _work(self) -> None:
        self._contain(self._tick)
        self._ticked = monotonic()
        while not self.closed or not self._queue.empty():
            if self.closed and monotonic() > self._until:
                self._contain(self._drop_waiting)
                break
            self._contain(self._turn)
        self._contain(self._end)

    def _contain(self, step: Callable[[], None]) -> None:
        """Do a step; no error ends this thread."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  # or nothing would be written any more
            self._report(error)
            self._closing.wait(TICK_S)  # it may fail each time

    def _report(self, error: Exception) -> None:
        with suppress(Exception):  # this must not end the thread either
            self._failed(error)

    def _turn(self) -> None:
        """Write a batch, and call ``tick`` when it is due."""
        if self.closed or self._takes():
            batch, reached = self._next_batch()
        else:
            self._closing.wait(TICK_S)
            batch, reached = [], []
        if batch:
            self._write(batch)
        for call in reached:
            call()
        if monotonic() - self._ticked >= TICK_S:
            self._ticked = monotonic()
            self._tick()

    def _drop_waiting(self) -> None:
        """Drop the waiting events, except those that keep rollouts whole."""
        waiting: list[Event | LazyEvent] = []
        with suppress(Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, (tuple, Event)):
                    waiting.append(item)
        kept, dropped = keep_whole(waiting, at=time.time())
        self._dropped.add("unwritten", dropped)
        for at in range(0, len(kept), BATCH_LIMIT):
            if at and monotonic() > self._until + LAST_WRITES_S:  # one batch is always tried
                self._dropped.add("unwritten", len(kept) - at)
                return
            self._write(
                [event for item in kept[at : at + BATCH_LIMIT] for event in self._events_of(item)]
            )

    def _next_batch(self) -> tuple[list[Event], list[Callable[[], None]]]:
        batch: list[Event] = []
        self._taken = perf_counter()
        try:
            item = self._queue.get(timeout=TICK_S)
            while True:
                if item is None:
                    return batch, []  # it is closed
                if not isinstance(item, (tuple, Event)):
                    return batch, [item]
                batch += self._events_of(item)
                if len(batch) >= BATCH_LIMIT:
                    break
                yield_gil()
                item = self._queue.get_nowait()
        except Empty:
            pass
        except Exception as error:  # noqa: BLE001  # the events taken are written all the same
            self._report(error)
        return batch, []

    def _events_of(self, item: Event | LazyEvent) -> list[Event]:
        """Return the event in a list; empty if it cannot be made, which its run's end records."""
        try:
            event = make_event(item) if isinstance(item, tuple) else item
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._drop("unmade")
            run = run_of(item)
            self._failed_events[run] = self._failed_events.get(run, 0) + 1
            if len(self._failed_events) > self._limit:
                self._failed_events.popitem(last=False)
            self._report(error)
            return []
        if self._failed_events and isinstance(event, RunEnd):
            event = replace(
                event, dropped=event.dropped + self._failed_events.pop(run_of(event), 0)
            )
        return [event]
