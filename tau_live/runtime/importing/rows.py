"""Reads the rows of a log from JSON Lines and tables (CSV, TSV); a bad line affects no other."""

import csv
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from math import isfinite, nan
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from tau_live.core.offers import OPTIONS_LIMIT, text_of
from tau_live.core.sanitize import JsonObject
from tau_live.record.recording import Line
from tau_live.rl.features import Features

FIELDS: Mapping[str, str] = {
    "run": "the id that the rows of one run share; without it every row is its own run",
    "step": "the row's place in its run, from 1; without it the order of the lines",
    "end": "true in the last row of a run; without it a run ends with the log",
    "at": "the time, as epoch seconds (or milli-, micro-, nanoseconds) or ISO 8601",
    "point": "the decision point; --point by default",
    "options": "the options: names, objects, or an object of names and features",
    "option": "the option that was applied",
    "chosen": "the option that a policy chose, which the host may not have applied",
    "default": "the host's own choice",
    "propensity": "the probability with which the applied option was chosen",
    "probabilities": "one for each option, in their order or by name",
    "context": "the context: an object, or columns joined by +, which may contain * and ?",
    "features": "features of each option, by its name",
    "reward": "the reward: a number, true or false; a minus before the name marks a cost",
    "session": "the id that the runs of one conversation share",
    "name": "the kind of run",
}
"""The meaning of every field."""

ABSENT = frozenset({"", "na", "nan", "none", "null"})
"""Texts for a missing value in a column of numbers."""

Row: TypeAlias = JsonObject
"""A row of a log, by its own columns."""


class FieldError(ValueError):
    """A field is missing or malformed.

    Attributes:
        column: Its column.
        reason: What was expected and what came.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"{column}: {reason}")
        self.column = column
        self.reason = reason


class Place(NamedTuple):
    """The place of a field in a row.

    Attributes:
        paths: A column, or several of a context; a dot leads into an object or a list.
        negated: Whether its number has the opposite sign.
    """

    paths: tuple[str, ...]
    negated: bool = False


Places = Mapping[str, Place]


def parse_map(text: str) -> dict[str, Place]:
    """Return the places of fields in ``--map FIELD=COLUMN,...``.

    Raises:
        ValueError: It names an unknown field, a field twice, or no column.
    """
    places: dict[str, Place] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        field, separator, column = (word.strip() for word in part.partition("="))
        if field not in FIELDS:
            raise ValueError(f"{field!r} is not one of {', '.join(FIELDS)}")
        if field in places:
            raise ValueError(f"{field!r} is mapped twice")
        negated = field == "reward" and column.startswith("-")
        paths = column.removeprefix("-") if negated else column
        split = tuple(paths.split("+")) if field == "context" else (paths,)
        if not separator or not all(split):
            raise ValueError(f"{part!r} names no column: expected FIELD=COLUMN")
        places[field] = Place(split, negated)
    return places


def column_of(field: str, places: Places) -> str:
    """Return the column of a field, for people."""
    place = places.get(field)
    return "+".join(place.paths) if place else field


def value_at(row: Row, path: str) -> object:
    """Return the value at a path; ``None`` if there is none."""
    if path in row:
        return row[path]
    value: object = row
    for part in path.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def select_columns(row: Row, paths: Sequence[str]) -> Row:
    """Return the columns that any of these paths names, or matches with ``*`` and ``?``."""
    columns: dict[str, object] = {}
    for path in paths:
        if "*" in path or "?" in path:
            columns |= {name: row[name] for name in row if fnmatchcase(name, path)}
        else:
            value = value_at(row, path)
            if value is not None:
                columns[path] = value
    return columns


class NumberedRow(NamedTuple):
    """A row, and the number of its first line, from 1."""

    line: int
    row: Row


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that is not a row, or a row that is not a decision.

    Attributes:
        line: Counted from 1.
        column: The column of a wrong field, else the number of a wrong character, from 1; ``None``
            for the whole line.
        reason: What was expected and what came.
    """

    line: int
    column: str | None
    reason: str


def json_rows(lines: Iterable[Line]) -> Iterator[NumberedRow | BadRow]:
    """Yield the object in each line; blank lines are skipped."""
    for line in lines:
        if line.too_long:
            yield BadRow(line.number, None, "line too long")
        elif line.data.strip():
            yield _object(line)


def _object(line: Line) -> NumberedRow | BadRow:
    data = line.data.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.data
    try:
        decoded: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        torn = "" if line.whole else "cut off: "
        return BadRow(line.number, _bad_character(data), f"{torn}not JSON: {error}")
    if not isinstance(decoded, Mapping):
        return BadRow(line.number, None, f"expected an object, got a {type(decoded).__name__}")
    return NumberedRow(line.number, decoded)


