"""Lines of a log as rows: JSON Lines and tables (CSV, TSV); a bad line costs no other."""

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import msgspec

from tau_live.collection.recording import Line
from tau_live.importing.fields import Row

DELIMITERS = ",;\t|"
JOINED = 100
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
            yield BadRow(line.number, None, "line too long")
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

    A cell in quotes may hold newlines. Where a quote is not closed, its line alone is bad.
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
    """Yield the cells of each record and the line it begins on; blank lines are passed over."""
    first, rest = _first(lines)
    delimiter = max(DELIMITERS, key=lambda one: first.count(one.encode()))
    waiting: deque[Line] = deque()
    while line := (waiting.popleft() if waiting else next(rest, None)):
        joined, cells = [line], _cells([line], delimiter)
        while cells is None and len(joined) < JOINED:
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


def _first(lines: Iterable[Line]) -> tuple[bytes, Iterator[Line]]:
    rest = iter(lines)
    first = list(islice(rest, 1))
    return (first[0].data if first else b""), chain(first, rest)


def _cells(lines: Sequence[Line], delimiter: str) -> list[str] | BadRow | None:
    """Return the cells of a record; ``None`` while a quote is open, nothing for a blank line."""
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
