"""Many rows by few statements, and their seals at once."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, compress
from itertools import count as counted_from
from math import isfinite, isnan

from tau_live.core.errors import StoreError
from tau_live.rl.throttle import yield_between, yield_gil
from tau_live.store.sealing import SEALED, digests_of
from tau_live.store.sqlite.connection import Connection, Value
from tau_live.store.sqlite.sealing import AT_ONCE, LAST

Columns = Mapping[str, Sequence[Value]]
"""The values of several rows, by the name of their column."""

ROWS = 256
"""Of so many rows the seals are made without a pause."""


@contextmanager
def sealed_at_once(connection: Connection) -> Iterator[None]:
    """Let no trigger seal what is inserted meanwhile: who inserts it does."""
    connection.change(f"insert into {AT_ONCE} values (1)")
    try:
        yield
    finally:
        if connection.raw.in_transaction:  # else all of it was undone, and that with it
            connection.change(f"delete from {AT_ONCE}")


def seals_of(
    connection: Connection, table: str, columns: Columns, numbers: Sequence[int]
) -> Iterator[Sequence[Value]]:
    """Yield the rows of ``seals`` for rows that were inserted one after the other.

    Args:
        connection: Seals what it writes.
        table: Where they were inserted.
        columns: Their values as they are stored.
        numbers: What numbers them.
    """
    sealed, sealer = SEALED[table], connection.sealer
    if sealer is None:
        return
    given = {sealed.number: numbers, **columns}
    own = {name: given[name] for name in connection.sealed[table]}
    if sealed.known:
        known = [
            any(value is not None for value in row)
            for row in zip(*(own[name] for name in sealed.known), strict=True)
        ]
        numbers = [*compress(numbers, known)]
        own = {name: [*compress(column, known)] for name, column in own.items()}
    last = connection.row(LAST)
    link: bytes | None = None if last is None else last[0]
    for at in range(0, len(numbers), ROWS):
        some = {name: column[at : at + ROWS] for name, column in own.items()}
        for number, digest in zip(numbers[at : at + ROWS], digests_of(some), strict=True):
            seal = sealer.seal(link, table, number, digest)
            link = seal[len(digest) :]
            yield table, number, seal, sealer.key_id
        yield_gil()


SIZES = (32, 8, 1)
"""How many rows one statement inserts; SQLite keeps them, some 10 kB for each row."""

FEW = 8
"""Fewer rows are inserted, and sealed, one by one."""

MANY = 256
"""In so many rows it is worth a statement of its own that a column is the same in all."""

NULL, COMMON, OWN = "null", "common", "own"

INSERT_SEAL = "insert into seals (kind, row, seal, key_id) values (?, ?, ?, ?)"

_INTO = re.compile(r"insert into (\w+) \(([\w\s,]+)\) values (\((?:\?, )*\?\))")

_NULL = type(None)
_KINDS: Mapping[str, frozenset[object]] = {
    "INTEGER": frozenset({int, _NULL}),
    "REAL": frozenset({float, _NULL}),
    "TEXT": frozenset({str, _NULL}),
    "BLOB": frozenset({bytearray, _NULL}),
    "": frozenset({int, float, str, bytearray, _NULL}),
}
"""What a column of a kind holds; for a value of any other class sqlite3 asks for an adapter."""

_MADE: Sequence[tuple[type, Callable[..., Value]]] = (
    (bytes, bytearray),
    (str, str.__str__),
    (int, int),
    (float, float),
)
"""How values of other classes are made of one that is known: enumerations, truths."""


def insert(connection: Connection, sql: str, rows: Iterable[Sequence[Value]]) -> int:
    """Insert rows, given the statement that inserts one; return how many rows changed."""
    kept = rows if isinstance(rows, list) else [*yield_between(rows)]
    if len(kept) < FEW:
        return sum([connection.change(sql, row) for row in kept])
    return _insert_columns(connection, sql, _columns(connection, sql, kept), len(kept))


def insert_new(connection: Connection, sql: str, rows: Iterable[Sequence[Value]]) -> range:
    """Insert rows that nobody else can have inserted; return their numbers, in their order.

    Where their table is sealed, many are sealed at once.

    Raises:
        StoreError: One of them is there, or has a value not of its column's kind.
    """
    kept = rows if isinstance(rows, list) else [*yield_between(rows)]
    table, _, _ = _into(sql)
    if len(kept) < FEW or table not in connection.sealed:
        changed = insert(connection, sql, kept)
        numbers = _last(connection, len(kept))
    else:
        columns = _columns(connection, sql, kept)
        with sealed_at_once(connection):
            changed = _insert_columns(connection, sql, columns, len(kept))
        numbers = _last(connection, len(kept))
        insert(connection, INSERT_SEAL, seals_of(connection, table, columns, numbers))
    if changed < len(kept):
        raise StoreError(f"cannot store this: {table} has a row of it already")
    return numbers


def _last(connection: Connection, count: int) -> range:
    return range(connection.last_row - count + 1, connection.last_row + 1)


def _columns(connection: Connection, sql: str, rows: Sequence[Sequence[Value]]) -> Columns:
    table, names, _ = _into(sql)
    kinds = connection.sealed.get(table, {})
    return {
        name: _as_stored(column, kinds.get(name, ""))
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def _insert_columns(connection: Connection, sql: str, columns: Columns, count: int) -> int:
    """Insert rows, given their columns; what all of them have in common is bound once or never.

    For to bind a null takes 0.4 us, and anything else 0.2; of what begins and ends in a batch every
    third value is null, and of many runs of one log half of the others are the same.
    """
    forms = {name: _form_of(column, count) for name, column in columns.items()}
    common = [column[0] for name, column in columns.items() if forms[name] == COMMON]
    own = [column for name, column in columns.items() if forms[name] == OWN]
    at = changed = 0
    for size in SIZES:
        while count - at >= size:
            some = zip(*(column[at : at + size] for column in own), strict=True)
            statement = _of_rows(sql, size, tuple(forms.values()))
            changed += connection.change(statement, [*common, *chain.from_iterable(some)])
            yield_gil()
            at += size
    return changed


def _form_of(column: Sequence[Value], count: int) -> str:
    """Return how a column stands in a statement: null, common, or with each row's own value."""
    alike = column.count(column[0]) == count
    if not alike:
        return OWN
    return NULL if column[0] is None else COMMON if count >= MANY else OWN


