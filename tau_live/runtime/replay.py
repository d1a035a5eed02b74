"""Stores recordings and other hosts' lines, and learns from them, in one thread.

The clock is the events': the same recording in two empty stores gives the same rows, versions and
updates, byte for byte; repeated in one store it adds nothing; stopped anywhere and started from the
beginning it gives the same result.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.events import Event
from tau_live.core.gate import State
from tau_live.core.processes import this_process
from tau_live.core.reasons import Part
from tau_live.core.records import Reason
from tau_live.core.settings import Learner as LearnerMode
from tau_live.core.settings import Settings
from tau_live.learn.learner import report_of
from tau_live.operate.status import publish, status_file, status_of
from tau_live.operate.stops import kill_file, now_killed
from tau_live.record.inbox import BATCH_LIMIT
from tau_live.record.recording import BadLine, read
from tau_live.record.whole_runs import RecordItem
from tau_live.runtime.build import learner_of, open_store, pipeline_of
from tau_live.runtime.builtin_plugins import load_plugins

MILESTONES = frozenset({"run.end", "reward"})
"""Kinds of events that may make a rollout ready to be learned from."""

BAD_KEPT = 100
OVERDUE = 256
"""The least number of overdue rollouts that are settled at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The outcome of a replay.

    Attributes:
        events: How many events were read.
        rollouts: How many rollouts ended.
        updates: How many updates were made, skipped ones included.
        bad: The first lines that were not events, with the reason.
        bad_lines: How many there were.
        refused: How many events could not be stored, by kind of event and error.
    """

    events: int
    rollouts: int
    updates: int
    bad: Sequence[BadLine]
    bad_lines: int
    refused: dict[str, int]


class Offline:
    """Stores events and learns from them, in the thread that calls it, on the events' own clock.

    Args:
        settings: The store, and how to learn.

    Attributes:
        rollouts: How many rollouts ended.
        updates: How many updates were made, skipped ones included.
        refused: How many events could not be stored, by kind of event and error.

    Raises:
        StoreError: The store cannot be opened.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = open_store(settings)
        obstacle = self._obstacle()
        if obstacle is not None:
            self._store.close()
            raise TauLiveError(obstacle)
        self.rollouts = 0
        self.updates = 0
        self.refused: Counter[str] = Counter()
        self._pipeline = pipeline_of(
            self._store,
            settings,
            owner=None,
            plugins=load_plugins(settings),
            recorder=None,
            on_poison=self._refuse_event,
        )
        self._learner = learner_of(self._store, settings, owner=this_process(), holds=False)
        self._learner.sweep()
        learns = settings.learner is not LearnerMode.OFF
        self._milestones = MILESTONES if learns else frozenset[str]()
        self._waiting: list[Event] = []
        self._now = 0.0

    def take(self, events: Iterable[Event], *, at_once: bool = False) -> None:
        """Take events in order; they are stored at milestones, or ``at_once``.

        Raises:
            StoreError: The store failed; start again from the beginning.
        """
        for event in events:
            self._waiting.append(event)
            if event.event in self._milestones or len(self._waiting) >= BATCH_LIMIT:
                self._store_waiting()
        if at_once:
            self._store_waiting()

    def store(self, batch: Sequence[RecordItem]) -> None:
        """Store a batch at once, and run due updates.

        Raises:
            StoreError: The store failed; start again from the beginning.
        """
        if batch:
            self._now = max(self._now, *(event.at for event in batch))
            self.rollouts += self._pipeline.store(self._pipeline.prepare(batch)).finished
        with self._store.begin():
            self._pipeline.collector.expire(self._now, limit=max(OVERDUE, len(batch)))
        self._learn()

    def finish(self) -> None:
        """Store waiting events, end open runs, and run due updates."""
        self._store_waiting()
        with self._store.begin():
            self._pipeline.collector.end_open(reason=Reason.ABANDONED, at=self._now)
        self._learn()
        status = status_of(self._store, self._settings, now=time.time())
        publish(status_file(self._settings), status)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _store_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.store(waiting)

    def _obstacle(self) -> str | None:
        """Return why nothing may be collected, and what to do; ``None`` if it may."""
        killed = now_killed(kill_file(self._settings.store, self._settings.kill_file))
        if killed is not None:
            return f"the kill switch is on: {killed}; `tau-live unkill --reason ...` turns it off"
        gate = self._store.gate.load()
        if gate.state != State.PASS:
            return (
                f"the gate holds ({gate.reason}), so nothing is collected: see `tau-live gate`, "
                "then `tau-live gate reset --reason ...`"
            )
        pause = self._store.pauses.pauses().get(Part.COLLECTION)
        if pause is not None:
            return (
                f"collection is paused ({pause.reason}): `tau-live resume collection --reason ...`"
            )
        return None

    def _learn(self) -> None:
        if Part.LEARNING in self._store.pauses.pauses():
            return
        while self._settings.learner is not LearnerMode.OFF:
            learned = self._learner.run_next(now=None)
            if learned is None:
                return
            self.updates += 1
            status = status_of(self._store, self._settings, now=time.time())
            report = {**report_of(learned.update), **msgspec.to_builtins(status)}
            publish(status_file(self._settings), report)

    def _refuse_event(self, event: Event, error: Exception) -> None:
        self.refused[f"{event.event}: {type(error).__name__}"] += 1


def replay_file(
    path: Path, settings: Settings, *, progress: Callable[[int, int], None]
) -> Replayed:
    """Store a recording and learn from it.

    Args:
        path: The recording: events, one a line.
        settings: The store, and how to learn.
        progress: Called with the bytes done and the bytes in all.

    Raises:
        TauLiveError: The recording cannot be read, or the store failed.
    """
    bad: list[BadLine] = []
    events = bad_lines = 0
    offline = Offline(settings)
    try:
        with path.open("rb") as file:
            total = path.stat().st_size
            for line in read(file):
                if isinstance(line, BadLine):
                    bad_lines += 1
                    bad += [line] if len(bad) < BAD_KEPT else []
                    continue
                events += 1
                offline.take([line])
                progress(file.tell(), total)
        offline.finish()
        return Replayed(
            events=events,
            rollouts=offline.rollouts,
            updates=offline.updates,
            bad=bad,
            bad_lines=bad_lines,
            refused=dict(offline.refused),
        )
    except OSError as error:
        raise TauLiveError(f"cannot read recording '{path}': {error}") from error
    finally:
        offline.close()
