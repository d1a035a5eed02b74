"""Stores lines of other programs as they come: from a file, a pipe, or a Unix socket."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

from tau_live.core.errors import EventError, TauLiveError
from tau_live.core.events import Event, decode
from tau_live.core.hookspecs import Translate, Translator
from tau_live.core.processes import this_process
from tau_live.core.settings import Settings
from tau_live.record.lines import file_lines, serve_unix, stdin_lines
from tau_live.record.recording import Line
from tau_live.runtime.replay import Offline

UNIX = "unix:"
POLL_S = 0.1
LINES_AHEAD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """The outcome of a source.

    Attributes:
        lines: How many lines were read.
        events: How many events they held.
        rollouts: How many rollouts ended.
        updates: How many updates were made, skipped ones included.
        bad: How many lines could not be read, by problem.
        refused: How many events could not be stored, by kind of event and error.
    """

    lines: int
    events: int
    rollouts: int
    updates: int
    bad: dict[str, int]
    refused: dict[str, int]

    def nothing(self) -> bool:
        """Return whether some lines could not be read, and the others held no event."""
        return bool(self.bad) and not self.events


class _Intake:
    """Stores lines of any number of streams, in one thread.

    Our own events are stored unchanged, other lines are translated.
    """

    def __init__(
        self, offline: Offline, translate: Translate, progress: Callable[[int, int], None]
    ) -> None:
        self._offline = offline
        self._translate = translate
        self._progress = progress
        self._streams: dict[str, Translator] = {}
        self._bad: Counter[str] = Counter()
        self._lines = 0
        self._events = 0

    def take(self, name: str, line: Line, clock: Callable[[], float], *, at_once: bool) -> None:
        """Take a line of a stream; the first one opens the stream."""
        self._lines += 1
        if line.too_long:
            self._bad["too long"] += 1
            return
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = self._translate(name, clock)
        self._store(_events_in(line.data, stream), at_once=at_once)
        self._progress(self._lines, 0)

    def end(self, name: str) -> None:
        """End a stream."""
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._store(stream.end(), at_once=True)
            self._bad.update(stream.bad)

    def finish(self) -> Ingested:
        """End every stream and return the outcome of all."""
        for name in list(self._streams):
            self.end(name)
        self._offline.finish()
        return Ingested(
            lines=self._lines,
            events=self._events,
            rollouts=self._offline.rollouts,
            updates=self._offline.updates,
            bad=dict(self._bad),
            refused=dict(self._offline.refused),
        )

    def _store(self, events: list[Event], *, at_once: bool) -> None:
        self._events += len(events)
        self._offline.take(events, at_once=at_once)


def _events_in(line: bytes, translator: Translator) -> list[Event]:
    if line.lstrip().startswith(b'{"event":'):
        try:
            return [decode(line)]
        except EventError:
            pass  # a host's line that only looks like ours
    return translator.events(line)


def ingest(
    source: str,
    settings: Settings,
    *,
    translate: Translate,
    stream: str | None,
    stop: threading.Event,
    progress: Callable[[int, int], None],
) -> Ingested:
    """Store the events of a source until it ends, or until ``stop`` is set.

    A file gives the same events whenever it is read: its lines without a time of their own get
    the time at which it was last written, and its path names its stream.

    Args:
        source: A file, ``-`` for the standard input, or ``unix:`` and the path of a socket.
        settings: The store, and how to learn.
        translate: Makes a translator for each stream of lines that are not our own events.
        stream: The name of the stream that ids come from; ``None`` takes the file's path, or a name
            unique to this process.
        stop: Set to end it.
        progress: Called with the lines done and 0, as their total is unknown.

    Raises:
        TauLiveError: The source cannot be read, the gate holds, or the store failed.
    """
    offline = Offline(settings)
    intake = _Intake(offline, translate, progress)
    try:
        if source.startswith(UNIX):
            _from_socket(Path(source.removeprefix(UNIX)), intake, stream=stream, stop=stop)
        elif source == "-":
            name = stream or f"stdin:{this_process()}"
            for line in _stdin(stop):
                intake.take(name, line, time.time, at_once=True)
        else:
            path = Path(source)
            name, written = stream or str(path.absolute()), path.stat().st_mtime
            for line in file_lines(path):
                if stop.is_set():
                    break
                intake.take(name, line, lambda: written, at_once=False)
        return intake.finish()
    except OSError as error:
        raise TauLiveError(f"cannot read '{source}': {error}") from error
    finally:
        offline.close()


def _from_socket(path: Path, intake: _Intake, *, stream: str | None, stop: threading.Event) -> None:
    prefix = stream or f"{path}:{this_process()}"

    def take(connection: int, line: bytes | None) -> None:
        name = f"{prefix}:{connection}"
        if line is None:
            intake.end(name)
        else:
            intake.take(name, Line(0, line), time.time, at_once=True)

    serve_unix(path, take, stop)


def _stdin(stop: threading.Event) -> Iterator[Line]:
    """Yield lines as they come; a thread waits for them, so that ``stop`` works meanwhile."""
    queue: Queue[Line | None] = Queue(LINES_AHEAD)

    def read_lines() -> None:
        try:
            for line in stdin_lines():
                queue.put(line)
        finally:
            queue.put(None)

    threading.Thread(target=read_lines, name="tau-live-stdin", daemon=True).start()
    while not stop.is_set():
        try:
            line = queue.get(timeout=POLL_S)
        except Empty:
            continue
        if line is None:
            return
        yield line
