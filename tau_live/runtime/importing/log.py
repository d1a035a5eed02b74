"""Imports logs into a store: JSON Lines, tables, and files of OpenTelemetry's collector.

They go through the ordinary pipeline, like the runs of a host. Ids come from the log alone:
imported again it adds nothing, and two stores get the same rows.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from itertools import chain, count, islice
from pathlib import Path
from typing import TypeVar

from tau_live.core.errors import LogLineError, TauLiveError
from tau_live.core.events import Decision, Event, Reward
from tau_live.core.offers import OPTIONS_LIMIT
from tau_live.core.redaction import Redactor
from tau_live.core.sanitize import Limits
from tau_live.core.settings import InferReward, Settings
from tau_live.core.settings import Learner as LearnerMode
from tau_live.decisions.policies import policy_config
from tau_live.record.inbox import BATCH_LIMIT
from tau_live.record.lines import file_lines, stdin_lines
from tau_live.record.recording import Line
from tau_live.record.whole_runs import RecordItem
from tau_live.runtime.importing.otel import Traces
from tau_live.runtime.importing.rows import (
    BadRow,
    FieldError,
    NumberedRow,
    Places,
    Row,
    column_of,
    json_rows,
    table_rows,
    value_at,
)
from tau_live.runtime.importing.runs import Logged, Reader, Records, Runs
from tau_live.runtime.replay import Offline

STDIN = "-"
EVERY = "all"


class Format(StrEnum):
    """The format of a log."""

    JSONL = "jsonl"
    CSV = "csv"
    OTEL = "otel"
    PARQUET = "parquet"
    ARROW = "arrow"


TABLES = frozenset({Format.PARQUET, Format.ARROW})
"""Formats with typed rows, which need a library to read."""

OpenTable = Callable[[Path, Format], tuple[int, Iterator[Row]]]
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A log, and how to read it.

    Attributes:
        path: The file; ``-`` is the standard input.
        format: Its format; ``None`` detects it from its name and first line.
        places: The places of fields that are not under their own names.
        point: The decision point of rows without one.
        options: The options of rows without any; ``("all",)`` takes all options applied in the
            file; empty is the applied one alone.
        stream: The name of the log; ``None`` derives it from the file's name and first line.
        reward: The name of its rewards.
        at: Epoch seconds of decisions without a time; ``None`` takes the time of the file's last
            change.
        strict: Whether the first bad line ends the import.
    """

    path: str
    format: Format | None = None
    places: Places = field(default_factory=dict)
    point: str | None = None
    options: tuple[str, ...] = ()
    stream: str | None = None
    reward: str = "reward"
    at: float | None = None
    strict: bool = False


@dataclass(slots=True, kw_only=True)
class Imported:
    """The outcome of an import, and its counts so far while it runs.

    Attributes:
        format: The format of the log.
        lines: How many lines were read.
        decisions: How many decisions they held.
        with_propensity: How many of these have a propensity, and so may teach the policy.
        without_choice: How many offered one option alone, which teaches nothing.
        rewards: How many rewards they held.
        rollouts: How many rollouts ended, without those that were stored already.
        bad: The first lines that could not be read, with column and reason.
        bad_lines: How many there were.
        unseen: Mapped columns that no row had.
        refused: How many events could not be stored, by kind of event and error.
        lines_per_s: Lines read per second.
    """

    format: str = ""
    lines: int = 0
    decisions: int = 0
    with_propensity: int = 0
    without_choice: int = 0
    rewards: int = 0
    rollouts: int = 0
    bad: list[BadRow] = field(default_factory=list)
    bad_lines: int = 0
    unseen: Sequence[str] = ()
    refused: dict[str, int] = field(default_factory=dict)
    lines_per_s: float = 0.0

    def nothing(self) -> bool:
        """Return whether some lines could not be read, and the others held nothing."""
        return self.bad_lines > 0 and not self.decisions + self.rewards + self.rollouts


