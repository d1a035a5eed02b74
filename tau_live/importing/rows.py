"""Lines of a log as rows: JSON Lines and tables (CSV, TSV); a bad line costs no other."""

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tau_live.importing.fields import Row
from tau_live.recording import Line

DELIMITERS = ",;\t|"
JOINED = 1_000
"""So many lines a cell in quotes may go on for; then its quote was never closed."""


class NumberedRow(NamedTuple):
    """A row and the line that it begins on, from 1."""

    line: int
    row: Row


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that holds no row, or a row that holds no decision.

    Attributes:
        line: Counted from 1.
        column: The field's, where one is to blame; else the character's place from 1; ``None``
            where it is all of the line.
        reason: What was expected and what came.
    """

    line: int
    column: str | None
    reason: str


def json_rows(lines: Iterable[Line]) -> Iterator[NumberedRow | BadRow]:
    """Yield the object of each line; blank lines are passed over."""
    for line in lines:
        if line.too_long:
            yield BadRow(line.number, None, "longer than a line may be")
        elif line.data.strip():
            yield _object(line)


def _object(line: Line) -> NumberedRow | BadRow:
    data = line.data.removeprefix(b"\xef\xbb\xbf") if line.number == 1 else line.data
    try:
        found: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        torn = "" if line.whole else "cut off: "
        return BadRow(line.number, _place(data), f"{torn}not JSON: {error}")
    if not isinstance(found, Mapping):
        return BadRow(line.number, None, f"expected an object, got a {type(found).__name__}")
    return NumberedRow(line.number, found)


def _place(data: bytes) -> str | None:
    """Return at which character a line stops being JSON, from 1."""
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
    """Yield the rows of a table, by the names that stand in its first line.

    A cell in quotes may hold newlines. Where a quote is never closed, its line alone is bad.
    """
    texts = _records(lines)
    head: list[str] | None = None
    delimiter = ","
    for found in texts:
        if isinstance(found, BadRow):
            yield found
            continue
        number, text = found
        if head is None:
            text = text.removeprefix("\ufeff")
            delimiter = max(DELIMITERS, key=text.count)
            head = [name.strip() for name in _cells(text, delimiter)]
            continue
        cells = _cells(text, delimiter)
        if len(cells) != len(head):
            yield BadRow(number, None, f"expected {len(head)} cells, got {len(cells)}")
        else:
            yield NumberedRow(number, dict(zip(head, cells, strict=True)))


def _cells(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def _records(lines: Iterable[Line]) -> Iterator[tuple[int, str] | BadRow]:
    """Yield each record's first line and text; a record goes on while a quote is open."""
    rest = iter(lines)
    waiting: deque[Line] = deque()
    while line := (waiting.popleft() if waiting else next(rest, None)):
        if line.too_long:
            yield BadRow(line.number, None, "longer than a line may be")
            continue
        joined = [line]
        while _is_open(joined) and len(joined) < JOINED:
            more = waiting.popleft() if waiting else next(rest, None)
            if more is None:
                break
            joined.append(more)
        if _is_open(joined):
            waiting.extendleft(reversed(joined[1:]))
            yield BadRow(line.number, None, "a quote is never closed")
            continue
        try:
            text = b"\n".join(part.data for part in joined).decode()
        except UnicodeDecodeError as error:
            yield BadRow(line.number, str(error.start + 1), "not UTF-8")
            continue
        if text.strip():
            yield line.number, text.rstrip("\r")


def _is_open(lines: list[Line]) -> bool:
    return sum(line.data.count(b'"') for line in lines) % 2 == 1
