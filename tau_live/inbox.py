"""The bounded queue between the host's threads and the one thread that writes."""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from tau_live.events import Event

BATCH_LIMIT = 512
TICK_S = 0.2


class Inbox:
    """Takes events in the host's thread and hands them, in batches, to ``write`` in its own.

    Putting costs about a microsecond and never waits. Behind ``limit`` waiting events nothing
    more is taken; behind half of it no new run is begun: a rollout is kept or dropped whole.

    Args:
        write: Stores a batch; it may take as long as it wants and must not raise.
        tick: Called at the start and about five times a second, between batches; must not raise.
        end: Called at the end, in the same thread; must not raise.
        limit: How many events may wait.
    """

    def __init__(
        self,
        *,
        write: Callable[[list[Event]], None],
        tick: Callable[[], None],
        limit: int,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._write = write
        self._tick = tick
        self._end = end
        self._limit = limit
        self._queue: SimpleQueue[Event | threading.Event | None] = SimpleQueue()
        self._dropped: dict[str, int] = {}
        self._refused_runs: set[str] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tau-live-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def depth(self) -> int:
        """How many events wait."""
        return self._queue.qsize()

    @property
    def dropped(self) -> dict[str, int]:
        """How many events were not taken, by reason."""
        return dict(self._dropped)

    def put(self, event: Event) -> bool:
        """Take an event; ``False`` if it was dropped, which is counted."""
        waiting = self._queue.qsize()
        if self._closed:
            return self._drop("closed")
        if self._refused_runs and event.run_id in self._refused_runs and event.event != "reward":
            if event.event == "run.end":
                self._refused_runs.discard(event.run_id)
            return self._drop("queue_full")
        if waiting >= self._limit // 2 and not self._takes_when_crowded(event, waiting):
            return self._drop("queue_full")
        self._queue.put(event)
        return True

    def _takes_when_crowded(self, event: Event, waiting: int) -> bool:
        if event.event == "reward":
            return waiting < 2 * self._limit  # a reward is not dropped while its decision is kept
        if event.event == "run.start" or waiting >= self._limit:
            self._refused_runs.add(event.run_id)
            return False
        return True

    def _drop(self, reason: str) -> bool:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        return False

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything that was put before is written; ``False`` after ``timeout_s``."""
        if not self._thread.is_alive():
            return self._queue.empty()
        reached = threading.Event()
        self._queue.put(reached)
        return reached.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Write what waits, then stop; ``False`` if that was not done within ``timeout_s``."""
        self._closed = True
        self._queue.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._tick()
        ticked = time.monotonic()
        going = True
        while going:
            batch, reached, going = self._next_batch()
            if batch:
                self._write(batch)
            for event in reached:
                event.set()
            if time.monotonic() - ticked >= TICK_S:
                self._tick()
                ticked = time.monotonic()
        self._end()

    def _next_batch(self) -> tuple[list[Event], list[threading.Event], bool]:
        batch: list[Event] = []
        try:
            item = self._queue.get(timeout=TICK_S)
            while True:
                if item is None:
                    return batch, [], False
                if isinstance(item, threading.Event):
                    return batch, [item], True
                batch.append(item)
                if len(batch) >= BATCH_LIMIT:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        return batch, [], True
