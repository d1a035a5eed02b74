"""Logs from elsewhere: JSON Lines and CSV, one decision a line, every error with its line.

No line is skipped: one that cannot be read is an error, and one without a reward or a propensity is
a decision without one, which the report counts.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live.core.errors import LogError
from tau_live.core.sanitize import JsonObject
from tau_live.learn.evaluation.records import Record, Records
from tau_live.rl.features import WIDTH, Features, encode, pack

OPTION, OPTIONS, PROPENSITY, REWARD = "option", "options", "propensity", "reward"
ROLLOUT, DEFAULT, CONTEXT, FEATURES = "rollout", "default", "context", "features"
NEEDED = (OPTION, PROPENSITY, REWARD)
OURS = frozenset({*NEEDED, OPTIONS, ROLLOUT, DEFAULT, CONTEXT, FEATURES})
SUFFIXES = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
UNKNOWN = frozenset({"", "null", "none", "nan"})
TELL_EVERY = 1_000
LONGEST = 10_000_000

Tell = Callable[[int], None]
Row = JsonObject


class Line(NamedTuple):
    """A line of a log.

    Attributes:
        path: The log.
        number: Counted from 1.
        row: Its values by column.
    """

    path: Path
    number: int
    row: Row

    def error(self, column: str, expected: str, value: object) -> LogError:
        """Return the error of a column with a value of the wrong kind."""
        excerpt = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
        return LogError(
            f"{self.path}:{self.number}: column {column!r}: expected {expected}, got {excerpt}"
        )


def records_of(
    path: Path, *, context: Sequence[str] | None = None, width: int = WIDTH, tell: Tell
) -> Records:
    """Return the decisions of a log.

    Columns are ``option`` (the one applied), ``propensity``, ``reward``, and optionally ``options``
    (those allowed: names, or names with features), ``rollout`` (whose steps are in order),
    ``default``, and ``context`` or ``features`` (the context). Without those two every other column
    is part of the context. Without ``options`` every option of the log is assumed to have been
    offered each time.

    Args:
        path: A file whose name ends in ``.jsonl``, ``.ndjson`` or ``.csv``.
        context: Which of the other columns to take; ``None`` takes all.
        width: Width of the features.
        tell: Called with the number of further lines read.

    Raises:
        LogError: A line or a column is malformed.
        OSError: The file cannot be read.
    """
    everything = _options_of(path)
    records = Records()
    for line in lines_of(path):
        known = _context_of(line, context)
        records.records.append(_record(line, known, everything=everything, width=width))
        if line.number % TELL_EVERY == 0:
            tell(TELL_EVERY)
    if not records.records:
        raise LogError(f"{path}: no decisions found")
    records.records[:] = _fill_blank_rewards(records.records)
    return records


def _fill_blank_rewards(records: Sequence[Record]) -> Iterator[Record]:
    """Yield the records, a blank reward being 0 where the last step of its run has a reward.

    A run often has one reward, in its last line; then the blanks before it are no unknown rewards.
    A run whose last line has none may still have earned one.
    """
    last = {record.rollout: record for record in records}
    for record in records:
        blank = isnan(record.reward) and not isnan(last[record.rollout].reward)
        yield record._replace(reward=0.0) if blank else record


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines of a log, each with its columns; blank lines are skipped.

    Raises:
        LogError: A line cannot be read.
        OSError: The file cannot be read.
    """
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise LogError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    yield from _csv_lines(path) if kind == "csv" else _json_lines(path)


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    with path.open("rb") as stream:
        number = 0
        while data := stream.readline(LONGEST + 1):
            number += 1
            if len(data) > LONGEST:
                raise LogError(f"{path}:{number}: longer than {LONGEST} bytes")
            try:
                text = data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise LogError(f"{path}:{number}: not UTF-8: {error.reason}") from error
            yield number, text


def _json_lines(path: Path) -> Iterator[Line]:
    for number, text in _texts(path):
        if not text.strip():
            continue
        try:
            row = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise LogError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise LogError(f"{path}:{number}: expected an object, got {type(row).__name__}")
        _check_needed(path, number, row)
        yield Line(path, number, row)