def _bad_character(data: bytes) -> str | None:
    """Return the number of the character at which a line stops being JSON, from 1."""
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return str(error.colno)
    except UnicodeDecodeError as error:
        return str(error.start + 1)
    except (ValueError, RecursionError):
        return None
    return None


def table_rows(lines: Iterable[Line]) -> Iterator[NumberedRow | BadRow]:
    """Yield the rows of a table, with the names in its first line as keys.

    A quoted cell may hold newlines. If a quote is not closed, only its line is bad.
    """
    head: list[str] | None = None
    for number, cells in _records(lines):
        if isinstance(cells, BadRow):
            yield cells
        elif head is None:
            head = [name.strip().removeprefix("\ufeff") for name in cells]
        elif len(cells) != len(head):
            yield BadRow(number, None, f"expected {len(head)} cells, got {len(cells)}")
        else:
            yield NumberedRow(number, dict(zip(head, cells, strict=True)))


def _records(lines: Iterable[Line]) -> Iterator[tuple[int, list[str] | BadRow]]:
    """Yield the cells of each record and the number of its first line; blank lines are skipped."""
    rest = iter(lines)
    waiting = deque(islice(rest, 1))
    first = b"".join(line.data for line in waiting)
    delimiter = max(",;\t|", key=lambda mark: first.count(mark.encode()))
    while line := (waiting.popleft() if waiting else next(rest, None)):
        joined, cells = [line], _cells([line], delimiter)
        # A quoted cell may span so many lines; beyond, its quote was never closed.
        while cells is None and len(joined) < 100:
            more = waiting.popleft() if waiting else next(rest, None)
            if more is None:
                break
            joined.append(more)
            cells = _cells(joined, delimiter)
        if cells is None or (isinstance(cells, BadRow) and len(joined) > 1):
            waiting.extendleft(reversed(joined[1:]))
            cells = BadRow(line.number, None, "a quote is not closed")
        if cells:
            yield line.number, cells


def _cells(lines: Sequence[Line], delimiter: str) -> list[str] | BadRow | None:
    """Return the cells of a record; ``None`` if a quote is open, empty for a blank line."""
    first = lines[0].number
    if any(line.too_long for line in lines):
        return BadRow(first, None, "line too long")
    try:
        text = b"\n".join(line.data for line in lines).decode().rstrip("\r")
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    except UnicodeDecodeError as error:
        return BadRow(first, str(error.start + 1), "not UTF-8")
    except csv.Error as error:
        open_ = str(error) == "unexpected end of data"
        return None if open_ else BadRow(first, None, f"not a table row: {error}")


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SCALARS = frozenset({float, int, bool, str, type(None)})

Read = TypeVar("Read")
Reading = Callable[[object], Read]


class Options(NamedTuple):
    """The options that were offered.

    Attributes:
        names: ``[A]``, each once.
        features: ``[A]``; ``None`` for an option without any.
    """

    names: tuple[str, ...]
    features: tuple[Features | None, ...]


