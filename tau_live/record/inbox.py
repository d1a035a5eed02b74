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
from tau_live.core.sync import Latch, Tally
from tau_live.core.throttle import PAUSE_S
from tau_live.record.shutdown import LazyEvent, Run, keep_whole, make_event, run_of
from tau_live.rl.throttle import giving_way, yield_gil

BATCH_LIMIT = 512
PRESSED = BATCH_LIMIT
"""Where so many wait, and have waited for long, who puts one more lets the writer have a turn."""
LONG_S = 0.1
TURN_S = 0.005
"""No more often than this: Python's own switch interval."""
OWN_TURNS = 4
"""So many times as long as a turn took the host has the interpreter to itself before the next."""
TICK_S = 0.2
ENDING = 0.2
"""The part of the time for the end that is kept for ending what is open."""
GRACE_S = 0.5
"""How much longer what keeps rollouts whole is written."""


@dataclass(slots=True)
class _Cut:
    """A run whose events are not taken any more.

    Attributes:
        started: Whether some of them were.
        dropped: How many were not.
        why: The reason under which they are counted.
    """

    started: bool
    dropped: int = 1
    why: str = "queue_full"


class Inbox:
    """Takes events in the host's thread and hands them, in batches, to ``write`` in its own.

    Putting costs about a microsecond and never waits for the disk; where the thread that writes has
    long waited for the interpreter, now and then it sleeps for a moment. Behind half of ``limit``
    no new run is started, so that those under way have room: a rollout is kept or dropped whole. If
    one has to be cut all the same, its end is still taken and says how many events were lost.
    Rewards and ends are taken up to twice the ``limit``; beyond that nothing is.

    Args:
        write: Stores a batch; it may take as long as it wants and must not raise.
        tick: Called at the start and about five times a second, between batches; must not raise.
        end: Called at the end, in the same thread; must not raise.
        failed: Called, in the same thread, with why an event could not be made; must not raise.
        takes: Whether ``write`` can take more; what comes meanwhile waits here, bounded, until it
            can or this is closed.
        limit: How many events may wait.
        pause: Called in the same thread wherever it may give way to others.

    Attributes:
        closed: Whether nothing is taken any more.
    """

    def __init__(  # noqa: PLR0913  # whom it tells, all keyword-only
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
        self._unmade: OrderedDict[Run, int] = OrderedDict()  # of the thread that writes alone
        # Re-entrant: a signal or a finaliser may bring the same thread here a second time.
        self._lock = threading.RLock()
        self.closed = self._ends = False
        self._until = float("inf")
        self._thread = threading.Thread(target=self._loop, name="tau-live-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def _runs(self) -> bool:
        """Whether the thread runs; ``is_alive``, interrupted, takes it for over ever after."""
        return self._thread.ident is not None and not self._over.is_set

    @property
    def depth(self) -> int:
        """How many events wait."""
        return self._queue.qsize()

    @property
    def drops(self) -> dict[str, int]:
        """How many events were not taken, by reason."""
        counts = self._dropped.counts()
        late = self._queue.qsize() if self.closed and not self._runs else 0
        if late:  # what was put in the very moment in which the thread ended
            counts["closed"] = counts.get("closed", 0) + late
        return counts

    def put(self, item: Event | LazyEvent) -> bool:
        """Take an event, or what makes it in the thread that writes.

        ``False`` if it was dropped, which is counted. Where it cannot be made later, the end of its
        run says that one more event was lost.
        """
        waiting = self._queue.qsize()
        if self.closed or self._cut or waiting >= self._half:
            taken = self._put_if_it_may(make_event(item) if isinstance(item, tuple) else item)
        else:
            self._queue.put(item)
            taken = True
        if waiting >= PRESSED:
            self._give_turn()
        return taken

    def leave_out(self, start: RunStart) -> bool:
        """Take nothing of a run that begins now, up to its end; it is counted as ``paused``."""
        with self._lock:
            self._remember(start, _Cut(started=False, why="paused"))
            return self._drop("paused")

    def _give_turn(self) -> None:
        """Let the thread that writes have the interpreter, if it has long waited for it.

        Python promises it after its switch interval, but not beside a thread that lets go of it
        and takes it back all the time, as numpy does for each of our decisions: beside a loop that
        decides and never waits, nothing at all was written.
        """
        began = perf_counter()
        if began < self._next_turn or began - self._taken < LONG_S:
            return
        if not self.closed and self._runs and self._takes():
            self._next_turn = float("inf")  # one thread of the host's at a time
            try:
                sleep(PAUSE_S)
            finally:
                self._next_turn = began + TURN_S  # first, in case of an interruption
                now = perf_counter()
                self._next_turn = now + max(TURN_S, OWN_TURNS * (now - began))

    def _put_if_it_may(self, event: Event) -> bool:
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
        """Wait until everything that was put before is written; ``False`` if that is not done.

        Args:
            timeout_s: How long to wait.
            hopeless: Says that waiting makes no sense any more.
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
        """Call back, in the thread that writes, when everything put before is written."""
        self._queue.put(reached)

    def close(self, timeout_s: float) -> bool:
        """Write what waits, then stop; ``False`` if that was not done within ``timeout_s``.

        For what there is no time nothing is written but what keeps rollouts whole; that is counted.
        """
        self.stop(timeout_s)
        if not self._runs:  # it was never started, or is over
            return self._queue.empty()
        if threading.current_thread() is self._thread:
            return False
        return self._over.wait(timeout_s)  # a thread whose ``join`` is interrupted counts as over

    def stop(self, timeout_s: float) -> None:
        """Begin to ``close``, without waiting for it."""
        self._until = monotonic() + timeout_s * (1.0 - ENDING)
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
                self._contain(self._leave)
                break
            self._contain(self._turn)
        self._contain(self._end)

    def _contain(self, step: Callable[[], None]) -> None:
        """Do a step; nothing ends this thread, whatever is not as it should be."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  # or nothing would be written any more
            self._tell(error)
            self._closing.wait(TICK_S)  # it may fail each time

    def _tell(self, error: Exception) -> None:
        with suppress(Exception):  # nor does this end it
            self._failed(error)

    def _turn(self) -> None:
        """Write a batch, and look after the rest when it is time."""
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

    def _leave(self) -> None:
        """Give up what waits, but for what keeps rollouts whole."""
        waiting: list[Event | LazyEvent] = []
        with suppress(Empty):
            while True:
                item = self._queue.get_nowait()
                if isinstance(item, (tuple, Event)):
                    waiting.append(item)
        kept, dropped = keep_whole(waiting, at=time.time())
        self._dropped.add("unwritten", dropped)
        for at in range(0, len(kept), BATCH_LIMIT):
            if at and monotonic() > self._until + GRACE_S:  # one batch is always tried
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
        except Exception as error:  # noqa: BLE001  # what was taken is written all the same
            self._tell(error)
        return batch, []

    def _events_of(self, item: Event | LazyEvent) -> list[Event]:
        """Return an event; none where it cannot be made, of which the end of its run tells."""
        try:
            event = make_event(item) if isinstance(item, tuple) else item
        except Exception as error:  # noqa: BLE001  # nothing may end this thread
            self._drop("unmade")
            run = run_of(item)
            self._unmade[run] = self._unmade.get(run, 0) + 1
            if len(self._unmade) > self._limit:
                self._unmade.popitem(last=False)
            self._tell(error)
            return []
        if self._unmade and isinstance(event, RunEnd):
            event = replace(event, dropped=event.dropped + self._unmade.pop(run_of(event), 0))
        return [event]