def _csv_lines(path: Path) -> Iterator[Line]:
    first_line = 1

    def texts() -> Iterator[str]:
        for _, text in _texts(path):
            yield text

    reader = csv.reader(texts(), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            number, first_line = first_line, reader.line_num + 1
            if not cells:
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                _check_header(path, number, header)
            elif len(cells) != len(header):
                raise LogError(f"{path}:{number}: expected {len(header)} columns, got {len(cells)}")
            else:
                yield Line(path, number, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        raise LogError(f"{path}:{first_line}: not CSV: {error}") from error


def _check_header(path: Path, number: int, header: Sequence[str]) -> None:
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise LogError(f"{path}:{number}: column {twice[0]!r} appears twice")
    _check_needed(path, number, dict.fromkeys(header))


def _check_needed(path: Path, number: int, row: Row) -> None:
    missing = [name for name in NEEDED if name not in row]
    if missing:
        listed = ", ".join(repr(name) for name in row) or "none"
        raise LogError(f"{path}:{number}: no column {missing[0]!r}; its columns: {listed}")


def _options_of(path: Path) -> tuple[str, ...] | None:
    """Return every option of a log in order of appearance; ``None`` where it lists the options."""
    seen: dict[str, None] = {}
    for line in lines_of(path):
        if OPTIONS in line.row:
            return None
        seen[_name(line, OPTION, line.row[OPTION])] = None
    return tuple(seen)


def _record(
    line: Line,
    known: Mapping[str, object],
    *,
    everything: tuple[str, ...] | None,
    width: int,
) -> Record:
    offered = dict.fromkeys(everything) if everything is not None else _options(line)
    row, names = line.row, tuple(offered)
    applied = _name(line, OPTION, row[OPTION])
    default = row.get(DEFAULT)
    wanted = None if _is_blank(default) else _name(line, DEFAULT, default)
    own = row.get(ROLLOUT)
    return Record(
        rollout=f"line {line.number}" if _is_blank(own) else _name(line, ROLLOUT, own),
        options=names,
        allowed=None,
        applied=names.index(applied) if applied in offered else -1,
        default=names.index(wanted) if wanted is not None and wanted in offered else None,
        propensity=_number(line, PROPENSITY, row[PROPENSITY]),
        reward=_number(line, REWARD, row[REWARD]),
        packed=pack(encode(known, list(offered.items()), width=width)),
        context=known,
        features=tuple(offered.values()),
    )


def _options(line: Line) -> dict[str, Features | None]:
    options = line.row.get(OPTIONS)
    if isinstance(options, str) and options.strip()[:1] in {"[", "{"}:
        options = _parse(line, OPTIONS, options)
    elif isinstance(options, str):
        options = [name.strip() for name in options.split("|")] if options.strip() else None
    if options is None:
        return {}
    if isinstance(options, list):
        names = [_name(line, OPTIONS, name) for name in options]
        if len(set(names)) < len(names):
            raise line.error(OPTIONS, "every option once", options)
        return dict.fromkeys(names)
    if isinstance(options, dict) and all(
        features is None or isinstance(features, dict) for features in options.values()
    ):
        return {str(name): features for name, features in options.items()}
    raise line.error(OPTIONS, "a list of names, or names with objects of features", options)


def _context_of(line: Line, wanted: Sequence[str] | None) -> Features:
    context: dict[str, object] = {}
    row = line.row
    columns = [name for name in (CONTEXT, FEATURES) if not _is_blank(row.get(name))]
    for name in columns:
        value = row[name]
        value = _parse(line, name, value) if isinstance(value, str) else value
        if not isinstance(value, dict):
            raise line.error(name, "an object", value)
        context |= value
    if not columns:
        context = {name: _cell_value(value) for name, value in row.items() if name not in OURS}
    if wanted is None:
        return context
    missing = [name for name in wanted if name not in context]
    if missing:
        raise LogError(f"{line.path}:{line.number}: no context column {missing[0]!r}")
    return {name: context[name] for name in wanted}


def _cell_value(value: object) -> object:
    """Return a cell as a number where it is one; ``None`` where it is blank."""
    if not isinstance(value, str):
        return value
    if _is_blank(value):
        return None
    try:
        number = float(value)
    except ValueError:
        return value
    return number if isfinite(number) else value


def _parse(line: Line, column: str, text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        raise line.error(column, "JSON", text) from None
    return value


def _number(line: Line, column: str, value: object) -> float:
    if _is_unknown(value):
        return nan
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        if isinstance(value, bool) and column == REWARD:
            return float(value)
        raise line.error(column, "a number", value)
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise line.error(column, "a number", value) from None


def _name(line: Line, column: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise line.error(column, "a name", value)
    name = str(value).strip()
    if not name:
        raise line.error(column, "a name", value)
    return name


def _is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _is_unknown(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.strip().lower() in UNKNOWN)