def name_of(value: object) -> str | None:
    """Return a name; ``None`` if it is missing. Raises: ValueError."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return text_of(value)
    raise _value_error("a name", value)


def number_of(value: object) -> float | None:
    """Return a finite number; ``None`` if it is missing. Raises: ValueError."""
    if value is None:
        return None
    if type(value) is float and isfinite(value):
        return value
    raw = value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ABSENT:
            return None
        raw = {"true": True, "false": False}.get(word, value)
    try:
        number = float(raw) if isinstance(raw, str | int | float) else nan
    except ValueError:
        number = nan
    if not isfinite(number):
        raise _value_error("a finite number", value)
    return number


def probability_of(value: object) -> float | None:
    """Return a number from 0 to 1; ``None`` if it is missing. Raises: ValueError."""
    number = number_of(value)
    if number is not None and not 0.0 <= number <= 1.0:
        raise _value_error("a number from 0 to 1", value)
    return number


def ordinal_of(value: object) -> int | None:
    """Return a whole number from 1; ``None`` if it is missing. Raises: ValueError."""
    number = number_of(value)
    if number is not None and not (number >= 1.0 and number.is_integer() and number < 1e18):
        raise _value_error("a whole number from 1", value)
    return None if number is None else int(number)


def bool_of(value: object) -> bool:
    """Return a value as a boolean. Raises: ValueError."""
    return bool(number_of(value))


def time_of(value: object) -> float | None:
    """Return a time in epoch seconds; ``None`` if it is missing. Raises: ValueError."""
    text = value.strip() if isinstance(value, str) else ""
    if text and text.lower() not in ABSENT and not _NUMBER.fullmatch(text):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise _value_error("a time", value) from error
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    else:
        number = number_of(value)
        if number is None:
            return None
        seconds = number
        # A larger number is a time in milliseconds, microseconds, and so on.
        while seconds > 1e11:
            seconds /= 1e3
    if seconds < 0.0:
        raise _value_error("a time since 1970", value)
    return seconds


def options_of(value: object) -> Options:
    """Return the options in a value, if any. Raises: ValueError."""
    value = _decode(value)
    if value is None:
        return Options((), ())
    pairs: list[tuple[str | None, Features | None]]
    if isinstance(value, str):
        pairs = [(name_of(name.strip()), None) for name in value.split("|")]
    elif isinstance(value, Mapping):
        pairs = [(name_of(name), _features(of)) for name, of in value.items()]
    elif isinstance(value, list):
        if all(type(option) is str for option in value):  # as in rows without features
            return _named_options(tuple(value))
        pairs = [_option(at, option) for at, option in enumerate(value)]
    else:
        raise _value_error("options", value)
    return _options(pairs, value)


@lru_cache(maxsize=256)  # most rows of a log offer the same
def _named_options(names: tuple[str, ...]) -> Options:
    return _options([(name_of(name), None) for name in names], [*names])


def _options(pairs: Sequence[tuple[str | None, Features | None]], value: object) -> Options:
    names = [name for name, _ in pairs if name is not None]
    if len(set(names)) < len(pairs):
        raise _value_error("every option once and with a name", value)
    if len(names) > OPTIONS_LIMIT:
        raise ValueError(f"expected at most {OPTIONS_LIMIT} options, got {len(names)}")
    return Options(tuple(names), tuple(features for _, features in pairs))


def _option(at: int, option: object) -> tuple[str | None, Features | None]:
    if not isinstance(option, Mapping):
        return name_of(option), None
    names = ("name", "id", "option")  # the keys under which an object may have its name
    key = next((key for key in names if isinstance(option.get(key), str | int)), None)
    features = {name: value for name, value in option.items() if name != key}
    return (str(at) if key is None else name_of(option[key])), _features(features)


def _features(value: object) -> Features | None:
    return None if value is None else features_of(value)


def features_of(value: object) -> Features:
    """Return features by name, nested ones by dotted names. Raises: ValueError."""
    value = _decode(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _value_error("an object", value)
    if _SCALARS.issuperset(map(type, value.values())) and "_" not in {name[:1] for name in value}:
        return {**value}  # as most are
    return dict(_flat("", value, 0))


def features_by_option(value: object) -> dict[str, Features]:
    """Return the features of each option by its name. Raises: ValueError."""
    value = _decode(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _value_error("an object of options", value)
    return {str(name): features_of(of) for name, of in value.items()}


def _flat(prefix: str, value: Row, depth: int) -> Iterator[tuple[str, object]]:
    for name, inner in value.items():
        if str(name).startswith("_"):  # a log's private data, as in Vowpal Wabbit's
            continue
        if isinstance(inner, Mapping) and depth < 8:
            yield from _flat(f"{prefix}{name}.", inner, depth + 1)
        elif isinstance(inner, list) and any(isinstance(item, int | float) for item in inner):
            yield from ((f"{prefix}{name}.{at}", item) for at, item in enumerate(inner))
        else:
            yield f"{prefix}{name}", inner


def cells_of(cells: Row) -> Features:
    """Return the cells of a table as features: numbers, booleans, objects, else categories."""
    return {name: _cell(value) for name, value in cells.items()}


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ABSENT:
        return None
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return float(text) if _NUMBER.fullmatch(text) else value


def probabilities_of(value: object, names: Sequence[str]) -> tuple[float, ...]:
    """Return the probability of each option; empty if they are missing. Raises: ValueError."""
    value = _decode(value)
    if value is None or value == []:
        return ()
    listed = [value.get(name) for name in names] if isinstance(value, Mapping) else value
    if not isinstance(listed, list) or len(listed) != len(names):
        raise _value_error(f"{len(names)} probabilities", value)
    numbers = [probability_of(number) for number in listed]
    known = tuple(number for number in numbers if number is not None)
    if len(known) < len(names) or abs(sum(known) - 1.0) > 1e-3:
        raise _value_error("probabilities that sum to 1", value)
    return known


def _decode(value: object) -> object:
    """Return a value, decoded if it is JSON text; ``None`` for empty text. Raises: ValueError."""
    if value == "":
        return None
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        decoded: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"expected JSON, got {_short_repr(value)}: {error}") from error
    return decoded


def _value_error(expected: str, value: object) -> ValueError:
    return ValueError(f"expected {expected}, got {_short_repr(value)}")


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
