"""Lines of other programs into the store as they come: from a file, a pipe, or a Unix socket."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue

from tau_live.collection.recording import Line
from tau_live.errors import EventError, TauLiveError
from tau_live.events import Event, decode
from tau_live.hookspecs import Translate, Translator
from tau_live.line_sources import file_lines, serve_unix, stdin_lines
from tau_live.machine.processes import this_process
from tau_live.replay import Offline, Replayed
from tau_live.settings import Settings

UNIX = "unix:"
POLL_S = 0.1
LINES_AHEAD = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What came of a source.

    Attributes:
        lines: How many lines were read.
        events: How many events they told.
        rollouts: How many rollouts came to their end.
        updates: How many updates were made, skipped ones included.
        bad: How many lines were not understood, by what is wrong with them.
        refused: How many events could not be stored, by what was wrong.
    """

    lines: int
    events: int
    rollouts: int
    updates: int
    bad: dict[str, int]
    refused: dict[str, int]

    def nothing(self) -> bool:
        """Say whether some lines were not understood, and the others told nothing."""
        return bool(self.bad) and not self.events


class _Stream:
    """One stream of lines: our own events are taken as they are, others are translated."""

    def __init__(self, translator: Translator) -> None:
        self._translator = translator

    def events(self, line: bytes) -> list[Event]:
        if line.lstrip().startswith(b'{"event":'):
            try:
                return [decode(line)]
            except EventError:
                pass  # a host's line that only looks like ours
        return self._translator.events(line)

    def end(self) -> list[Event]:
        return self._translator.end()

    @property
    def bad(self) -> dict[str, int]:
        return self._translator.bad


class _Intake:
    """Takes lines of any number of streams into one store, in one thread."""

    def __init__(
        self, offline: Offline, translate: Translate, progress: Callable[[int, int], None]
    ) -> None:
        self._offline = offline
        self._translate = translate
        self._progress = progress
        self._streams: dict[str, _Stream] = {}
        self._bad: Counter[str] = Counter()
        self.lines = 0
        self.events = 0

    def line(self, name: str, line: bytes, clock: Callable[[], float], *, at_once: bool) -> None:
        """Take a line of a stream, which begins with its first."""
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = _Stream(self._translate(name, clock))
        self.lines += 1
        self._take(stream.events(line), at_once=at_once)
        self._progress(self.lines, 0)

    def end(self, name: str) -> None:
        """End a stream."""
        stream = self._streams.pop(name, None)
        if stream is not None:
            self._take(stream.end(), at_once=True)
            self._bad.update(stream.bad)

    def finish(self) -> Ingested:
        """End every stream and return what came of all."""
        for name in list(self._streams):
            self.end(name)
        self._offline.finish()
        found: Replayed = self._offline.report(events=self.events, bad=[], bad_lines=0)
        return Ingested(
            lines=self.lines,
            events=self.events,
            rollouts=found.rollouts,
            updates=found.updates,
            bad=dict(self._bad),
            refused=found.refused,
        )

    def skipped(self) -> None:
        """Count a line that was too long to be read."""
        self.lines += 1
        self._bad["too long"] += 1

    def _take(self, events: list[Event], *, at_once: bool) -> None:
        self.events += len(events)
        self._offline.take(events, at_once=at_once)


def ingest(
    source: str,
    settings: Settings,
    *,
    translate: Translate,
    stream: str | None,
    stop: threading.Event,
    progress: Callable[[int, int], None],
) -> Ingested:
    """Store what a source tells until it ends, or until told to stop.

    A file tells the same whenever it is read: its lines without a time of their own get the time
    at which it was last written, and its path names its stream.

    Args:
        source: A file, ``-`` for the standard input, or ``unix:`` and the path of a socket.
        settings: Where to, and how to learn.
        translate: Makes a translator for each stream of lines that are not our own events.
        stream: Names the stream that ids come from; ``None`` takes the file's path, or a name
            that no other process has.
        stop: Ends it.
        progress: Told how many lines are done.

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
                if line.too_long:
                    intake.skipped()
                else:
                    intake.line(name, line.data, time.time, at_once=True)
        else:
            _from_file(Path(source), intake, stream=stream, stop=stop)
        return intake.finish()
    except OSError as error:
        raise TauLiveError(f"cannot read '{source}': {error}") from error
    finally:
        offline.close()


def _from_file(path: Path, intake: _Intake, *, stream: str | None, stop: threading.Event) -> None:
    written = path.stat().st_mtime
    for line in file_lines(path):
        if stop.is_set():
            return
        if line.too_long:
            intake.skipped()
        else:
            intake.line(stream or str(path.absolute()), line.data, lambda: written, at_once=False)


def _from_socket(path: Path, intake: _Intake, *, stream: str | None, stop: threading.Event) -> None:
    prefix = stream or f"{path}:{this_process()}"

    def take(connection: int, line: bytes | None) -> None:
        name = f"{prefix}:{connection}"
        if line is None:
            intake.end(name)
        else:
            intake.line(name, line, time.time, at_once=True)

    serve_unix(path, take, stop)


def _stdin(stop: threading.Event) -> Iterator[Line]:
    """Yield lines as they come; a thread waits for them, so that ``stop`` is heard meanwhile."""
    queue: Queue[Line | None] = Queue(LINES_AHEAD)

    def read() -> None:
        try:
            for line in stdin_lines():
                queue.put(line)
        finally:
            queue.put(None)

    threading.Thread(target=read, name="tau-live-stdin", daemon=True).start()
    while not stop.is_set():
        try:
            line = queue.get(timeout=POLL_S)
        except Empty:
            continue
        if line is None:
            return
        yield line