def _as_stored(column: Sequence[Value], kind: str) -> Sequence[Value]:
    """Return values in a class that sqlite3 knows, as SQLite stores them in a column of a kind."""
    kinds = {*map(type, column)}
    for given in kinds - _KINDS[""]:
        made = next((made for known, made in _MADE if issubclass(given, known)), None)
        if made is not None:
            column = [made(value) if type(value) is given else value for value in column]
    if kind == "REAL" and kinds == {float} and isfinite(sum(column)):  # type: ignore[arg-type]
        return [value + 0.0 for value in column]  # type: ignore[operator]  # they are floats
    if kind == "REAL":
        column = [*map(_real, column)]
    if kind and not _KINDS[kind].issuperset(map(type, column)):
        raise StoreError(f"cannot store this in a column of {kind}: {column!r}")
    return column


def _real(value: Value) -> Value:
    """Return a number as SQLite stores it, which knows no NaN and no zero below zero."""
    if not isinstance(value, int | float):
        return value
    return None if isnan(value) else value + 0.0


@cache
def _into(sql: str) -> tuple[str, Sequence[str], str]:
    """Return the table, the columns and the row of a statement that inserts one."""
    match = _INTO.search(sql)
    if match is None:
        raise ValueError(f"expected a statement that inserts one row, got {sql!r}")
    return match[1], [name.strip() for name in match[2].split(",")], match[3]


@cache
def _of_rows(sql: str, size: int, forms: Sequence[str]) -> str:
    """Return the statement that inserts several rows, of one that inserts one."""
    numbers = iter(range(1, 1 + forms.count(COMMON)))
    common = {place: next(numbers) for place, form in enumerate(forms) if form == COMMON}
    following = counted_from(1 + len(common))
    rows = []
    for _ in range(size):
        values = (
            "null" if form == NULL else f"?{common.get(place) or next(following)}"
            for place, form in enumerate(forms)
        )
        rows.append(f"({', '.join(values)})")
    return sql.replace(_into(sql)[2], ", ".join(rows))