@contextmanager
def _rarely_collecting() -> Iterator[None]:
    """Let Python collect cyclic garbage rarely meanwhile; an import makes hardly any.

    It would scan all that is held again and again: an import took a seventh longer.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@_rarely_collecting()
def import_log(
    source: LogSource,
    settings: Settings,
    *,
    progress: Callable[[int, int], None],
    open_table: OpenTable | None = None,
) -> Imported:
    """Store a log; nothing is learned yet, `tau-live learn` does that.

    Args:
        source: The log.
        settings: The store, and bounds of its data.
        progress: Called with the bytes (or rows of a table) done and in all; 0 in all if unknown.
        open_table: Opens a file of Parquet or Arrow: returns the number of its rows (0 if unknown
            beforehand), and the rows in their order, as plain data.

    Raises:
        LogLineError: A line cannot be read, and ``strict`` is set.
        TauLiveError: The log cannot be read, the gate holds, or the store failed.
    """
    began = time.perf_counter()
    is_auto = settings.infer_reward is InferReward.AUTO  # a log without rewards gets none
    settings = replace(
        settings,
        learner=LearnerMode.OFF,
        infer_reward=InferReward.OFF if is_auto else settings.infer_reward,
    )
    log = _Log(source, settings, progress)
    imported = log.imported
    try:
        batches = log.batches(open_table)
        offline = Offline(settings)
        try:
            for batch in batches:
                offline.store(batch)
            offline.finish()
        finally:
            offline.close()
    except OSError as error:
        raise TauLiveError(f"cannot read log '{source.path}': {error}") from error
    imported.rollouts, imported.refused = offline.rollouts, dict(offline.refused)
    imported.unseen = log.reader.unseen
    imported.lines_per_s = round(imported.lines / max(time.perf_counter() - began, 1e-9), 1)
    return imported


class _Log:
    """Reads one log and counts its contents.

    Args:
        source: The log.
        settings: The store, and bounds of its data.
        progress: Called with the amount done and in all.
    """

    def __init__(
        self, source: LogSource, settings: Settings, progress: Callable[[int, int], None]
    ) -> None:
        self.imported = Imported()
        self.reader = Reader({}, point=None, offered=(), cells=False)
        self._source = source
        self._progress = progress
        self._records = Records(
            width=policy_config(settings).width,
            limits=Limits(chars=settings.payload_limit),
            redactor=Redactor(settings.content.value, settings.payload_limit),
            reward=source.reward,
        )

    def batches(self, open_table: OpenTable | None) -> Iterator[Sequence[RecordItem]]:
        """Return its batches of items; each is to be stored at once."""
        source = self._source
        path = None if source.path == STDIN else _file(source.path)
        format_ = source.format or _format_of_table(path)
        rows: Iterator[NumberedRow | BadRow]
        if path is not None and format_ in TABLES:
            if open_table is None:
                raise TauLiveError(f"'{path}' is a table that no installed package can open")
            total, table = open_table(path, format_)
            table = self._count(table, total)
            first_rows = list(islice(table, 1))
            rows = map(NumberedRow, count(1), chain(first_rows, table))
            head = [repr(row).encode() for row in first_rows]
            if source.options == (EVERY,):
                raise TauLiveError("the options of a table cannot be read beforehand: name them")
        else:
            lines = self._count(
                file_lines(path) if path else stdin_lines(), path.stat().st_size if path else 0
            )
            first = list(islice(lines, 2))
            lines = chain(first, lines)
            format_ = source.format or _format(source.path, first)
            rows = table_rows(lines) if format_ is Format.CSV else json_rows(lines)
            head = [line.data for line in first[: 1 + (format_ is Format.CSV)]]
        self.imported.format = format_.value
        if format_ is Format.OTEL:
            return self._batches_of_traces(rows)
        if format_ is Format.CSV and len(first) == 1:
            self._check_head(first[0])
        self.reader = Reader(
            source.places,
            point=source.point,
            offered=_options_offered(source, format_),
            cells=format_ is Format.CSV,
            columns=format_ is Format.CSV or (path is not None and format_ in TABLES),
        )
        changed_at = path.stat().st_mtime if path else time.time()
        runs = Runs(
            source.stream or _stream(source.path, head),
            default_at=changed_at if source.at is None else source.at,
            records=self._records,
        )
        return self._batches_of_rows(runs, rows)

    def _batches_of_rows(
        self, runs: Runs, rows: Iterator[NumberedRow | BadRow]
    ) -> Iterator[Sequence[RecordItem]]:
        decisions = self._decisions(rows)
        while some := list(islice(decisions, 128)):
            yield from runs.take(some)
        yield from runs.finish()

    def _decisions(self, rows: Iterable[NumberedRow | BadRow]) -> Iterator[tuple[Logged, int]]:
        for row in self._good(rows):
            try:
                logged = self.reader.decision(row.row)
            except FieldError as error:
                self._count_bad(BadRow(row.line, error.column, error.reason))
                continue
            self._count_decision(logged.propensity, logged.options.names)
            self.imported.rewards += logged.reward is not None
            yield logged, row.line

    def _batches_of_traces(
        self, rows: Iterable[NumberedRow | BadRow]
    ) -> Iterator[Sequence[RecordItem]]:
        events = self._events(rows)
        while batch := list(islice(events, BATCH_LIMIT)):
            yield batch

    def _events(self, rows: Iterable[NumberedRow | BadRow]) -> Iterator[Event]:
        traces = Traces(self._records, reward=self._source.reward)
        read = ((row.line, event) for row in self._good(rows) for event in traces.events(row.row))
        for line, event in chain(read, ((0, event) for event in traces.finish())):
            if isinstance(event, FieldError):
                self._count_bad(BadRow(line, event.column, event.reason))
                continue
            if isinstance(event, Decision):
                self._count_decision(event.propensity, event.options)
            self.imported.rewards += isinstance(event, Reward)
            yield event

    def _good(self, rows: Iterable[NumberedRow | BadRow]) -> Iterator[NumberedRow]:
        for row in rows:
            if isinstance(row, BadRow):
                self._count_bad(row)
            else:
                yield row

    def _count(self, items: Iterable[_Item], total: int) -> Iterator[_Item]:
        """Pass on lines of a file, or rows of a table, and count them."""
        done = 0
        for number, item in enumerate(items, start=1):
            self.imported.lines = number
            done += len(item.data) + 1 if isinstance(item, Line) else 1
            if number % 256 == 0:
                self._progress(min(done, total or done), total)
            yield item

    def _count_bad(self, row: BadRow) -> None:
        """Count a bad line. Raises: LogLineError, if ``strict`` is set."""
        if self._source.strict:
            raise LogLineError(row.line, row.column, row.reason)
        self.imported.bad_lines += 1
        if len(self.imported.bad) < 100:
            self.imported.bad.append(row)

    def _count_decision(self, propensity: float | None, options: Sequence[str]) -> None:
        self.imported.decisions += 1
        self.imported.with_propensity += propensity is not None
        self.imported.without_choice += len(options) < 2

    def _check_head(self, line: Line) -> None:
        """Count a head without a column for the option as bad, even if no row follows it."""
        column = column_of("option", self._source.places)
        for head in table_rows([line, line]):
            if isinstance(head, NumberedRow) and value_at(head.row, column) is None:
                self._count_bad(BadRow(1, column, "the table has no such column"))


def _file(path: str) -> Path:
    if Path(path).is_dir():
        raise TauLiveError(
            f"'{path}' is a folder, and a log is one file. If it is an export: decisions.parquet "
            "holds its decisions (--map run=rollout_id,step=ordinal,option=applied); for their "
            "rewards, add to it the column total_reward of rollouts.parquet as reward, in the "
            "last row of each rollout_id alone"
        )
    return Path(path)


def _format_of_table(path: Path | None) -> Format | None:
    """Return the format of a file that begins like a table of Parquet or Arrow."""
    if path is None:
        return None
    with path.open("rb") as file:
        magic = file.read(8)
    if magic.startswith(b"PAR1"):
        return Format.PARQUET
    # an Arrow file begins with its name, an Arrow stream with the marker of a message
    return Format.ARROW if magic.startswith((b"ARROW1", b"\xff\xff\xff\xff")) else None


def _format(path: str, first: Sequence[Line]) -> Format:
    start = first[0].data.removeprefix(b"\xef\xbb\xbf").lstrip() if first else b""
    if start.startswith(b"{"):
        return Format.OTEL if b'"resourceSpans"' in start[:100] else Format.JSONL
    return Format.CSV if start and not path.endswith((".jsonl", ".json")) else Format.JSONL


def _stream(path: str, head: Iterable[bytes]) -> str:
    """Return the name of a log: its file's, and a hash of its beginning."""
    digest = sha256(b"\n".join(head)).hexdigest()[:16]
    return f"{'stdin' if path == STDIN else Path(path).name}-{digest}"


def _options_offered(source: LogSource, format_: Format) -> tuple[str, ...]:
    """Return the options of rows without any; ``all`` reads the whole file for them first."""
    if source.options != (EVERY,):
        return source.options
    if source.path == STDIN:
        raise TauLiveError("the options of a pipe cannot be read beforehand: name them")
    reader = Reader(source.places, point=None, offered=(), cells=False)
    lines = file_lines(Path(source.path))
    names: set[str | None] = {None}
    for row in table_rows(lines) if format_ is Format.CSV else json_rows(lines):
        names.add(None if isinstance(row, BadRow) else reader.option(row.row))
        if len(names) > 1 + OPTIONS_LIMIT:
            raise TauLiveError(f"the log applied more than {OPTIONS_LIMIT} options")
    return tuple(sorted(name for name in names if name is not None))
