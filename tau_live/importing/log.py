"""Earlier logs into a store: JSON Lines, tables, and what OpenTelemetry's collector writes.

They go the ordinary way of events, so everything that holds for a host's runs holds for them. Ids
come from the log alone: again into one store it adds nothing, and two stores get the same.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tau_live.collection.inbox import BATCH_LIMIT
from tau_live.collection.recording import Line
from tau_live.collection.whole_runs import Told
from tau_live.errors import LogLineError, TauLiveError
from tau_live.events import Decision, Event, Reward
from tau_live.handed.plain import Limits
from tau_live.handed.values import OPTIONS_LIMIT
from tau_live.importing.fields import FieldError, Places, Row, column_of, standing
from tau_live.importing.logged import Logged, Reader
from tau_live.importing.otel import Traces
from tau_live.importing.records import Records
from tau_live.importing.rows import BadRow, NumberedRow, json_rows, table_rows
from tau_live.importing.runs import Runs
from tau_live.line_sources import file_lines, stdin_lines
from tau_live.policies.files import policy_config
from tau_live.privacy.redaction import Redactor
from tau_live.replay import Offline
from tau_live.settings import InferReward, Settings
from tau_live.settings import Learner as LearnerMode

BAD_KEPT = 100
TOLD_EVERY = 256
ROWS_AT_ONCE = 128
STDIN = "-"
EVERY = "all"


class Format(StrEnum):
    """How a log is written."""

    JSONL = "jsonl"
    CSV = "csv"
    OTEL = "otel"
    PARQUET = "parquet"
    ARROW = "arrow"


TABLES = frozenset({Format.PARQUET, Format.ARROW})
"""Formats whose rows have types, and which a library has to read."""

MAGIC: Mapping[bytes, Format] = {
    b"PAR1": Format.PARQUET,
    b"ARROW1": Format.ARROW,
    b"\xff\xff\xff\xff": Format.ARROW,
}
"""How such a file begins; the last is a stream's."""


class Table(NamedTuple):
    """A file whose rows have types.

    Attributes:
        total: How many rows it has; 0 where that is not known beforehand.
        rows: Its rows in their order, as plain data.
    """

    total: int
    rows: Iterator[Row]


OpenTable = Callable[[Path, Format], Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """A log, and how to read it.

    Attributes:
        path: The file; ``-`` is the standard input.
        format: How it is written; ``None`` looks at its name and first line.
        places: Where fields stand that do not stand under their own names.
        point: The decision point of rows that name none.
        options: The options of rows that name none; ``("all",)`` are those that the file applied
            anywhere; empty is the applied one alone.
        stream: Names the log; ``None`` takes the file's name and first line.
        reward: How its rewards are called.
        at: When decisions were made whose log does not say; ``None`` takes the time at which the
            file was last written.
        strict: Whether the first bad line ends it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What came of a log.

    Attributes:
        format: How it was written.
        lines: How many lines were read.
        decisions: How many decisions they told.
        with_propensity: How many of these may teach the policy.
        without_choice: How many offered one option alone, which teaches nothing.
        rewards: How many rewards.
        rollouts: How many rollouts came to their end; none of them when they were there already.
        bad: The first lines that could not be read, with column and reason.
        bad_lines: How many there were.
        unseen: Mapped columns that no row had.
        refused: How many events could not be stored, by what was wrong.
        lines_per_s: How fast it went.
    """

    format: str
    lines: int
    decisions: int
    with_propensity: int
    without_choice: int
    rewards: int
    rollouts: int
    bad: Sequence[BadRow]
    bad_lines: int
    unseen: Sequence[str]
    refused: dict[str, int]
    lines_per_s: float

    def nothing(self) -> bool:
        """Say whether some lines could not be read, and nothing was told by the others."""
        return self.bad_lines > 0 and not self.decisions + self.rewards + self.rollouts


class _Counts:
    """What was read so far."""

    def __init__(self, *, strict: bool, progress: Callable[[int, int], None], total: int) -> None:
        self.strict = strict
        self.progress = progress
        self.total = total
        self.lines = self.done = self.decisions = self.rewards = 0
        self.with_propensity = self.without_choice = 0
        self.bad: list[BadRow] = []
        self.bad_lines = 0

    def read(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Pass lines on and count them."""
        for line in lines:
            self.lines = line.number
            self.done += len(line.data) + 1
            if line.number % TOLD_EVERY == 0:
                self.progress(min(self.done, self.total or self.done), self.total)
            yield line

    def rows(self, table: Table) -> Iterator[NumberedRow]:
        """Number the rows of a table, and count them."""
        for number, row in enumerate(table.rows, start=1):
            self.lines = number
            if number % TOLD_EVERY == 0:
                self.progress(number, table.total)
            yield NumberedRow(number, row)

    def wrong(self, row: BadRow) -> None:
        """Count a bad line. Raises: LogLineError, if the first one is to end it."""
        if self.strict:
            raise LogLineError(row.line, row.column, row.reason)
        self.bad_lines += 1
        if len(self.bad) < BAD_KEPT:
            self.bad.append(row)

    def logged(self, logged: Logged) -> None:
        """Count a decision, and what it earned."""
        self._decided(logged.propensity, logged.options.names)
        self.rewards += logged.reward is not None

    def told(self, events: Iterable[Event]) -> Iterator[Event]:
        """Pass events on and count them."""
        for event in events:
            if isinstance(event, Decision):
                self._decided(event.propensity, event.options)
            self.rewards += isinstance(event, Reward)
            yield event

    def _decided(self, propensity: float | None, options: Sequence[str]) -> None:
        self.decisions += 1
        self.with_propensity += propensity is not None
        self.without_choice += len(options) < 2


def _file(path: str) -> Path:
    if Path(path).is_dir():
        raise TauLiveError(
            f"'{path}' is a folder, and a log is one file. If it is an export: decisions.parquet "
            "holds its decisions (--map run=rollout_id,step=ordinal,option=applied); for their "
            "rewards, add to it the column total_reward of rollouts.parquet as reward, in the "
            "last row of each rollout_id alone"
        )
    return Path(path)


def _no_table(path: Path, _format: Format) -> Table:
    raise TauLiveError(f"'{path}' is a table that no installed package can open")


def import_log(
    source: LogSource,
    settings: Settings,
    *,
    progress: Callable[[int, int], None],
    open_table: OpenTable = _no_table,
) -> Imported:
    """Store a log; nothing is learned yet, `tau-live learn` does that.

    Args:
        source: What to read.
        settings: Where to.
        progress: Told how many bytes (or rows of a table) of how many are done; of 0 where that is
            not known.
        open_table: Opens a file of Parquet or Arrow.

    Raises:
        LogLineError: A line cannot be read, and ``strict`` was asked for.
        TauLiveError: The log cannot be read, the gate holds, or the store failed.
    """
    began = time.perf_counter()
    quiet = settings.infer_reward is InferReward.AUTO  # what nobody valued has no value
    settings = replace(
        settings,
        learner=LearnerMode.OFF,
        infer_reward=InferReward.OFF if quiet else settings.infer_reward,
    )
    try:
        path = None if source.path == STDIN else _file(source.path)
        total = path.stat().st_size if path else 0
        written = path.stat().st_mtime if path else time.time()
        counts = _Counts(strict=source.strict, progress=progress, total=total)
        format_ = source.format or _format_of_table(path)
        if path is not None and format_ in TABLES:
            table = open_table(path, format_)
            told = _told_by_table(
                source, format_, counts.rows(table), counts, settings=settings, written=written
            )
        else:
            lines = file_lines(path) if path else stdin_lines()
            first, lines = _peeked(counts.read(lines))
            told = _told(source, first, lines, counts, settings=settings, written=written)
        offline = Offline(settings)
        try:
            for batch in told.batches:
                offline.store(batch)
            offline.finish()
            found = offline.report(events=0, bad=[], bad_lines=0)
        finally:
            offline.close()
    except OSError as error:
        raise TauLiveError(f"cannot read log '{source.path}': {error}") from error
    return Imported(
        format=told.format.value,
        lines=counts.lines,
        decisions=counts.decisions,
        with_propensity=counts.with_propensity,
        without_choice=counts.without_choice,
        rewards=counts.rewards,
        rollouts=found.rollouts,
        bad=counts.bad,
        bad_lines=counts.bad_lines,
        unseen=told.unseen(),
        refused=found.refused,
        lines_per_s=round(counts.lines / max(time.perf_counter() - began, 1e-9), 1),
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """How a log is read.

    Attributes:
        format: How it is written.
        batches: What it tells; each is to be stored at once.
        unseen: Returns the mapped columns that no row had.
    """

    format: Format
    batches: Iterator[Sequence[Told]]
    unseen: Callable[[], list[str]]


def _told(  # what a log is read with
    source: LogSource,
    first: Sequence[Line],
    lines: Iterator[Line],
    counts: _Counts,
    *,
    settings: Settings,
    written: float,
) -> _Read:
    format_ = source.format or _format(source.path, first)
    if format_ is Format.OTEL:
        traces = Traces(_records(settings, source.reward), reward=source.reward)
        events = counts.told(_of_traces(traces, json_rows(lines), counts))
        return _Read(format_, _batched(events), list)
    rows = table_rows(lines) if format_ is Format.CSV else json_rows(lines)
    if format_ is Format.CSV:
        _check_head(first, source.places, counts)
    reader = Reader(
        source.places,
        point=source.point,
        offered=_offered(source, format_),
        cells=format_ is Format.CSV,
        columns=format_ is Format.CSV,
    )
    runs = Runs(
        source.stream or _stream(source.path, first[: 1 + (format_ is Format.CSV)]),
        otherwise=written if source.at is None else source.at,
        records=_records(settings, source.reward),
    )
    return _Read(format_, _of_rows(runs, reader, rows, counts), lambda: reader.unseen)


def _check_head(first: Sequence[Line], places: Places, counts: _Counts) -> None:
    """Count a head as bad in which no column is the option, also where no row follows it."""
    column = column_of("option", places)
    for head in table_rows([*first, *first]) if len(first) == 1 else ():
        if isinstance(head, NumberedRow) and standing(head.row, column) is None:
            counts.wrong(BadRow(1, column, "the table has no such column"))


def _told_by_table(  # what a log is read with
    source: LogSource,
    format_: Format,
    rows: Iterator[NumberedRow],
    counts: _Counts,
    *,
    settings: Settings,
    written: float,
) -> _Read:
    first = list(islice(rows, 1))
    if source.options == (EVERY,):
        raise TauLiveError("the options of a table cannot be read beforehand: name them")
    reader = Reader(
        source.places, point=source.point, offered=source.options, cells=False, columns=True
    )
    runs = Runs(
        source.stream or _stream(source.path, [Line(1, repr(one.row).encode()) for one in first]),
        otherwise=written if source.at is None else source.at,
        records=_records(settings, source.reward),
    )
    batches = _of_rows(runs, reader, chain(first, rows), counts)
    return _Read(format_, batches, lambda: reader.unseen)


def _records(settings: Settings, reward: str) -> Records:
    return Records(
        width=policy_config(settings).width,
        limits=Limits(chars=settings.payload_limit),
        redactor=Redactor(settings.content.value, settings.payload_limit),
        reward=reward,
    )


def _format_of_table(path: Path | None) -> Format | None:
    """Return the format of a file that begins like a table of Parquet or Arrow."""
    if path is None:
        return None
    with path.open("rb") as file:
        begins = file.read(8)
    return next((format_ for magic, format_ in MAGIC.items() if begins.startswith(magic)), None)


def _of_rows(
    runs: Runs, reader: Reader, rows: Iterator[NumberedRow | BadRow], counts: _Counts
) -> Iterator[Sequence[Told]]:
    while some := list(islice(rows, ROWS_AT_ONCE)):
        yield from runs.take(list(_logged(reader, some, counts)))
    yield from runs.finished()


def _logged(
    reader: Reader, rows: Iterable[NumberedRow | BadRow], counts: _Counts
) -> Iterator[tuple[Logged, int]]:
    for row in rows:
        if isinstance(row, BadRow):
            counts.wrong(row)
            continue
        try:
            logged = reader.logged(row.row)
        except FieldError as error:
            counts.wrong(BadRow(row.line, error.column, error.reason))
            continue
        counts.logged(logged)
        yield logged, row.line


def _batched(events: Iterator[Event]) -> Iterator[Sequence[Event]]:
    while batch := list(islice(events, BATCH_LIMIT)):
        yield batch


def _of_traces(
    traces: Traces, rows: Iterable[NumberedRow | BadRow], counts: _Counts
) -> Iterator[Event]:
    for row in rows:
        if isinstance(row, BadRow):
            counts.wrong(row)
            continue
        for found in traces.told(row.row):
            if isinstance(found, FieldError):
                counts.wrong(BadRow(row.line, found.column, found.reason))
            else:
                yield found
    for found in traces.finished():
        if not isinstance(found, FieldError):
            yield found


def _peeked(lines: Iterator[Line]) -> tuple[list[Line], Iterator[Line]]:
    """Return the first lines, and all of them."""
    first = list(islice(lines, 2))
    return first, chain(first, lines)


def _format(path: str, first: Sequence[Line]) -> Format:
    begins = first[0].data.removeprefix(b"\xef\xbb\xbf").lstrip() if first else b""
    if begins.startswith(b"{"):
        return Format.OTEL if b'"resourceSpans"' in begins[:100] else Format.JSONL
    return Format.CSV if begins and not path.endswith((".jsonl", ".json")) else Format.JSONL


def _stream(path: str, first: Sequence[Line]) -> str:
    """Return the name of a log: its file's, and a hash of how it begins."""
    hashed = sha256(b"\n".join(line.data for line in first)).hexdigest()[:16]
    return f"{'stdin' if path == STDIN else Path(path).name}-{hashed}"


def _offered(source: LogSource, format_: Format) -> tuple[str, ...]:
    """Return the options of rows that name none; ``all`` reads the file once more before."""
    if source.options != (EVERY,):
        return source.options
    if source.path == STDIN:
        raise TauLiveError("the options of a pipe cannot be read beforehand: name them")
    reader = Reader(source.places, point=None, offered=(), cells=False)
    names: set[str] = set()
    lines = file_lines(Path(source.path))
    for row in table_rows(lines) if format_ is Format.CSV else json_rows(lines):
        option = None if isinstance(row, BadRow) else reader.option(row.row)
        names |= {option} if option is not None else set()
        if len(names) > OPTIONS_LIMIT:
            raise TauLiveError(f"the log applied more than {OPTIONS_LIMIT} options")
    return tuple(sorted(names))
